// ssd_forward.h -- the Mamba-2 SSD forward (arXiv:2405.21060) in one launch: one cube core and two vector
// cores per block.
//
//   h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T        y_t = (h_t C_t + D x_t) * silu(z_t)
//
// Same maths in PyTorch: ops_ascend/chunk_scan.py. With several grid orders y is their mean (ssd_cross_scan).
//   in     x, z (batch, seqlen, nheads, headdim) and B, C (batch, seqlen, ngroups, dstate) in T,
//          dt (batch, seqlen, nheads) in float32 or T; any strides of batch, token and head
//          A, dt_bias (nheads), D (nheads[, headdim]), initial_states, resets (batch, seqlen) in float32
//   out    y in T; final_states and checkpoints in float32
//   T, Op  float32 tensors with float32 operands (accurate) or float16 ones; 16-bit tensors with their own
#ifndef VMAMBA2_SSD_FORWARD_H
#define VMAMBA2_SSD_FORWARD_H

#include "ssd_forward_cube.h"
#include "ssd_forward_vector.h"

namespace vmamba2 {

template <typename T, typename Op>
__aicore__ inline void SsdForward(const SsdForwardAddresses& gm, const SsdForwardTiling& tiling) {
  AscendC::InitSocState();
  if ASCEND_IS_AIC {
    SsdForwardCube<T, Op> cube;
    cube.Init(&tiling, gm);
    cube.Process();
  }
  if ASCEND_IS_AIV {
    SsdForwardVector<T, Op> vector;
    vector.Init(&tiling, gm);
    vector.Process();
  }
  AscendC::PipeBarrier<PIPE_ALL>();
}

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_H
