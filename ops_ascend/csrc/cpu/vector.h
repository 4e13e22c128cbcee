// vector.h -- vectors of one instruction set, and rows of the caller's tensors as rows of Real.
//
// GCC's and Clang's vector types do the arithmetic; VM_VECTOR_BYTES is the width that the library is compiled for.
#ifndef VMAMBA2_CPU_VECTOR_H
#define VMAMBA2_CPU_VECTOR_H

#include <cstdint>
#include <cstring>
#include <utility>

#include "call.h"

#ifndef VM_VECTOR_BYTES
#define VM_VECTOR_BYTES 16
#endif

namespace vmamba2 {

template <class Real>
struct VectorOf;

template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(VM_VECTOR_BYTES)));
  typedef int32_t Integers __attribute__((vector_size(VM_VECTOR_BYTES)));
  using Integer = int32_t;
};

template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(VM_VECTOR_BYTES)));
  typedef int64_t Integers __attribute__((vector_size(VM_VECTOR_BYTES)));
  using Integer = int64_t;
};

template <class Real>
using Vector = typename VectorOf<Real>::Type;
template <class Real>
using Integers = typename VectorOf<Real>::Integers;

template <class Real>
constexpr int64_t kLanes = VM_VECTOR_BYTES / sizeof(Real);

constexpr int64_t RoundUp(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

// Elements of a row of `count`, padded to whole vectors.
template <class Real>
constexpr int64_t Padded(int64_t count) {
  return RoundUp(count, kLanes<Real>);
}

template <class Real>
inline Vector<Real> Load(const Real* from) {
  Vector<Real> value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class Real>
inline void Store(Real* to, Vector<Real> value) {
  std::memcpy(to, &value, sizeof(value));
}

// Subtracting a zero vector makes one broadcast of it; a loop over lanes becomes a broadcast for each.
template <class Real>
inline Vector<Real> Splat(Real value) {
  return value - Vector<Real>{};
}

template <class Real>
inline Real Sum(Vector<Real> value) {
  Real lanes[kLanes<Real>];
  Store(lanes, value);
  for (int64_t width = kLanes<Real> / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// ---- Elements of the caller's dtypes.

struct BFloat16 {
  uint16_t bits;
};

using Float16 = _Float16;

template <class Element>
inline float Widen(Element value) {
  return static_cast<float>(value);
}

inline float Widen(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

inline double Widen(double value) { return value; }

template <class Element, class Real>
struct Narrowed {
  static Element From(Real value) { return static_cast<Element>(value); }
};

template <class Real>
struct Narrowed<BFloat16, Real> {
  // To the nearest, ties to even; NaN stays NaN.
  static BFloat16 From(Real value) {
    const float wide = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &wide, sizeof(bits));
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return {static_cast<uint16_t>(wide == wide ? rounded : 0x7fc0u)};
  }
};

// Calls body with a null pointer of the element type of a floating tensor.
template <class Body>
inline void WithElement(int64_t dtype, Body body) {
  switch (dtype) {
    case kVmFloat32:
      return body(static_cast<float*>(nullptr));
    case kVmFloat64:
      return body(static_cast<double*>(nullptr));
    case kVmBFloat16:
      return body(static_cast<BFloat16*>(nullptr));
    default:
      return body(static_cast<Float16*>(nullptr));
  }
}

// out[i] = tensor[offset + i * stride], i < count.
template <class Real>
inline void LoadRow(const VmTensor& tensor, int64_t offset, int64_t count, int64_t stride, Real* out) {
  WithElement(tensor.dtype, [&](auto* type) {
    const auto* from = static_cast<decltype(type)>(tensor.data) + offset;
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Real>(Widen(from[i]));
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Real>(Widen(from[i * stride]));
    }
  });
}

// tensor[offset + i * stride] = in[i], i < count.
template <class Real>
inline void StoreRow(const Real* in, int64_t count, const VmTensor& tensor, int64_t offset, int64_t stride) {
  WithElement(tensor.dtype, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    auto* to = static_cast<Element*>(tensor.data) + offset;
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = Narrowed<Element, Real>::From(in[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i * stride] = Narrowed<Element, Real>::From(in[i]);
    }
  });
}

template <class Real>
inline Real LoadOne(const VmTensor& tensor, int64_t offset) {
  Real value;
  LoadRow(tensor, offset, 1, 1, &value);
  return value;
}

inline int64_t LoadInteger(const VmTensor& tensor, int64_t offset) {
  return tensor.dtype == kVmInt32 ? static_cast<const int32_t*>(tensor.data)[offset]
                                  : static_cast<const int64_t*>(tensor.data)[offset];
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_VECTOR_H
