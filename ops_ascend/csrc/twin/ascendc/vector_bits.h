// vector_bits.h -- And, Or, Not: exact masks on the bits of a register.
#pragma once

#include "twin/ascendc/vector_run.h"
#include "twin/ascendc/vector_unary.h"

namespace twin::api {

struct AndOp {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct OrOp {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct NotOp {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};

// 2201's count form lets 32-bit types pass and then works on half of them: refused like the other forms.
template <typename T>
constexpr bool kBitwise =
    kIs3510 ? kIsOneOf<T, int16_t, uint16_t, int32_t, uint32_t> : kIsOneOf<T, int16_t, uint16_t>;

template <typename T, typename F>
void bitwise(const Shape& shape, const Strided& dst, const Strided& src0, const Strided& src1, F f) {
  type_allowed<kBitwise<T>>(shape.instruction, type_name<T>());
  check_operands(shape, dst, {&src0, &src1});
  if constexpr (kBitwise<T>) issue_binary<T>(shape, VectorOp::kBits, dst, src0, src1, f);
}

template <typename T>
void bitwise_not(const Shape& shape, const Strided& dst, const Strided& src) {
  type_allowed<kBitwise<T>>(shape.instruction, type_name<T>());
  check_operands(shape, dst, {&src});
  if constexpr (kBitwise<T>) issue_unary<T>(shape, VectorOp::kNot, dst, src, NotOp{});
}

template <typename T, typename F>
void bitwise_count(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                   const AscendC::LocalTensor<T>& src1, int32_t count, F f) {
  const auto at = [](const AscendC::LocalTensor<T>& t, const char* n) {
    return dense(TensorView::of(t, n), sizeof(T));
  };
  bitwise<T>(flat_shape(name, count, sizeof(T)), at(dst, "dst"), at(src0, "src0"), at(src1, "src1"), f);
}

template <typename T, typename M, typename F>
void bitwise_repeat(const char* name, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0,
                    const AscendC::LocalTensor<T>& src1, M mask, const Wide<uint8_t>& repeats,
                    const AscendC::BinaryRepeatParams& params, F f) {
  const Shape shape = masked_shape(name, mask, repeats, sizeof(T));
  const auto [to, left, right] = binary_operands(name, dst, src0, src1, params);
  bitwise<T>(shape, to, left, right, f);
}

template <typename T, typename M>
void not_repeat(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, M mask,
                const Wide<uint8_t>& repeats, const AscendC::UnaryRepeatParams& params) {
  const Shape shape = masked_shape("Not", mask, repeats, sizeof(T));
  const auto [to, from] = unary_operands("Not", dst, src, params);
  bitwise_not<T>(shape, to, from);
}

}  // namespace twin::api

namespace AscendC {

// The three public forms of And and Or.
#define TWIN_BITWISE(NAME, OP)                                                                            \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(                                                                            \
      const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[], \
      const twin::Wide<uint8_t> repeatTime, const BinaryRepeatParams& repeatParams) {                     \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::bitwise_repeat<T>(#NAME, dst, src0, src1, static_cast<const uint64_t*>(mask), repeatTime,  \
                                 repeatParams, OP);                                                       \
  }                                                                                                       \
  template <typename T, bool isSetMask = true>                                                            \
  __aicore__ inline void NAME(                                                                            \
      const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,   \
      const twin::Wide<uint8_t> repeatTime, const BinaryRepeatParams& repeatParams) {                     \
    static_assert(isSetMask, "masks set beforehand are outside the twin's subset");                       \
    twin::api::bitwise_repeat<T>(#NAME, dst, src0, src1, mask, repeatTime, repeatParams, OP);             \
  }                                                                                                       \
  template <typename T>                                                                                   \
  __aicore__ inline void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0,                      \
                              const LocalTensor<T>& src1, const int32_t& count) {                         \
    twin::api::bitwise_count<T>(#NAME, dst, src0, src1, count, OP);                                       \
  }

TWIN_BITWISE(And, twin::api::AndOp{})
TWIN_BITWISE(Or, twin::api::OrOp{})

#undef TWIN_BITWISE

template <typename T, bool isSetMask = true>
__aicore__ inline void Not(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[],
                           const twin::Wide<uint8_t> repeatTime, const UnaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::not_repeat<T>(dst, src, static_cast<const uint64_t*>(mask), repeatTime, repeatParams);
}

template <typename T, bool isSetMask = true>
__aicore__ inline void Not(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask,
                           const twin::Wide<uint8_t> repeatTime, const UnaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::not_repeat<T>(dst, src, mask, repeatTime, repeatParams);
}

template <typename T>
__aicore__ inline void Not(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count) {
  twin::api::bitwise_not<T>(twin::api::flat_shape("Not", count, sizeof(T)),
                            twin::api::dense(twin::api::TensorView::of(dst, "dst"), sizeof(T)),
                            twin::api::dense(twin::api::TensorView::of(src, "src"), sizeof(T)));
}

}  // namespace AscendC
