// vector_scalar.h -- Adds, Muls, Maxs, Mins (tensor and scalar) and Axpy (dst += scalar * src).
#pragma once

#include "twin/ascendc/vector_binary.h"
#include "twin/ascendc/vector_unary.h"

namespace twin::api {

// A binary operation with a fixed right side, in the element's type.
template <typename T, typename F>
struct WithScalar {
  F f;
  T scalar;
  Floats operator()(Floats x) const { return f(x, Floats{} + to_float(scalar)); }
  T operator()(T x) const { return InLane<T, F>{f}(x, scalar); }
};

template <typename T>
constexpr bool kScalarArithmetic = kIs3510 ? kIsOneOf<T, int16_t, half, bfloat16_t, int32_t, float>
                                           : kIsOneOf<T, int16_t, half, int32_t, float>;

template <typename T, typename F>
void scalar_op(const Shape& shape, const Strided& dst, const Strided& src, T scalar, F f) {
  type_allowed<kScalarArithmetic<T>>(shape.instruction, type_name<T>());
  check_operands(shape, dst, {&src});
  if constexpr (kScalarArithmetic<T>)
    issue_unary<T>(shape, VectorOp::kScalar, dst, src, WithScalar<T, F>{f, scalar});
}

template <typename T, typename F>
void scalar_count(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                  T scalar, int32_t count, F f) {
  scalar_op<T>(flat_shape(name, count, sizeof(T)), dense(TensorView::of(dst, "dst"), sizeof(T)),
               dense(TensorView::of(src, "src"), sizeof(T)), scalar, f);
}

template <typename T, typename M, typename F>
void scalar_repeat(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                   T scalar, M mask, const Wide<uint8_t>& repeats, const AscendC::UnaryRepeatParams& params,
                   F f) {
  const Shape shape = masked_shape(name, mask, repeats, sizeof(T));
  const auto [to, from] = unary_operands(name, dst, src, params);
  scalar_op<T>(shape, to, from, scalar, f);
}

template <typename T, typename U>
constexpr bool kAxpyTypes =
    (std::is_same_v<T, U> && (kIsOneOf<T, half, float> || (kIs3510 && std::is_same_v<T, bfloat16_t>))) ||
    (std::is_same_v<T, float> && std::is_same_v<U, half>);

template <typename T, typename U>
void axpy(const Shape& shape, const Strided& dst, const Strided& src, U scalar) {
  type_allowed<kAxpyTypes<T, U>>(shape.instruction, type_name<U>());
  check_operands(shape, dst, {&src});
  if constexpr (kAxpyTypes<T, U>) {
    current().issue(Pipe::kV, shape.instruction, vector_cost(VectorOp::kAxpy, shape.repeats),
                    [=](Access& access) {
                      const uint8_t* from = touch(access, shape, src, Touching::kRead);
                      uint8_t* to = touch(access, shape, dst, Touching::kUpdate);
                      NanWatch nan;
                      const float factor = to_float(scalar);
                      for_elements(shape, {dst, src}, [&](const uint64_t (&at)[2], uint64_t n) {
                        auto* out = reinterpret_cast<T*>(to + at[0]);
                        const auto* in = reinterpret_cast<const U*>(from + at[1]);
                        for (uint64_t i = 0; i < n; i += kLanes) {
                          const uint64_t lanes = std::min(kLanes, n - i);
                          const Floats x = load_some(in + i, lanes), y = load_some(out + i, lanes);
                          const Floats sum = y + x * factor;
                          nan.see(sum, is_finite(x) & is_finite(y));
                          store_some(out + i, sum, lanes);
                        }
                      });
                      access.check_nan(std::isfinite(factor), nan.any(), dst.at.name);
                    });
  }
}

}  // namespace twin::api

namespace AscendC {

// The three public forms of an instruction with a scalar.
#define TWIN_SCALAR(NAME, OP)                                                                             \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, \
                              uint64_t mask[], const twin::Wide<uint8_t> repeatTime,                      \
                              const UnaryRepeatParams& repeatParams) {                                    \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::scalar_repeat<T>(#NAME, dst, src, scalarValue, static_cast<const uint64_t*>(mask),         \
                                repeatTime, repeatParams, OP{});                                          \
  }                                                                                                       \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, \
                              uint64_t mask, const twin::Wide<uint8_t> repeatTime,                        \
                              const UnaryRepeatParams& repeatParams) {                                    \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::scalar_repeat<T>(#NAME, dst, src, scalarValue, mask, repeatTime, repeatParams, OP{});      \
  }                                                                                                       \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, \
                              const int32_t& count) {                                                     \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::scalar_count<T>(#NAME, dst, src, scalarValue, count, OP{});                                \
  }

TWIN_SCALAR(Adds, twin::api::AddOp)
TWIN_SCALAR(Muls, twin::api::MulOp)
TWIN_SCALAR(Maxs, twin::api::MaxOp)
TWIN_SCALAR(Mins, twin::api::MinOp)

#undef TWIN_SCALAR

template <typename T, typename U, bool isSetMask = true>
__aicore__ inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue,
                            uint64_t mask, const twin::Wide<uint8_t> repeatTime,
                            const UnaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  const auto [to, from] = twin::api::unary_operands("Axpy", dst, src, repeatParams);
  twin::api::axpy<T, U>(twin::api::masked_shape("Axpy", mask, repeatTime, sizeof(T)), to, from, scalarValue);
}

template <typename T, typename U, bool isSetMask = true>
__aicore__ inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue,
                            uint64_t mask[], const twin::Wide<uint8_t> repeatTime,
                            const UnaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  const auto [to, from] = twin::api::unary_operands("Axpy", dst, src, repeatParams);
  twin::api::axpy<T, U>(
      twin::api::masked_shape("Axpy", static_cast<const uint64_t*>(mask), repeatTime, sizeof(T)), to, from,
      scalarValue);
}

template <typename T, typename U>
__aicore__ inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue,
                            const int32_t& count) {
  twin::api::axpy<T, U>(twin::api::flat_shape("Axpy", count, sizeof(T)),
                        twin::api::dense(twin::api::TensorView::of(dst, "dst"), sizeof(T)),
                        twin::api::dense(twin::api::TensorView::of(src, "src"), sizeof(U)), scalarValue);
}

}  // namespace AscendC
