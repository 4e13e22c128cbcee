// ssd_backward_vector.h -- a vector core's half of the SSD backward: everything that is not a matrix product.
//
//   Prepare   the decays of a chunk; C, B, C~, B~, and dy through the gate (ssd_backward_inputs.h)
//   Weigh     states and their gradients (ssd_backward_state.h), then the weights of a chunk and the gradients
//             through them (ssd_backward_pairs.h)
//   Epilogue  dB, dC, dz and the sums of the chunk before (ssd_backward_epilogue.h)
//   Conclude  ddt, dA and ddt_bias of the one before that (ssd_backward_conclude.h)
//
// The order of the four and what it guarantees: ssd_backward_protocol.h.
#ifndef VMAMBA2_SSD_BACKWARD_VECTOR_H
#define VMAMBA2_SSD_BACKWARD_VECTOR_H

#include "ssd_backward_conclude.h"
#include "ssd_backward_epilogue.h"
#include "ssd_backward_inputs.h"
#include "ssd_backward_pairs.h"
#include "ssd_backward_state.h"

namespace vmamba2 {

template <typename T, typename Op>
class SsdBackwardVector {
 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm) {
    t_ = tiling;
    block_ = static_cast<int32_t>(AscendC::GetBlockIdx() / AscendC::GetTaskRatio());
    const int32_t sub = static_cast<int32_t>(AscendC::GetSubBlockIdx());
    ring_.Init(tiling, gm.workspace, block_);
    in_.Init(tiling->common.ub.in, kBackwardPool);
    out_.Init(tiling->common.ub.out, kBackwardPool);
    operands_.Init(sub, &out_);
    decays_.Init(tiling, gm, ring_, sub, &in_, &out_);
    inputs_.Init(tiling, gm, ring_, sub, &in_, &out_, &operands_, &decays_);
    states_.Init(tiling, gm, ring_, sub, &in_, &out_, &operands_, &decays_);
    pairs_.Init(tiling, gm, ring_, sub, &in_, &out_, &operands_, &decays_);
    epilogue_.Init(tiling, gm, ring_, sub, &in_, &out_, &operands_, &decays_);
    conclusion_.Init(tiling, gm, ring_, sub, &in_, &out_);
    produced_ = 0;
  }

  __aicore__ inline void Process() {
    Grant();
    pairs_.Start();
    BackwardWalk ahead, walk, epilogue, conclusion;
    ahead.Init(t_, block_);
    walk.Init(t_, block_);
    epilogue.Init(t_, block_);
    conclusion.Init(t_, block_);
    for (int32_t i = 0; i < kAhead; ++i) {
      Prepare(&ahead);
    }
    for (; walk.Valid(); walk.Next()) {
      const Step step = walk.Get();
      Prepare(&ahead);
      Weigh(walk);
      if (step.index >= 1) {
        Finish(&epilogue);
      }
      if (step.index >= kConcludeLag) {
        Conclude(&conclusion);
      }
      pairs_.Done();
    }
    if (epilogue.Valid()) {
      Finish(&epilogue);
      // The other core's last sums.
      AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_MTE3>(kWeighted);
      AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kFinished);
    }
    while (conclusion.Valid()) {
      Conclude(&conclusion);
    }
    TakeBack();
  }

 private:
  // Events that say that a tile or a region is free, before anything used it.
  __aicore__ inline void Grant() {
    for (int32_t slot = 0; slot < kBackwardPool; ++slot) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(slot);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kSentEvent);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kCopyEvent);
  }
  __aicore__ inline void TakeBack() {
    for (int32_t slot = 0; slot < kBackwardPool; ++slot) {
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(slot);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kSentEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kCopyEvent);
  }

  __aicore__ inline void Prepare(BackwardWalk* walk) {
    if (!walk->Valid()) {
      return;
    }
    const Step step = walk->Get();
    decays_.Prepare(step);
    inputs_.Prepare(step);
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_MTE3>(kPrepared);
    walk->Next();
  }

  // The cube core is done with the step: its products may be read, its operands may be written again.
  __aicore__ inline void Finish(BackwardWalk* walk) {
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kFinished);
    epilogue_.Run(walk->Get());
    walk->Next();
  }

  __aicore__ inline void Conclude(BackwardWalk* walk) {
    conclusion_.Run(walk->Get());
    walk->Next();
  }

  // The first products of all steps up to this one.
  __aicore__ inline void AwaitProducts(int64_t step) {
    for (; produced_ <= step; ++produced_) {
      AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kProduced);
    }
  }

  __aicore__ inline void Weigh(BackwardWalk walk) {
    const Step step = walk.Get();
    Step next = step;
    if (FirstOfPair(step)) {
      walk.Next();
      next = walk.Get();
    }
    AwaitProducts(next.index);
    states_.Run(step, next);
    pairs_.Run(step);
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_MTE3>(kWeighted);
  }

  const SsdBackwardTiling* t_;
  int32_t block_;
  int64_t produced_;
  BackwardRing<Op> ring_;
  TilePool in_, out_;
  OperandTiles<Op> operands_;
  BackwardDecays<Op> decays_;
  BackwardInputs<T, Op> inputs_;
  BackwardStates<Op> states_;
  PairGradients<Op> pairs_;
  BackwardEpilogue<T, Op> epilogue_;
  Conclusion<Op> conclusion_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_VECTOR_H
