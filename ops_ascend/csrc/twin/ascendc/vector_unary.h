// vector_unary.h -- Exp, Ln, Sqrt, Abs, Relu.
#pragma once

#include "twin/ascendc/vector_run.h"

namespace twin::api {

template <typename F>
Floats lanewise(Floats x, F f) {
  Floats y = {};
  for (uint64_t i = 0; i < kLanes; ++i) y[i] = f(x[i]);
  return y;
}

// flush: subnormal inputs and results count as zero, 3510's default.
template <bool flush>
struct ExpOp {
  static constexpr VectorOp kCost = VectorOp::kExp;
  Floats operator()(Floats x) const {
    const Floats y = lanewise(x, [](float v) { return std::exp(v); });
    return flush ? flush_subnormals(y) : y;
  }
};
template <bool flush>
struct LnOp {
  static constexpr VectorOp kCost = VectorOp::kExp;
  Floats operator()(Floats x) const {
    return lanewise(flush ? flush_subnormals(x) : x, [](float v) { return std::log(v); });
  }
};
template <bool flush>
struct SqrtOp {
  static constexpr VectorOp kCost = VectorOp::kExp;
  Floats operator()(Floats x) const {
    return lanewise(flush ? flush_subnormals(x) : x, [](float v) { return std::sqrt(v); });
  }
};
struct AbsOp {
  static constexpr VectorOp kCost = VectorOp::kScalar;
  Floats operator()(Floats x) const { return floats_of(words_of(x) & 0x7fffffffu); }
  template <typename V>
  V operator()(V x) const {
    return x < 0 ? static_cast<V>(-x) : x;
  }
};
struct ReluOp {
  static constexpr VectorOp kCost = VectorOp::kScalar;
  Floats operator()(Floats x) const { return x > Floats{} ? x : Floats{}; }
  template <typename V>
  V operator()(V x) const {
    return x > 0 ? x : V(0);
  }
};

template <typename T, typename F>
constexpr bool unary_type() {
  if constexpr (std::is_same_v<F, ReluOp>) return kIsOneOf<T, half, int32_t, float>;
  if constexpr (std::is_same_v<F, AbsOp> && kIs3510) return kIsOneOf<T, int16_t, half, int32_t, float>;
  return kIsOneOf<T, half, float>;
}

template <typename T, typename F>
void unary(const Shape& shape, const Strided& dst, const Strided& src, F f) {
  type_allowed<unary_type<T, F>()>(shape.instruction, type_name<T>());
  check_operands(shape, dst, {&src});
  if constexpr (unary_type<T, F>()) issue_unary<T>(shape, F::kCost, dst, src, f);
}

template <typename T, typename F>
void unary_count(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                 int32_t count, F f) {
  unary<T>(flat_shape(name, count, sizeof(T)), dense(TensorView::of(dst, "dst"), sizeof(T)),
           dense(TensorView::of(src, "src"), sizeof(T)), f);
}

// dst and src of the repeat form; the elements may differ in size.
template <typename T, typename U>
std::pair<Strided, Strided> unary_operands(const char* name, const AscendC::LocalTensor<T>& dst,
                                           const AscendC::LocalTensor<U>& src,
                                           const AscendC::UnaryRepeatParams& p) {
  return {strided(name, TensorView::of(dst, "dst"), sizeof(T), p.dstBlkStride, p.dstRepStride, "dstBlkStride",
                  "dstRepStride"),
          strided(name, TensorView::of(src, "src"), sizeof(U), p.srcBlkStride, p.srcRepStride, "srcBlkStride",
                  "srcRepStride")};
}

template <typename T, typename M, typename F>
void unary_repeat(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                  M mask, const Wide<uint8_t>& repeats, const AscendC::UnaryRepeatParams& params, F f) {
  const Shape shape = masked_shape(name, mask, repeats, sizeof(T));
  const auto [to, from] = unary_operands(name, dst, src, params);
  unary<T>(shape, to, from, f);
}

#if __NPU_ARCH__ == 3510
constexpr bool flushes(const AscendC::ExpConfig& c) {
  return c.algo != AscendC::ExpAlgo::PRECISION_1ULP_FTZ_FALSE;
}
constexpr bool flushes(const AscendC::LnConfig& c) {
  return c.algo != AscendC::LnAlgo::PRECISION_1ULP_FTZ_FALSE;
}
constexpr bool flushes(const AscendC::SqrtConfig& c) {
  return c.algo != AscendC::SqrtAlgo::PRECISION_0ULP_FTZ_FALSE &&
         c.algo != AscendC::SqrtAlgo::PRECISION_1ULP_FTZ_FALSE;
}
#endif

}  // namespace twin::api

namespace AscendC {

// The three public forms of a unary instruction. PARAMS and COUNT_PARAMS are the template parameters after
// the element type.
#define TWIN_UNARY(NAME, OP, PARAMS, COUNT_PARAMS)                                                           \
  template <typename T PARAMS>                                                                               \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[],         \
                              const twin::Wide<uint8_t> repeatTime, const UnaryRepeatParams& repeatParams) { \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                          \
    twin::api::unary_repeat<T>(#NAME, dst, src, static_cast<const uint64_t*>(mask), repeatTime,              \
                               repeatParams, OP);                                                            \
  }                                                                                                          \
  template <typename T PARAMS>                                                                               \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask,           \
                              const twin::Wide<uint8_t> repeatTime, const UnaryRepeatParams& repeatParams) { \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                          \
    twin::api::unary_repeat<T>(#NAME, dst, src, mask, repeatTime, repeatParams, OP);                         \
  }                                                                                                          \
  template <typename T COUNT_PARAMS>                                                                         \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count) {  \
    twin::api::unary_count<T>(#NAME, dst, src, count, OP);                                                   \
  }
#define TWIN_MASK , bool isSetMask = true
#define TWIN_CONFIG(TYPE, DEFAULT) , bool isSetMask = true, const TYPE &config = DEFAULT
#define TWIN_COUNT_CONFIG(TYPE, DEFAULT) , const TYPE& config = DEFAULT
#define TWIN_NOTHING

TWIN_UNARY(Abs, twin::api::AbsOp{}, TWIN_MASK, TWIN_NOTHING)
TWIN_UNARY(Relu, twin::api::ReluOp{}, TWIN_MASK, TWIN_NOTHING)
#if __NPU_ARCH__ == 3510
TWIN_UNARY(Exp, twin::api::ExpOp<twin::api::flushes(config)>{}, TWIN_CONFIG(ExpConfig, DEFAULT_EXP_CONFIG),
           TWIN_COUNT_CONFIG(ExpConfig, DEFAULT_EXP_CONFIG))
TWIN_UNARY(Ln, twin::api::LnOp<twin::api::flushes(config)>{}, TWIN_CONFIG(LnConfig, DEFAULT_LN_CONFIG),
           TWIN_COUNT_CONFIG(LnConfig, DEFAULT_LN_CONFIG))
TWIN_UNARY(Sqrt, twin::api::SqrtOp<twin::api::flushes(config)>{},
           TWIN_CONFIG(SqrtConfig, DEFAULT_SQRT_CONFIG), TWIN_COUNT_CONFIG(SqrtConfig, DEFAULT_SQRT_CONFIG))
#else
TWIN_UNARY(Exp, twin::api::ExpOp<false>{}, TWIN_MASK, TWIN_NOTHING)
TWIN_UNARY(Ln, twin::api::LnOp<false>{}, TWIN_MASK, TWIN_NOTHING)
TWIN_UNARY(Sqrt, twin::api::SqrtOp<false>{}, TWIN_MASK, TWIN_NOTHING)
#endif

#undef TWIN_UNARY
#undef TWIN_MASK
#undef TWIN_CONFIG
#undef TWIN_COUNT_CONFIG
#undef TWIN_NOTHING

}  // namespace AscendC
