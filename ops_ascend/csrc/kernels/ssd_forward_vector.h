// ssd_forward_vector.h -- a vector core's half of the SSD forward: everything that is not a matrix product.
//
//   stage 1   Prepare: the decays of a chunk; C, B, and for every head C~ = C exp(cum_i) and
//             B~ = B exp(cum_last - cum_j) step_j
//   stage 2   Weigh: W = C B^T exp(cum_i - cum_j) step_j below the diagonal, with D on it; the state that
//             enters the chunk; then the state that leaves it
//   epilogue  of an earlier chunk (ssd_forward_epilogue.h)
//
//   Work      each of the two cores takes 32 of the chunk's 64 tokens and half of every state. The recurrence
//             runs here: the cube never waits for a state that it computed itself a moment ago.
//   Numerics  float32; rounded to Op as a tile is written. A backward scan keeps W above the diagonal.
//   Tail      rows of B and C past the last token are zero.
#ifndef VMAMBA2_SSD_FORWARD_VECTOR_H
#define VMAMBA2_SSD_FORWARD_VECTOR_H

#include "ssd_forward_epilogue.h"
#include "ssd_forward_state.h"
#include "ssd_forward_weights.h"
#include "token_rows.h"

namespace vmamba2 {

template <typename T, typename Op>
class SsdForwardVector {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr bool kCastX = !IsSame<T, Op>::value;
  static constexpr int64_t kLag = kRingSlots;  // steps between the start of a step and its epilogue

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const SsdForwardAddresses& gm) {
    t_ = tiling;
    block_ = static_cast<int32_t>(AscendC::GetBlockIdx() / AscendC::GetTaskRatio());
    sub_ = static_cast<int32_t>(AscendC::GetSubBlockIdx());
    first_row_ = sub_ * kVectorRows;
    ring_.Init(*tiling, gm.workspace, block_);
    in_.Init(tiling->ub.in, kInSlots);
    out_.Init(tiling->ub.out, kOutSlots);
    b_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.b),
                       SpanElements(*tiling, tiling->b, tiling->ngroups, tiling->dstate));
    c_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.c),
                       SpanElements(*tiling, tiling->c, tiling->ngroups, tiling->dstate));
    if constexpr (kCastX) {
      x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.x),
                         SpanElements(*tiling, tiling->x, tiling->nheads, tiling->headdim));
    }
    operands_.Init(sub_, &out_);
    rows_.Init(tiling, first_row_, &in_, &out_, &operands_);
    decays_.Init(tiling, gm, &in_);
    weights_.Init(tiling, gm, ring_, sub_, &out_, &operands_, &decays_);
    state_.Init(tiling, gm, ring_, sub_, &in_, &out_);
    epilogue_.Init(tiling, gm, ring_, sub_, &in_, &out_);
  }

  __aicore__ inline void Process() {
    for (int32_t slot = 0; slot < kInSlots; ++slot) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    }
    for (int32_t slot = 0; slot < kOutSlots; ++slot) {
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(slot);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    StepWalk ahead, walk, behind;
    ahead.Init(t_, block_);
    walk.Init(t_, block_);
    behind.Init(t_, block_);
    if (ahead.Valid()) {
      Prepare(ahead.Get());
      ahead.Next();
    }
    for (; walk.Valid(); walk.Next()) {
      const Step step = walk.Get();
      const bool follows = step.index >= kLag && !t_->states_only;
      if (follows) {
        WaitFinished();
      }
      if (ahead.Valid()) {
        Prepare(ahead.Get());
        ahead.Next();
      }
      if (t_->states_only) {
        Carry(step);
      } else {
        Weigh(step);
      }
      if (follows) {
        epilogue_.Run(behind.Get());
        behind.Next();
      }
    }
    for (; behind.Valid() && !t_->states_only; behind.Next()) {
      WaitFinished();
      epilogue_.Run(behind.Get());
    }
    Finish();
  }

 private:
  __aicore__ inline void Finish() {
    for (int32_t slot = 0; slot < kInSlots; ++slot) {
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    }
    for (int32_t slot = 0; slot < kOutSlots; ++slot) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(slot);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    state_.Done();
  }

  // The cube core is done with one more step: its y may be read, and its ring slots may be filled again.
  // MTE3, which fills them, learns it from the loads that follow: nothing is stored before something loaded
  // later was computed with.
  __aicore__ inline void WaitFinished() {
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kFinished);
  }

  // Stage 1.
  __aicore__ inline void Prepare(const Step& step) {
    decays_.Prepare(step, first_row_);
    for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
      if (!t_->states_only) {
        PrepareOperand(step, slice, c_, t_->c, 0);
      }
      PrepareOperand(step, slice, b_, t_->b, 1);
    }
    if constexpr (kCastX) {
      for (int32_t head = 0; head < step.heads; ++head) {
        for (int32_t column = 0; column < t_->headdim; column += kSlice) {
          CastX(step, head, column);
        }
      }
    }
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_MTE3>(kPrepared);
  }

  // One slice of C (which = 0) or B (1): raw for C B^T, and scaled for every head.
  __aicore__ inline void PrepareOperand(const Step& step, int32_t slice, const AscendC::GlobalTensor<T>& src,
                                        const TokenStrides& strides, int32_t which) {
    const int32_t width = SliceWidth(*t_, slice);
    const int64_t base = step.batch * strides.batch + step.group * strides.head + slice * kSlice;
    const int32_t left = t_->dstate - slice * kSlice;
    const int32_t in = rows_.Load(step, src, base, strides.token, left < kSlice ? left : kSlice, width);
    const AscendC::LocalTensor<float> rows = rows_.Wide(in, width);
    if (!t_->states_only) {
      const bool operand_order = which == 0 || !kPanels;
      const int32_t out = rows_.Scale(rows, decays_.Ones(), 0, width, operand_order);
      const AscendC::GlobalTensor<Op> dst =
          which == 0 ? ring_.CRaw(step.slot, slice) : ring_.BRaw(step.slot, slice);
      if (operand_order) {
        operands_.StoreOperand(dst, out, width, width, 0);
      } else {
        operands_.Store(dst, out, width, width, 0, false);
      }
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      const int32_t out = rows_.Scale(rows, decays_.Broadcast(which)[head * kBlockFloats], kMaxHeads, width);
      const AscendC::GlobalTensor<Op> dst =
          which == 0 ? ring_.CScaled(step.deep_slot, head, slice) : ring_.BScaled(step.slot, head, slice);
      operands_.StoreOperand(dst, out, width, width, 0);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
  }

  // x in the operands' dtype, for the cube.
  __aicore__ inline void CastX(const Step& step, int32_t head, int32_t column) {
    const int32_t left = t_->headdim - column;
    const int32_t left16 = t_->headdim16 - column;
    const int32_t width = left16 < kSlice ? left16 : kSlice;
    const int64_t base = step.batch * t_->x.batch + (step.first_head + head) * t_->x.head + column;
    const int32_t in = rows_.Load(step, x_, base, t_->x.token, left < kSlice ? left : kSlice, width);
    const int32_t out = out_.Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    operands_.RoundToOperand(out, in_.template Tile<float>(in), width);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_.StoreOperand(ring_.XCast(step.slot, head), out, width, t_->headdim16, column);
  }

  // Stage 2 of the first of two launches.
  __aicore__ inline void Carry(const Step& step) {
    if (step.opens) {
      state_.Open(step);
    }
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kProduced);
    state_.Update(step, decays_.Vectors(step.slot).decay);
    if (step.closes) {
      state_.CloseSegment(step);
    }
  }

  // Stage 2.
  __aicore__ inline void Weigh(const Step& step) {
    if (step.opens) {
      OpenDirection(step);
    }
    const ChunkVectors v = decays_.Vectors(step.slot);
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kProduced);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    const AscendC::LocalTensor<float> cb =
        Ub<float>(t_->ub.cb + (t_->direct ? step.slot * kTileBytes : 0), kTileElements);
    if (!t_->direct) {
      AscendC::DataCopy(cb, ring_.Cb(step.slot)[first_row_ * kBlockFloats],
                        AscendC::DataCopyParams(kSlice / kBlockFloats, kVectorRows, kChunk - kVectorRows, 0));
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kCbEvent);
    decays_.Columns(v, first_row_);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kCbEvent);
    state_.Publish(step);
    for (int32_t head = 0; head < step.heads; ++head) {
      weights_.Run(step, v, cb, head);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_MTE3>(kWeighted);
    state_.Update(step, v.decay);
    if (step.ends_sequence && t_->directions == 1) {
      state_.Close(step);
    }
  }

  __aicore__ inline void OpenDirection(const Step& step) {
    state_.Open(step);
    weights_.Open(step);
  }

  const SsdForwardTiling* t_;
  int32_t block_, sub_, first_row_;
  Ring<Op> ring_;
  TilePool in_, out_;
  AscendC::GlobalTensor<T> x_, b_, c_;
  OperandTiles<Op> operands_;
  TokenRows<T, Op> rows_;
  ChunkDecays<Op> decays_;
  WeightTiles<Op> weights_;
  RunningState<Op> state_;
  Epilogue<T, Op> epilogue_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_VECTOR_H
