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
    const int32_t in = LoadRows(step, src, base, strides.token, left < kSlice ? left : kSlice, width);
    const AscendC::LocalTensor<float> rows = Wide(in, width);
    if (!t_->states_only) {
      const int32_t out = Scale(rows, decays_.Ones(), 0, width);
      const AscendC::GlobalTensor<Op> dst =
          which == 0 ? ring_.CRaw(step.slot, slice) : ring_.BRaw(step.slot, slice);
      operands_.Store(dst, out, width, width, 0, which == 0 && kPanels);
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      const int32_t out = Scale(rows, decays_.Broadcast(which)[head * kBlockFloats], kMaxHeads, width);
      const AscendC::GlobalTensor<Op> dst =
          which == 0 ? ring_.CScaled(step.deep_slot, head, slice) : ring_.BScaled(step.slot, head, slice);
      operands_.Store(dst, out, width, width, 0, kPanels);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
  }

  // A tile of this core's rows of a (batch, token, ...) tensor, `columns` wide and zero up to `width`; rows
  // past the end are zero.
  __aicore__ inline int32_t LoadRows(const Step& step, const AscendC::GlobalTensor<T>& src, int64_t base,
                                     int64_t token_stride, int32_t columns, int32_t width) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(T));
    const int32_t slot = in_.Next();
    AscendC::LocalTensor<T> tile = in_.template Tile<T>(slot);
    const int32_t left = step.tokens - first_row_;
    const int32_t rows = left < 0 ? 0 : (left < kVectorRows ? left : kVectorRows);
    const int32_t blocks = (columns + kWidth - 1) / kWidth;
    if (rows < kVectorRows || blocks * kWidth < width) {
      Settle();
      AscendC::Duplicate(tile, static_cast<T>(0.0f), kTileElements);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    const uint32_t bytes = static_cast<uint32_t>(columns * sizeof(T));
    const AscendC::DataCopyPadExtParams<T> zeros(true, 0, blocks * kWidth - columns, static_cast<T>(0.0f));
    for (int32_t row = 0; row < rows;) {
      const Run run = NextRun(*t_, step.direction, step.chunk * kChunk + first_row_ + row, rows - row);
      const int64_t gap = run.distance * token_stride * static_cast<int64_t>(sizeof(T)) - bytes;
      const AscendC::DataCopyExtParams copy(run.count, bytes, static_cast<uint32_t>(gap),
                                            static_cast<uint32_t>(kSlice / kWidth - blocks), 0);
      AscendC::DataCopyPad(tile[row * kSlice], src[base + run.position * token_stride], copy, zeros);
      row += run.count;
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    return slot;
  }

  // The tile as float32, row by row.
  __aicore__ inline AscendC::LocalTensor<float> Wide(int32_t slot, int32_t width) {
    if constexpr (sizeof(T) == 4) {
      return in_.template Tile<T>(slot);
    } else {
      AscendC::LocalTensor<float> wide = Work(1);
      AscendC::Cast(wide, in_.template Tile<T>(slot), AscendC::RoundMode::CAST_NONE,
                    static_cast<uint64_t>(width), kVectorRows, AscendC::UnaryRepeatParams(1, 1, 8, 4));
      Settle();
      return wide;
    }
  }

  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kTileBytes, kTileElements);
  }

  // An outgoing tile in fractal order, [width / C0][32][C0], of rows times one factor each. `factor_repeat`
  // is the distance of the factors of neighbouring rows, in blocks.
  __aicore__ inline int32_t Scale(const AscendC::LocalTensor<float>& rows,
                                  const AscendC::LocalTensor<float>& factors, int32_t factor_repeat,
                                  int32_t width) {
    const int32_t out = out_.Next();
    const int32_t repeat = factor_repeat;
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (kExact) {
      AscendC::Mul(out_.template Tile<float>(out), rows, factors, static_cast<uint64_t>(width), kVectorRows,
                   RowWise(kVectorRows, 1, 1, 8, 0, repeat));
    } else {
      AscendC::Mul(Work(0), rows, factors, static_cast<uint64_t>(width), kVectorRows,
                   RowWise(1, 8, 1, 8, 0, repeat));
      Settle();
      operands_.RoundToFractals(out, Work(0), width);
      Settle();
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    return out;
  }

  // x in the operands' dtype, for the cube.
  __aicore__ inline void CastX(const Step& step, int32_t head, int32_t column) {
    const int32_t left = t_->headdim - column;
    const int32_t left16 = t_->headdim16 - column;
    const int32_t width = left16 < kSlice ? left16 : kSlice;
    const int64_t base = step.batch * t_->x.batch + (step.first_head + head) * t_->x.head + column;
    const int32_t in = LoadRows(step, x_, base, t_->x.token, left < kSlice ? left : kSlice, width);
    const int32_t out = out_.Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    operands_.RoundToFractals(out, in_.template Tile<float>(in), width);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_.Store(ring_.XCast(step.slot, head), out, width, t_->headdim16, column, kPanels);
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
  ChunkDecays<Op> decays_;
  WeightTiles<Op> weights_;
  RunningState<Op> state_;
  Epilogue<T, Op> epilogue_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_VECTOR_H
