// convert.h -- a register of elements at a time between memory and float, with the roundings of the chips.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "twin/ascendc/types.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace twin::api {

// GCC's vector types, one register of the machine that the library is compiled for.
#if defined(__AVX__)
constexpr uint64_t kLanes = 8;
#else
constexpr uint64_t kLanes = 4;
#endif
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));

inline Words words_of(Floats value) {
  Words words;
  std::memcpy(&words, &value, sizeof(words));
  return words;
}

inline Floats floats_of(Words words) {
  Floats value;
  std::memcpy(&value, &words, sizeof(value));
  return value;
}

// float -> upper 16 bits, to nearest even; NaN stays NaN.
inline Words bfloat_bits(Floats value) {
  const Words words = words_of(value);
  const Words rounded = (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
  const Words nan = (words >> 16) | 0x40u;
  const Ints is_nan = value != value;
  Words mask;
  std::memcpy(&mask, &is_nan, sizeof(mask));
  return (nan & mask) | (rounded & ~mask);
}

template <typename T>
Floats load_lanes(const T* from) {
  Floats value = {};
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(&value, from, sizeof(value));
  } else if constexpr (std::is_same_v<T, half>) {
#if defined(__F16C__)
    __m128i packed;
    std::memcpy(&packed, from, sizeof(packed));
    const __m256 wide = _mm256_cvtph_ps(packed);
    std::memcpy(&value, &wide, sizeof(value));
#else
    for (uint64_t i = 0; i < kLanes; ++i) value[i] = static_cast<float>(from[i]);
#endif
  } else {
    Words words = {};
    for (uint64_t i = 0; i < kLanes; ++i) words[i] = static_cast<uint32_t>(from[i].bits) << 16;
    value = floats_of(words);
  }
  return value;
}

template <typename T>
void store_lanes(T* to, Floats value) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(to, &value, sizeof(value));
  } else if constexpr (std::is_same_v<T, half>) {
#if defined(__F16C__)
    __m256 wide;
    std::memcpy(&wide, &value, sizeof(wide));
    const __m128i packed = _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to, &packed, sizeof(packed));
#else
    for (uint64_t i = 0; i < kLanes; ++i) to[i] = static_cast<half>(value[i]);
#endif
  } else {
    const Words words = bfloat_bits(value);
    for (uint64_t i = 0; i < kLanes; ++i) to[i].bits = static_cast<uint16_t>(words[i]);
  }
}

// The first n (at most a register) elements; the other lanes hold ones, which no instruction turns into NaN.
template <typename T>
Floats load_some(const T* from, uint64_t n) {
  T some[kLanes];
  for (uint64_t i = 0; i < kLanes; ++i) some[i] = i < n ? from[i] : T(1.0f);
  return load_lanes(some);
}

template <typename T>
void store_some(T* to, Floats value, uint64_t n) {
  T some[kLanes];
  store_lanes(some, value);
  std::memcpy(to, some, n * sizeof(T));
}

template <typename T>
float to_float(T value) {
  return static_cast<float>(value);
}

// Widens n elements into floats.
template <typename T>
void widen(float* to, const T* from, uint64_t n) {
  uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_lanes(to + i, load_lanes(from + i));
  if (i < n) store_some(to + i, load_some(from + i, n - i), n - i);
}

// to += from, element by element in type T: the memory's own adder.
template <typename T>
void add_elements(void* to, const void* from, uint64_t n) {
  T* sum = static_cast<T*>(to);
  const T* more = static_cast<const T*>(from);
  for (uint64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) {
      sum[i] = static_cast<T>(sum[i] + more[i]);
    } else {
      sum[i] = T(to_float(sum[i]) + to_float(more[i]));
    }
  }
}

// Watches for NaN that appears although every input lane was finite.
struct NanWatch {
  Ints found = {};
  void see(Floats result, Ints inputs_finite) { found |= (result != result) & inputs_finite; }
  bool any() const {
    for (uint64_t i = 0; i < kLanes; ++i) {
      if (found[i] != 0) return true;
    }
    return false;
  }
};

inline Ints is_finite(Floats value) { return (value - value) == Floats{}; }

// Subnormal lanes become zero, keeping their sign: 3510's default.
inline Floats flush_subnormals(Floats value) {
  const Words words = words_of(value);
  const Ints tiny = ((words & 0x7f800000u) == 0u);
  Words mask;
  std::memcpy(&mask, &tiny, sizeof(mask));
  return floats_of(words & (~mask | 0x80000000u));
}

}  // namespace twin::api
