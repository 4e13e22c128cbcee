// selective_types.h -- from a tiling to the template argument of the selective scan kernels.
#ifndef VMAMBA2_SELECTIVE_TYPES_H
#define VMAMBA2_SELECTIVE_TYPES_H

#include "kernel_operator.h"
#include "selective_scan_tiling.h"

namespace vmamba2 {

template <typename T>
struct ElementType {
  using Type = T;
};

// Calls f with the ElementType of u.
template <typename F>
void WithElementType(const SelectiveTiling& tiling, F f) {
  const DType type = static_cast<DType>(tiling.dtype);
  if (type == DType::kFloat16) {
    f(ElementType<half>{});
  } else if (type == DType::kBFloat16) {
    f(ElementType<bfloat16_t>{});
  } else {
    f(ElementType<float>{});
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_TYPES_H
