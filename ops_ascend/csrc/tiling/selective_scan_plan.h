// selective_scan_plan.h -- from a call and a chip to the tiling of the selective scan, forward and backward: a
// pure function, shared by NPU, twin and tests.
#ifndef VMAMBA2_SELECTIVE_SCAN_PLAN_H
#define VMAMBA2_SELECTIVE_SCAN_PLAN_H

#include "selective_scan_tiling.h"
#include "ssd_forward_plan.h"

namespace vmamba2 {

// A call, as the host sees it. Plain C so that ctypes can fill it: 64-bit integers.
struct SelectiveScanCall {
  int64_t batch, dim, seqlen, ngroups, dstate;
  int64_t dtype, delta_dtype;  // DType of u, B, C, z, dy; of delta
  int64_t has_d, has_z, has_bias, softplus;
  int64_t save;               // the forward saves states for a backward
  int64_t has_dy, has_dlast;  // backward only
  int64_t u_strides[2], delta_strides[2], z_strides[2], dy_strides[2];  // batch, channel
  int64_t b_strides[3], c_strides[3];                                   // batch, group, state
};

// Throws std::invalid_argument, one sentence, for a call that the kernels do not take.
SelectiveTiling PlanSelectiveScan(const SelectiveScanCall& call, const ChipBudget& chip);

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_SCAN_PLAN_H
