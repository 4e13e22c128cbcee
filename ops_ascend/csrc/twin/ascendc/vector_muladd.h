// vector_muladd.h -- MulAddDst: dst += src0 * src1.
#pragma once

#include "twin/ascendc/vector_run.h"

namespace twin::api {

template <typename T, typename U>
constexpr bool kMulAddTypes = (std::is_same_v<T, U> && kIsOneOf<T, half, float>) ||
                              (std::is_same_v<T, float> && std::is_same_v<U, half>);

template <typename T, typename U>
void mul_add_elements(T* out, const U* a, const U* b, uint64_t n, NanWatch& nan) {
  for (uint64_t i = 0; i < n; i += kLanes) {
    const uint64_t lanes = std::min(kLanes, n - i);
    const bool full = lanes == kLanes;
    const Floats x = full ? load_lanes(a + i) : load_some(a + i, lanes);
    const Floats y = full ? load_lanes(b + i) : load_some(b + i, lanes);
    const Floats z = full ? load_lanes(out + i) : load_some(out + i, lanes);
    const Floats sum = z + x * y;
    nan.see(sum, is_finite(x) & is_finite(y) & is_finite(z));
    full ? store_lanes(out + i, sum) : store_some(out + i, sum, lanes);
  }
}

inline VectorOp mul_add_cost(const Shape& shape, std::initializer_list<const Strided*> operands) {
  const bool dense =
      std::all_of(operands.begin(), operands.end(), [&](const Strided* o) { return is_dense(shape, *o); });
  return dense ? VectorOp::kMulAdd : VectorOp::kMulAddStrided;
}

template <typename T, typename U>
void mul_add(const Shape& shape, const Strided& dst, const Strided& src0, const Strided& src1) {
  type_allowed<kMulAddTypes<T, U>>(shape.instruction, type_name<U>());
  check_operands(shape, dst, {&src0, &src1});
  if constexpr (kMulAddTypes<T, U>) {
    const Cost cost = vector_cost(mul_add_cost(shape, {&dst, &src0, &src1}), shape.repeats);
    current().issue(Pipe::kV, shape.instruction, cost, [=](Access& access) {
      const uint8_t* left = touch(access, shape, src0, Touching::kRead);
      const uint8_t* right = touch(access, shape, src1, Touching::kRead);
      uint8_t* to = touch(access, shape, dst, Touching::kUpdate);
      NanWatch nan;
      for_elements(shape, {dst, src0, src1}, [&](const uint64_t (&at)[3], uint64_t n) {
        mul_add_elements(reinterpret_cast<T*>(to + at[0]), reinterpret_cast<const U*>(left + at[1]),
                         reinterpret_cast<const U*>(right + at[2]), n, nan);
      });
      access.check_nan(true, nan.any(), dst.at.name);
    });
  }
}

template <typename T, typename U, typename M>
void mul_add_repeat(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& src0,
                    const AscendC::LocalTensor<U>& src1, M mask, const Wide<uint8_t>& repeats,
                    const AscendC::BinaryRepeatParams& params) {
  const Shape shape = masked_shape("MulAddDst", mask, repeats, sizeof(T));
  const auto [to, left, right] = binary_operands("MulAddDst", dst, src0, src1, params);
  mul_add<T, U>(shape, to, left, right);
}

}  // namespace twin::api

namespace AscendC {

template <typename T, typename U, bool isSetMask = true>
__aicore__ inline void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0,
                                 const LocalTensor<U>& src1, const uint64_t mask[],
                                 const twin::Wide<uint8_t> repeatTime,
                                 const BinaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::mul_add_repeat(dst, src0, src1, mask, repeatTime, repeatParams);
}

template <typename T, typename U, bool isSetMask = true>
__aicore__ inline void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0,
                                 const LocalTensor<U>& src1, uint64_t mask,
                                 const twin::Wide<uint8_t> repeatTime,
                                 const BinaryRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::mul_add_repeat(dst, src0, src1, mask, repeatTime, repeatParams);
}

template <typename T, typename U>
__aicore__ inline void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0,
                                 const LocalTensor<U>& src1, const int32_t& count) {
  twin::api::mul_add<T, U>(twin::api::flat_shape("MulAddDst", count, sizeof(T)),
                           twin::api::dense(twin::api::TensorView::of(dst, "dst"), sizeof(T)),
                           twin::api::dense(twin::api::TensorView::of(src0, "src0"), sizeof(U)),
                           twin::api::dense(twin::api::TensorView::of(src1, "src1"), sizeof(U)));
}

}  // namespace AscendC
