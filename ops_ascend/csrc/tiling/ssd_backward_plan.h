// ssd_backward_plan.h -- from a call and a chip to the tiling of the SSD backward: a pure function, shared by
// NPU, twin and tests.
#ifndef VMAMBA2_SSD_BACKWARD_PLAN_H
#define VMAMBA2_SSD_BACKWARD_PLAN_H

#include "ssd_backward_tiling.h"
#include "ssd_forward_plan.h"

namespace vmamba2 {

// A call, as the host sees it; plain C like SsdForwardCall. `forward` describes the forward that is
// differentiated, with one direction and checkpoint_every = kStatePair.
struct SsdBackwardCall {
  SsdForwardCall forward;
  int64_t has_dy, has_dfinal;
  int64_t dy_strides[3];  // batch, token, head
};

// Throws std::invalid_argument, one sentence, for a call that the kernel does not take.
SsdBackwardTiling PlanSsdBackward(const SsdBackwardCall& call, const ChipBudget& chip);

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_PLAN_H
