// vector_cast.h -- Cast between element types, with the round modes that each pair allows on each chip.
#pragma once

#include <limits>

#include "twin/ascendc/vector_unary.h"

namespace twin::api {

using AscendC::RoundMode;

// Bits of the modes a pair allows; 0: the pair does not exist in the subset.
constexpr uint32_t mode_bit(RoundMode mode) { return 1u << static_cast<uint32_t>(mode); }
constexpr uint32_t kNoneMode = mode_bit(RoundMode::CAST_NONE);
constexpr uint32_t kFiveModes = mode_bit(RoundMode::CAST_RINT) | mode_bit(RoundMode::CAST_FLOOR) |
                                mode_bit(RoundMode::CAST_CEIL) | mode_bit(RoundMode::CAST_ROUND) |
                                mode_bit(RoundMode::CAST_TRUNC);

// From -> To. Documentation of Cast, the tables of A2 and of 950PR.
template <typename From, typename To>
constexpr uint32_t cast_modes() {
  const auto pair = [](auto from, auto to) {
    return std::is_same_v<From, decltype(from)> && std::is_same_v<To, decltype(to)>;
  };
  if (pair(float{}, half{})) return kFiveModes | kNoneMode | mode_bit(RoundMode::CAST_ODD);
  if (pair(float{}, bfloat16_t{}) || pair(float{}, int32_t{}) || pair(float{}, int16_t{}) ||
      pair(float{}, float{}))
    return kFiveModes;
  if (pair(half{}, float{}) || pair(bfloat16_t{}, float{}) || pair(int16_t{}, float{})) return kNoneMode;
  if (pair(half{}, int32_t{}) || pair(half{}, int16_t{}) || pair(bfloat16_t{}, int32_t{})) return kFiveModes;
  if (pair(int32_t{}, float{})) return kIs3510 ? kFiveModes : kFiveModes | kNoneMode;
  if (pair(int32_t{}, int16_t{})) return kNoneMode;
  if (kIs3510 && (pair(half{}, bfloat16_t{}) || pair(bfloat16_t{}, half{}))) return kFiveModes;
  if (kIs3510 && pair(int16_t{}, int32_t{})) return kNoneMode;
  return 0;
}

inline double round_whole(double value, RoundMode mode) {
  switch (mode) {
    case RoundMode::CAST_FLOOR:
      return std::floor(value);
    case RoundMode::CAST_CEIL:
      return std::ceil(value);
    case RoundMode::CAST_ROUND:
      return std::round(value);
    case RoundMode::CAST_TRUNC:
      return std::trunc(value);
    default:
      return std::nearbyint(value);
  }
}

// value as a float with `bits` mantissa bits and exponents from min_exponent: half is (10, -14), bfloat16_t
// (7, -126).
inline float round_mantissa(double value, int bits, int min_exponent, RoundMode mode) {
  if (value == 0.0 || !std::isfinite(value)) return static_cast<float>(value);
  int exponent;
  std::frexp(value, &exponent);
  const int lowest = std::max(exponent - 1, min_exponent) - bits;
  const double scaled = std::ldexp(value, -lowest);
  double rounded = round_whole(scaled, mode);
  if (mode == RoundMode::CAST_ODD && rounded != scaled) {
    rounded = std::floor(scaled);
    if (std::fmod(rounded, 2.0) == 0.0) rounded += 1.0;
  }
  return static_cast<float>(std::ldexp(rounded, lowest));
}

template <typename To, typename From>
To cast_value(From from, RoundMode mode) {
  if constexpr (std::is_integral_v<To>) {
    if constexpr (std::is_integral_v<From>) {
      const int64_t low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
      return static_cast<To>(std::min<int64_t>(std::max<int64_t>(from, low), high));
    } else {
      const double value = round_whole(static_cast<double>(to_float(from)), mode);
      if (std::isnan(value)) return 0;
      const double low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
      return static_cast<To>(std::min(std::max(value, low), high));
    }
  } else if constexpr (std::is_same_v<To, half>) {
    return static_cast<half>(round_mantissa(to_float(from), 10, -14, mode));
  } else if constexpr (std::is_same_v<To, bfloat16_t>) {
    return bfloat16_t(round_mantissa(to_float(from), 7, -126, mode));
  } else if constexpr (std::is_integral_v<From>) {
    return round_mantissa(static_cast<double>(from), 23, -126, mode);
  } else if constexpr (std::is_same_v<From, float>) {
    return static_cast<float>(round_whole(from, mode));
  } else {
    return to_float(from);
  }
}

// The common conversions, to nearest even or exact, a register at a time.
template <typename To, typename From>
bool cast_fast(To* to, const From* from, uint64_t n, RoundMode mode) {
  if constexpr (kIsFloating<To> && kIsFloating<From> && !std::is_same_v<To, From>) {
    if (mode != RoundMode::CAST_NONE && mode != RoundMode::CAST_RINT) return false;
    for (uint64_t i = 0; i < n; i += kLanes) {
      const uint64_t lanes = std::min(kLanes, n - i);
      lanes == kLanes ? store_lanes(to + i, load_lanes(from + i))
                      : store_some(to + i, load_some(from + i, lanes), lanes);
    }
    return true;
  } else {
    return false;
  }
}

template <typename To, typename From>
void cast_elements(const Shape& shape, const Strided& dst, const Strided& src, RoundMode mode) {
  if constexpr (cast_modes<From, To>() == 0) {
    refuse(shape.instruction, "element types", std::string(type_name<From>()) + " to " + type_name<To>(),
           std::string("are not supported on ") + (kIs3510 ? "3510" : "2201"));
  } else {
    if ((cast_modes<From, To>() & mode_bit(mode)) == 0) {
      refuse(shape.instruction, "roundMode", static_cast<int64_t>(mode),
             std::string("must be one that ") + type_name<From>() + " to " + type_name<To>() + " allows");
    }
    check_operands(shape, dst, {&src});
    current().issue(Pipe::kV, shape.instruction, vector_cost(VectorOp::kCast, shape.repeats),
                    [=](Access& access) {
                      const uint8_t* in = touch(access, shape, src, Touching::kRead);
                      uint8_t* out = touch(access, shape, dst, Touching::kWrite);
                      for_elements(shape, {dst, src}, [&](const uint64_t (&at)[2], uint64_t n) {
                        auto* to = reinterpret_cast<To*>(out + at[0]);
                        const auto* from = reinterpret_cast<const From*>(in + at[1]);
                        if (cast_fast(to, from, n, mode)) return;
                        for (uint64_t i = 0; i < n; ++i) to[i] = cast_value<To>(from[i], mode);
                      });
                    });
  }
}

template <typename T, typename U>
constexpr uint32_t wider() {
  return sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U);
}

}  // namespace twin::api

namespace AscendC {

template <typename T, typename U, bool isSetMask = true>
__aicore__ inline void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode,
                            const uint64_t mask[], const twin::Wide<uint8_t> repeatTime,
                            const UnaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  const auto [to, from] = twin::api::unary_operands("Cast", dst, src, repeatParams);
  twin::api::cast_elements<T, U>(twin::api::masked_shape("Cast", mask, repeatTime, twin::api::wider<T, U>()),
                                 to, from, roundMode);
}

template <typename T, typename U, bool isSetMask = true>
__aicore__ inline void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode,
                            const uint64_t mask, const twin::Wide<uint8_t> repeatTime,
                            const UnaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  const auto [to, from] = twin::api::unary_operands("Cast", dst, src, repeatParams);
  twin::api::cast_elements<T, U>(twin::api::masked_shape("Cast", mask, repeatTime, twin::api::wider<T, U>()),
                                 to, from, roundMode);
}

template <typename T, typename U>
__aicore__ inline void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode,
                            const uint32_t count) {
  twin::api::cast_elements<T, U>(twin::api::flat_shape("Cast", count, twin::api::wider<T, U>()),
                                 twin::api::dense(twin::api::TensorView::of(dst, "dst"), sizeof(T)),
                                 twin::api::dense(twin::api::TensorView::of(src, "src"), sizeof(U)),
                                 roundMode);
}

}  // namespace AscendC
