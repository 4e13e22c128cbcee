// ssd_forward_plan.h -- from a call and a chip to the tiling of the SSD forward: a pure function, shared by
// NPU, twin and tests.
#ifndef VMAMBA2_SSD_FORWARD_PLAN_H
#define VMAMBA2_SSD_FORWARD_PLAN_H

#include <string>

#include "ssd_forward_tiling.h"

namespace vmamba2 {

// What the kernels may use of a chip.
struct ChipBudget {
  int32_t arch;  // 2201 or 3510
  int32_t cube_cores;
  uint32_t ub_bytes, l1_bytes, l0c_bytes;
};

// The budget of a chip by architecture; throws std::invalid_argument for one that is not known.
ChipBudget BudgetOf(int32_t arch);

// A call, as the host sees it. Plain C so that ctypes can fill it: 64-bit integers, then doubles.
struct SsdForwardCall {
  int64_t batch, seqlen, nheads, headdim, ngroups, dstate;
  int64_t dtype, dt_dtype;  // DType of x, B, C, z and y; of dt
  int64_t half_operands;    // float32 tensors: operands of the matrix products in float16
  int64_t skip;             // Skip
  int64_t has_z, has_bias, has_initial, has_resets, softplus;
  int64_t directions, height, width;
  int64_t checkpoint_every;
  int64_t x_strides[3], dt_strides[3], b_strides[3], c_strides[3],
      z_strides[3];  // batch, token, head or group
  double dt_low, dt_high;
};

// Sizes and options of a call, nothing planned yet. Throws std::invalid_argument, one sentence, for a call that
// the kernels do not take.
SsdForwardTiling TakeSsdCall(const SsdForwardCall& call);

// Throws as TakeSsdCall does.
SsdForwardTiling PlanSsdForward(const SsdForwardCall& call, const ChipBudget& chip);

// The launch that goes before the planned one when it has several segments (same workspace).
SsdForwardTiling StatesOnly(const SsdForwardTiling& tiling);

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_PLAN_H
