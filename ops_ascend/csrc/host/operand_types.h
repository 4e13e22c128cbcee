// operand_types.h -- from the dtypes of a tiling to the types that the SSD kernels are instantiated for; host
// code of the NPU and of the twin.
#ifndef VMAMBA2_OPERAND_TYPES_H
#define VMAMBA2_OPERAND_TYPES_H

#include "kernel_operator.h"
#include "ssd_forward_tiling.h"

namespace vmamba2 {

template <typename T, typename Op>
struct OperandTypes {
  using Tensor = T;    // of x, B, C, z and y
  using Operand = Op;  // of the products' operands
};

// Calls launch with the OperandTypes of a tiling.
template <typename Launch>
void WithOperandTypes(const SsdForwardTiling& tiling, Launch launch) {
  const DType type = static_cast<DType>(tiling.dtype);
  if (type == DType::kFloat16) {
    launch(OperandTypes<half, half>{});
  } else if (type == DType::kBFloat16) {
    launch(OperandTypes<bfloat16_t, bfloat16_t>{});
  } else if (tiling.operand_dtype == static_cast<int32_t>(DType::kFloat32)) {
    launch(OperandTypes<float, float>{});
  } else {
    launch(OperandTypes<float, half>{});
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_OPERAND_TYPES_H
