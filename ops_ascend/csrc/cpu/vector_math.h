// vector_math.h -- exp, softplus and sigmoid of vectors, to an ulp or two of Real.
//
// NaN goes in and comes out; exp is 0 and inf where it must be. While denormals are flushed, which threads.h
// arranges, results below the smallest normal number are 0; without AVX-512 already those below 1.42 times
// that. Polynomials are least-squares fits of the relative error on Chebyshev nodes: 2e-9 (log: 6e-9) for
// float, 4e-18 for double, before rounding. They are exactly 1 at 0, so that the decays of small steps, which
// a scan multiplies hundreds of times, err by a part of the step and not by a part of 1.
#ifndef VMAMBA2_CPU_VECTOR_MATH_H
#define VMAMBA2_CPU_VECTOR_MATH_H

#include "vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vmamba2 {

template <class Real>
struct MathOf;

template <>
struct MathOf<float> {
  // 1.5 * 2^23 + 126. Adding it rounds to an integer i, and leaves i + 126, the exponent of 2^(i - 1), in the
  // lowest bits.
  static constexpr float kMagic = 12583038.0f;
  static constexpr int32_t kMantissaBits = 23;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  // Beyond: 0 and inf. They round to i = -126, whose exponent stands for 0, and 129, whose stands for inf.
  static constexpr float kExpMin = -87.4f, kExpMax = 89.5f;
  static constexpr float kExp2Min = -126.0f, kExp2Max = 129.0f;
  static constexpr float kExp[] = {1.0f,          1.00000004f,    0.499999954f,  0.166664209f,
                                   0.0416677243f, 0.00837476397f, 0.00138592911f};
  static constexpr float kExp2[] = {1.0f,           0.693147206f,   0.240226485f,   0.0555032904f,
                                    0.00961837325f, 0.00133998483f, 0.000153707048f};
  // log(1 + e) / e around e = 1/2.
  static constexpr float kLog1p[] = {0.81093022f,    -0.2885271f,    0.132609018f,  -0.0676882767f,
                                     0.0366351891f,  -0.0205619211f, 0.0115779751f, -0.00679477569f,
                                     0.00524968898f, -0.00316399936f};
};

template <>
struct MathOf<double> {
  static constexpr double kMagic = 6755399441056766.0;  // 1.5 * 2^52 + 1022
  static constexpr int64_t kMantissaBits = 52;
  static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kExpMin = -708.5, kExpMax = 710.5;
  static constexpr double kExp2Min = -1022.0, kExp2Max = 1025.0;
  static constexpr double kExp[] = {1.0,
                                    1.0,
                                    0.50000000000000122,
                                    0.16666666666666055,
                                    0.041666666666516326,
                                    0.0083333333336125682,
                                    0.0013888888946682336,
                                    0.00019841269330515523,
                                    2.4801490339608809e-05,
                                    2.7557707967143172e-06,
                                    2.7631128795510278e-07,
                                    2.4968368146195412e-08};
  static constexpr double kExp2[] = {1.0,
                                     0.69314718055994529,
                                     0.24022650695910133,
                                     0.05550410866481955,
                                     0.0096181291075938084,
                                     0.0013333558146872188,
                                     0.00015403530457440664,
                                     1.5252733414851971e-05,
                                     1.3215435138161314e-06,
                                     1.0178228039634243e-07,
                                     7.0738055832979953e-09,
                                     4.4309220488056511e-10};
  static constexpr int kLogTerms = 11;
};

// A chain of multiply-adds: the vectors that a caller has in flight hide its latency.
template <class Real, int kTerms>
inline Vector<Real> Polynomial(const Real (&coefficients)[kTerms], Vector<Real> x, Real times = 1) {
  Vector<Real> value = Splat<Real>(coefficients[kTerms - 1] * times);
#pragma GCC unroll 16
  for (int term = kTerms - 2; term >= 0; --term) value = value * x + coefficients[term] * times;
  return value;
}

// a > b ? a : b and a < b ? a : b. Comparisons with NaN are false: a b that is NaN stays. (Compilers make two
// instructions of the plain form, or four.)
#if defined(__x86_64__) && VM_VECTOR_BYTES == 64
inline Vector<float> Larger(Vector<float> a, Vector<float> b) { return _mm512_maskz_max_ps(0xffff, a, b); }
inline Vector<float> Smaller(Vector<float> a, Vector<float> b) { return _mm512_maskz_min_ps(0xffff, a, b); }
inline Vector<double> Larger(Vector<double> a, Vector<double> b) { return _mm512_maskz_max_pd(0xff, a, b); }
inline Vector<double> Smaller(Vector<double> a, Vector<double> b) { return _mm512_maskz_min_pd(0xff, a, b); }
#elif defined(__x86_64__) && VM_VECTOR_BYTES == 32
inline Vector<float> Larger(Vector<float> a, Vector<float> b) { return _mm256_max_ps(a, b); }
inline Vector<float> Smaller(Vector<float> a, Vector<float> b) { return _mm256_min_ps(a, b); }
inline Vector<double> Larger(Vector<double> a, Vector<double> b) { return _mm256_max_pd(a, b); }
inline Vector<double> Smaller(Vector<double> a, Vector<double> b) { return _mm256_min_pd(a, b); }
#elif defined(__x86_64__)
inline Vector<float> Larger(Vector<float> a, Vector<float> b) { return _mm_max_ps(a, b); }
inline Vector<float> Smaller(Vector<float> a, Vector<float> b) { return _mm_min_ps(a, b); }
inline Vector<double> Larger(Vector<double> a, Vector<double> b) { return _mm_max_pd(a, b); }
inline Vector<double> Smaller(Vector<double> a, Vector<double> b) { return _mm_min_pd(a, b); }
#else
template <class V>
inline V Larger(V a, V b) {
  return a > b ? a : b;
}
template <class V>
inline V Smaller(V a, V b) {
  return a < b ? a : b;
}
#endif

template <class Real>
inline Vector<Real> Between(Vector<Real> x, Real low, Real high) {
  return Smaller(Splat<Real>(high), Larger(Splat<Real>(low), x));
}

// 2^(i - 1) of i + kMagic.
template <class Real>
inline Vector<Real> HalfPower(Vector<Real> whole_and_magic) {
  return (Vector<Real>)((Integers<Real>)whole_and_magic << MathOf<Real>::kMantissaBits);
}

#if VM_VECTOR_BYTES == 64 && defined(__AVX512DQ__)

// x minus the nearest integer; 0 where x is infinite.
inline Vector<float> Fraction(Vector<float> x) { return _mm512_reduce_ps(x, _MM_FROUND_NO_EXC); }
inline Vector<double> Fraction(Vector<double> x) { return _mm512_reduce_pd(x, _MM_FROUND_NO_EXC); }

// value * 2^power, whatever the power. (Masks of ones: GCC warns about what the plain forms leave undefined.)
inline Vector<float> TimesPower(Vector<float> value, Vector<float> power) {
  return _mm512_maskz_scalef_ps(0xffff, value, power);
}
inline Vector<double> TimesPower(Vector<double> value, Vector<double> power) {
  return _mm512_maskz_scalef_pd(0xff, value, power);
}

template <class Real>
inline Vector<Real> Exp(Vector<Real> x) {
  using M = MathOf<Real>;
  x = Between<Real>(x, Real(1.25) * M::kExpMin, Real(1.25) * M::kExpMax);
  const Vector<Real> power = (x * Real(1.4426950408889634) + M::kMagic) - M::kMagic;
  const Vector<Real> rest = (x - power * M::kLn2High) - power * M::kLn2Low;
  return TimesPower(Polynomial<Real>(M::kExp, rest), power);
}

// 2^x.
template <class Real>
inline Vector<Real> Exp2(Vector<Real> x) {
  const Vector<Real> rest = Fraction(x);
  return TimesPower(Polynomial<Real>(MathOf<Real>::kExp2, rest), x - rest);
}

#else

template <class Real>
inline Vector<Real> Exp(Vector<Real> x) {
  using M = MathOf<Real>;
  x = Between<Real>(x, M::kExpMin, M::kExpMax);
  const Vector<Real> power = x * Real(1.4426950408889634) + M::kMagic;
  const Vector<Real> whole = power - M::kMagic;
  const Vector<Real> rest = (x - whole * M::kLn2High) - whole * M::kLn2Low;
  return Polynomial<Real>(M::kExp, rest, Real(2)) * HalfPower<Real>(power);
}

// 2^x.
template <class Real>
inline Vector<Real> Exp2(Vector<Real> x) {
  using M = MathOf<Real>;
  x = Between<Real>(x, M::kExp2Min, M::kExp2Max);
  const Vector<Real> power = x + M::kMagic;
  const Vector<Real> rest = x - (power - M::kMagic);
  return Polynomial<Real>(M::kExp2, rest, Real(2)) * HalfPower<Real>(power);
}

#endif

// log(1 + e) for 0 <= e <= 1, relative to the result: 0 gives 0.
inline Vector<float> Log1p(Vector<float> e) { return e * Polynomial<float>(MathOf<float>::kLog1p, e - 0.5f); }

inline Vector<double> Log1p(Vector<double> e) {
  using M = MathOf<double>;
  const Vector<double> y = 1.0 + e;
  const Vector<double> lost = e - (y - 1.0);
  // y = m or 2 m with m in [sqrt(1/2), sqrt(2)).
  const auto twice = y > 1.4142135623730951;
  const Vector<double> m = twice ? 0.5 * y : y;
  const Vector<double> s = (m - 1.0) / (m + 1.0), square = s * s;
  constexpr int kTerms = 11;
  Vector<double> series = Splat(2.0 / (2 * kTerms - 1));
  for (int term = kTerms - 2; term >= 0; --term) series = series * square + 2.0 / (2 * term + 1);
  const Vector<double> low = s * series + lost / y;
  return twice ? M::kLn2High + (M::kLn2Low + low) : low;
}

// exp(-|x|).
template <class Real>
inline Vector<Real> ExpOfMinusMagnitude(Vector<Real> x) {
  return Exp<Real>((Vector<Real>)((Integers<Real>)x | (Integers<Real>)Splat<Real>(-Real(0))));
}

// As in step.py: the identity above 20, its slope there 1. In float that is what rounding gives.
template <class Real>
inline Vector<Real> SoftplusFrom(Vector<Real> x, Vector<Real> exp_of_minus_magnitude) {
  const Vector<Real> value = Larger(Vector<Real>{}, x) + Log1p(exp_of_minus_magnitude);
  return sizeof(Real) > 4 ? (x > Real(20) ? x : value) : value;
}

template <class Real>
inline Vector<Real> SoftplusSlopeFrom(Vector<Real> x, Vector<Real> exp_of_minus_magnitude) {
  const Vector<Real> above = Real(1) / (Real(1) + exp_of_minus_magnitude);
  const Vector<Real> slope = x < Real(0) ? above * exp_of_minus_magnitude : above;
  return sizeof(Real) > 4 ? (x > Real(20) ? Splat<Real>(1) : slope) : slope;
}

template <class Real>
inline Vector<Real> Softplus(Vector<Real> x) {
  return SoftplusFrom<Real>(x, ExpOfMinusMagnitude<Real>(x));
}

// The derivative of Softplus.
template <class Real>
inline Vector<Real> SoftplusSlope(Vector<Real> x) {
  return SoftplusSlopeFrom<Real>(x, ExpOfMinusMagnitude<Real>(x));
}

template <class Real>
inline Vector<Real> Sigmoid(Vector<Real> x) {
  return Real(1) / (Real(1) + Exp<Real>(-x));
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_VECTOR_MATH_H
