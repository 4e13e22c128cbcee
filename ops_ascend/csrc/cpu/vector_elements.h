// vector_elements.h -- vectors of the caller's elements as vectors of Real, and back.
//
// Conversions of float16 are spelled out where the processor has them: compilers make one for each element.
#ifndef VMAMBA2_CPU_VECTOR_ELEMENTS_H
#define VMAMBA2_CPU_VECTOR_ELEMENTS_H

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <type_traits>

#include "vector.h"

namespace vmamba2 {

// A vector of kLanes<Real> elements of another type.
template <class Real, class Element>
struct RowOf {
  typedef Element Type __attribute__((vector_size(sizeof(Element) * kLanes<Real>)));
};

template <class Real, class Element>
using Row = typename RowOf<Real, Element>::Type;

template <class Real, class Element>
constexpr bool kConvertsHalves = std::is_same_v<Element, Float16> && std::is_same_v<Real, float>;

#if defined(__F16C__) && VM_VECTOR_BYTES == 64
inline Vector<float> LoadHalves(const void* from) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(from)));
}
inline void StoreHalves(void* to, Vector<float> values) {
  const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(static_cast<__m256i*>(to), halves);
}
#elif defined(__F16C__) && VM_VECTOR_BYTES == 32
inline Vector<float> LoadHalves(const void* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}
inline void StoreHalves(void* to, Vector<float> values) {
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}
#else
inline Vector<float> LoadHalves(const void* from) {
  float values[kLanes<float>];
  for (int64_t lane = 0; lane < kLanes<float>; ++lane) values[lane] = static_cast<const Float16*>(from)[lane];
  return Load(values);
}
inline void StoreHalves(void* to, Vector<float> values) {
  for (int64_t lane = 0; lane < kLanes<float>; ++lane) {
    static_cast<Float16*>(to)[lane] = static_cast<Float16>(values[lane]);
  }
}
#endif

// kLanes elements side by side, as Real.
template <class Real, class Element>
inline Vector<Real> LoadElements(const Element* from) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    Row<Real, uint16_t> halves;
    std::memcpy(&halves, from, sizeof(halves));
    const auto bits = __builtin_convertvector(halves, Row<Real, uint32_t>) << 16;
    return __builtin_convertvector((Row<Real, float>)bits, Vector<Real>);
  } else if constexpr (kConvertsHalves<Real, Element>) {
    return LoadHalves(from);
  } else if constexpr (std::is_same_v<Element, Float16>) {
    Real values[kLanes<Real>];
    for (int64_t lane = 0; lane < kLanes<Real>; ++lane) values[lane] = static_cast<Real>(Widen(from[lane]));
    return Load(values);
  } else {
    Row<Real, Element> values;
    std::memcpy(&values, from, sizeof(values));
    return __builtin_convertvector(values, Vector<Real>);
  }
}

// Rounds as Narrowed does.
template <class Real, class Element>
inline void StoreElements(Element* to, Vector<Real> values) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    const auto wide = __builtin_convertvector(values, Row<Real, float>);
    using Bits = Row<Real, uint32_t>;
    const Bits bits = (Bits)wide;
    const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Bits ordered = (Bits)(wide == wide);
    const auto halves =
        __builtin_convertvector((rounded & ordered) | (0x7fc0u & ~ordered), Row<Real, uint16_t>);
    std::memcpy(to, &halves, sizeof(halves));
  } else if constexpr (kConvertsHalves<Real, Element>) {
    StoreHalves(to, values);
  } else if constexpr (std::is_same_v<Element, Float16>) {
    for (int64_t lane = 0; lane < kLanes<Real>; ++lane) {
      to[lane] = Narrowed<Float16, Real>::From(values[lane]);
    }
  } else {
    const auto elements = __builtin_convertvector(values, Row<Real, Element>);
    std::memcpy(to, &elements, sizeof(elements));
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_VECTOR_ELEMENTS_H
