// vector_math.h -- what steps and gates are made of, on dense float32 vectors.
//
//   softplus(x) = max(x, 0) + 2 atanh(w / (2 + w)),  w = exp(-|x|): ln(1 + w) would lose small steps. Its
//                 relative error is below 4e-7. A NaN in x comes through w.
//   sigmoid(x)  = 1 / (1 + exp(-x)), 0 where exp overflows
#ifndef VMAMBA2_VECTOR_MATH_H
#define VMAMBA2_VECTOR_MATH_H

#include "vector_tiles.h"

namespace vmamba2 {

constexpr int32_t kSoftplusScratch = 3;  // vectors of the length of x

// x <- softplus(x); `scratch` holds kSoftplusScratch vectors of `count`.
__aicore__ inline void Softplus(const AscendC::LocalTensor<float>& x,
                                const AscendC::LocalTensor<float>& scratch, int32_t count) {
  const AscendC::LocalTensor<float> ratio = scratch, square = scratch[count], sum = scratch[2 * count];
  AscendC::Abs(ratio, x, count);
  Settle();
  AscendC::Muls(ratio, ratio, -1.0f, count);
  Settle();
  AscendC::Exp(ratio, ratio, count);
  Settle();
  AscendC::Adds(square, ratio, 2.0f, count);
  Settle();
  AscendC::Div(ratio, ratio, square, count);
  Settle();
  AscendC::Mul(square, ratio, ratio, count);
  Settle();
  // atanh(r) / r in r^2, minimax for r <= 1/3: relative error 4e-9.
  constexpr int32_t kTerms = 5;
  const float terms[kTerms] = {0.14089164f, 0.13980296f, 0.20012456f, 0.33333158f, 1.0f};
  AscendC::Muls(sum, square, terms[0], count);
  AscendC::Maxs(x, x, 0.0f, count);
  Settle();
  for (int32_t i = 1; i < kTerms; ++i) {
    AscendC::Adds(sum, sum, terms[i], count);
    Settle();
    AscendC::Mul(sum, sum, i + 1 < kTerms ? square : ratio, count);
    Settle();
  }
  AscendC::Axpy(x, sum, 2.0f, count);
  Settle();
}

// dst <- 1 + exp(-x), the divisor that makes a sigmoid.
__aicore__ inline void SigmoidDivisor(const AscendC::LocalTensor<float>& dst,
                                      const AscendC::LocalTensor<float>& x, int32_t count) {
  AscendC::Muls(dst, x, -1.0f, count);
  Settle();
  AscendC::Exp(dst, dst, count);
  Settle();
  AscendC::Adds(dst, dst, 1.0f, count);
  Settle();
}

// dy <- dy silu(z), z <- dy silu'(z) = dy (s + z s - z s s) with s = sigmoid(z); three vectors of scratch.
__aicore__ inline void GateGradients(const AscendC::LocalTensor<float>& dy,
                                     const AscendC::LocalTensor<float>& z,
                                     const AscendC::LocalTensor<float>& scratch, int32_t count) {
  const AscendC::LocalTensor<float> divisor = scratch, silu = scratch[count], sigmoid = scratch[2 * count];
  SigmoidDivisor(divisor, z, count);
  AscendC::Duplicate(sigmoid, 1.0f, count);
  AscendC::Div(silu, z, divisor, count);
  Settle();
  AscendC::Div(sigmoid, sigmoid, divisor, count);
  Settle();
  AscendC::Mul(z, silu, sigmoid, count);
  Settle();
  AscendC::Add(sigmoid, silu, sigmoid, count);
  Settle();
  AscendC::Sub(z, sigmoid, z, count);
  Settle();
  AscendC::Mul(z, z, dy, count);
  Settle();
  AscendC::Mul(dy, dy, silu, count);
  Settle();
}

}  // namespace vmamba2

#endif  // VMAMBA2_VECTOR_MATH_H
