// vector_binary.h -- Add, Sub, Mul, Div, Max, Min.
#pragma once

#include "twin/ascendc/vector_run.h"

namespace twin::api {

struct AddOp {
  static constexpr VectorOp kCost = VectorOp::kAdd;
  static constexpr bool kRunning = true;
  template <typename V>
  V operator()(V a, V b) const {
    return a + b;
  }
};
struct SubOp {
  static constexpr VectorOp kCost = VectorOp::kAdd;
  static constexpr bool kRunning = true;
  template <typename V>
  V operator()(V a, V b) const {
    return a - b;
  }
};
struct MulOp {
  static constexpr VectorOp kCost = VectorOp::kMul;
  static constexpr bool kRunning = true;
  template <typename V>
  V operator()(V a, V b) const {
    return a * b;
  }
};
struct MaxOp {
  static constexpr VectorOp kCost = VectorOp::kAdd;
  static constexpr bool kRunning = true;
  template <typename V>
  V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};
struct MinOp {
  static constexpr VectorOp kCost = VectorOp::kAdd;
  static constexpr bool kRunning = true;
  template <typename V>
  V operator()(V a, V b) const {
    return a < b ? a : b;
  }
};
template <bool flush>
struct DivOp {
  static constexpr VectorOp kCost = VectorOp::kDiv;
  static constexpr bool kRunning = false;
  Floats operator()(Floats a, Floats b) const {
    const Floats quotient = a / b;
    return flush ? flush_subnormals(quotient) : quotient;
  }
  template <typename V>
  V operator()(V a, V b) const {
    return b == 0 ? V(-1) : V(a / b);
  }
};

#if __NPU_ARCH__ == 3510
constexpr bool flushes(const AscendC::DivConfig& config) {
  return config.algo != AscendC::DivAlgo::PRECISION_0ULP_FTZ_FALSE &&
         config.algo != AscendC::DivAlgo::PRECISION_1ULP_FTZ_FALSE;
}
#endif

// Integers wrap in the lane's width.
template <typename T, typename F>
struct InLane {
  F f;
  T operator()(T a, T b) const { return static_cast<T>(f(static_cast<int64_t>(a), static_cast<int64_t>(b))); }
  template <typename V>
  V operator()(V a, V b) const {
    return f(a, b);
  }
};

template <typename T>
constexpr bool kArithmetic =
    kIs3510 ? kIsOneOf<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>
            : kIsOneOf<T, int16_t, half, int32_t, float>;
template <typename T>
constexpr bool kDivides =
    kIs3510 ? kIsOneOf<T, int16_t, uint16_t, half, int32_t, uint32_t, float> : kIsOneOf<T, half, float>;

template <typename T, typename F>
void binary(const Shape& shape, const Strided& dst, const Strided& src0, const Strided& src1, F f) {
  type_allowed<F::kRunning ? kArithmetic<T> : kDivides<T>>(shape.instruction, type_name<T>());
  const bool running = F::kRunning && kIsOneOf<T, half, int32_t, float>;
  check_operands(shape, dst, {&src0, &src1}, running ? &src1 : nullptr);
  if constexpr (kIsFloating<T>) {
    issue_binary<T>(shape, F::kCost, dst, src0, src1, f);
  } else {
    issue_binary<T>(shape, F::kCost, dst, src0, src1, InLane<T, F>{f});
  }
}

template <typename T, typename F>
void binary_count(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                  const AscendC::LocalTensor<T>& src1, int32_t count, F f) {
  const auto at = [](const AscendC::LocalTensor<T>& t, const char* n) {
    return dense(TensorView::of(t, n), sizeof(T));
  };
  binary<T>(flat_shape(name, count, sizeof(T)), at(dst, "dst"), at(src0, "src0"), at(src1, "src1"), f);
}

template <typename T, typename M, typename F>
void binary_repeat(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                   const AscendC::LocalTensor<T>& src1, M mask, const Wide<uint8_t>& repeats,
                   const AscendC::BinaryRepeatParams& p, F f) {
  const Shape shape = masked_shape(name, mask, repeats, sizeof(T));
  const auto [to, left, right] = binary_operands(name, dst, src0, src1, p);
  binary<T>(shape, to, left, right, f);
}

}  // namespace twin::api

namespace AscendC {

// The three public forms of a binary instruction.
#define TWIN_BINARY(NAME, OP)                                                                             \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(                                                                            \
      const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[], \
      const twin::Wide<uint8_t> repeatTime, const BinaryRepeatParams& repeatParams) {                     \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::binary_repeat<T>(#NAME, dst, src0, src1, static_cast<const uint64_t*>(mask), repeatTime,   \
                                repeatParams, OP);                                                        \
  }                                                                                                       \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(                                                                            \
      const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,   \
      const twin::Wide<uint8_t> repeatTime, const BinaryRepeatParams& repeatParams) {                     \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::binary_repeat<T>(#NAME, dst, src0, src1, mask, repeatTime, repeatParams, OP);              \
  }                                                                                                       \
  template <typename T>                                                                                   \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0,                      \
                              const LocalTensor<T>& src1, const int32_t& count) {                         \
    twin::api::binary_count<T>(#NAME, dst, src0, src1, count, OP);                                        \
  }

TWIN_BINARY(Add, twin::api::AddOp{})
TWIN_BINARY(Sub, twin::api::SubOp{})
TWIN_BINARY(Mul, twin::api::MulOp{})
TWIN_BINARY(Max, twin::api::MaxOp{})
TWIN_BINARY(Min, twin::api::MinOp{})

#if __NPU_ARCH__ == 3510
// 3510 adds a template parameter: how a quotient treats subnormals.
template <typename T, bool isSetMask = true, const DivConfig& config = DEFAULT_DIV_CONFIG>
__aicore__ inline void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                           uint64_t mask[], const twin::Wide<uint8_t> repeatTime,
                           const BinaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::binary_repeat<T>("Div", dst, src0, src1, static_cast<const uint64_t*>(mask), repeatTime,
                              repeatParams, twin::api::DivOp<twin::api::flushes(config)>{});
}
template <typename T, bool isSetMask = true, const DivConfig& config = DEFAULT_DIV_CONFIG>
__aicore__ inline void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                           uint64_t mask, const twin::Wide<uint8_t> repeatTime,
                           const BinaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::binary_repeat<T>("Div", dst, src0, src1, mask, repeatTime, repeatParams,
                              twin::api::DivOp<twin::api::flushes(config)>{});
}
template <typename T, const DivConfig& config = DEFAULT_DIV_CONFIG>
__aicore__ inline void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                           const int32_t& count) {
  twin::api::binary_count<T>("Div", dst, src0, src1, count, twin::api::DivOp<twin::api::flushes(config)>{});
}
#else
TWIN_BINARY(Div, twin::api::DivOp<false>{})
#endif

#undef TWIN_BINARY

}  // namespace AscendC
