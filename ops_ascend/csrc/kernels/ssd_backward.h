// ssd_backward.h -- the gradients of the Mamba-2 SSD forward (ssd_forward.h) in one launch: one cube core and two
// vector cores per block. Same maths in PyTorch: ops_ascend/chunk_scan.py.
//
//   in     what the forward was given, the states that it saved (checkpoint_every = 2), dy in T with any strides
//          of batch, token and head, dfinal_states in float32
//   out    dx, dz in T, contiguous; dB, dC in T, or float32 sums of each part of a group's heads; ddt,
//          dinitial_states in float32; dA, dD, ddt_bias (batch, 2, nheads) in float32, to be summed
//   T, Op  as in the forward
// No atomics: two runs give the same bits.
#ifndef VMAMBA2_SSD_BACKWARD_H
#define VMAMBA2_SSD_BACKWARD_H

#include "ssd_backward_cube.h"
#include "ssd_backward_vector.h"

namespace vmamba2 {

template <typename T, typename Op>
__aicore__ inline void SsdBackward(const SsdBackwardAddresses& gm, const SsdBackwardTiling& tiling) {
  AscendC::InitSocState();
  if ASCEND_IS_AIC {
    SsdBackwardCube<T, Op> cube;
    cube.Init(&tiling, gm);
    cube.Process();
  }
  if ASCEND_IS_AIV {
    SsdBackwardVector<T, Op> vector;
    vector.Init(&tiling, gm);
    vector.Process();
  }
  AscendC::PipeBarrier<PIPE_ALL>();
}

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_H
