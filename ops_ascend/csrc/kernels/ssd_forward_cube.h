// ssd_forward_cube.h -- the cube core's half of the SSD forward: three products per chunk and head.
//
//   cb           = C B^T           (64 x 64), once for all heads of the task
//   chunk_states = x^T B~          (headdim x dstate), what the chunk adds to the state
//   y            = W x + C~ S^T    (64 x headdim), one accumulation in L0C
//
// B~, C~, W and S come from the vector cores (ssd_forward_vector.h), through rings in global memory that stay
// in L2 or, on 950PR, in part straight into L1; x is read from the caller's tensor, once, and kept in L1
// between the two stages of a chunk. Stage 1 (Produce) of chunk i + 1 runs before stage 2 (Finish) of chunk
// i, so that the vector cores always have a chunk to work on.
//   Numerics  operands in Op, accumulation in float32; y rounds once, on its way out of L0C.
//   Tail      rows of x past the last token are zero in L1; rows of y past it are not stored.
#ifndef VMAMBA2_SSD_FORWARD_CUBE_H
#define VMAMBA2_SSD_FORWARD_CUBE_H

#include "cube_tiles.h"
#include "operand_loads.h"
#include "ssd_forward_protocol.h"
#include "token_loads.h"

namespace vmamba2 {

template <typename T, typename Op>
class SsdForwardCube {
  static constexpr bool kCastX = !IsSame<T, Op>::value;
  static constexpr int32_t kWidest = 128;              // rows or columns of one L0 operand
  static constexpr int32_t kSmallestL0c = 128 * 1024;  // of the two chips
  static constexpr int32_t kResultBytes = 32 * 1024;   // of one L0C slot for cb and chunk_states
  static_assert(kWidest * kSlice * sizeof(Op) <= CubeTiles<Op>::kOperandBytes,
                "an operand must fit its L0 slot");
  static_assert(kWidest * kSlice * 4 <= kResultBytes, "a product must fit its L0C slot");
  static_assert(2 * kResultBytes <= kSmallestL0c / 2, "half of L0C is for y");
  static_assert(kChunk * kMaxSize * 4 <= kSmallestL0c / 2, "y of one head must fit its half of L0C");

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const SsdForwardAddresses& gm) {
    t_ = tiling;
    x_.Init(tiling, tiling->x, gm.x);
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.y), tiling->batch * tiling->seqlen * YPitch());
    ring_.Init(*tiling, gm.workspace, AscendC::GetBlockIdx());
    tiles_.Init(tiling);
    result_ = y_slot_ = 0;
    const int32_t y_bytes = tiling->heads_per_store * kChunk * tiling->headdim16 * 4;
    y_slots_ = static_cast<int32_t>(tiling->l0c_y_bytes) / y_bytes > 1 ? 2 : 1;
  }

  __aicore__ inline void Process() {
    GrantFreeSlots();
    StepWalk ahead, walk;
    ahead.Init(t_, AscendC::GetBlockIdx());
    walk.Init(t_, AscendC::GetBlockIdx());
    if (ahead.Valid()) {
      Produce(ahead.Get());
      ahead.Next();
    }
    for (; walk.Valid(); walk.Next()) {
      if (ahead.Valid()) {
        Produce(ahead.Get());
        ahead.Next();
      }
      Finish(walk.Get());
    }
    TakeBackFreeSlots();
  }

 private:
  __aicore__ inline int64_t YPitch() const { return static_cast<int64_t>(t_->nheads) * t_->headdim; }
  __aicore__ inline int32_t XTile() const { return kChunk * t_->headdim16; }

  __aicore__ inline void GrantFreeSlots() {
    tiles_.GrantFreeSlots();
    for (int32_t slot = 0; slot < kRingSlots; ++slot) {
      tiles_.Release(kStreamSlots + slot);
    }
    for (int32_t id = 0; id < 4; ++id) {
      AscendC::SetFlag<AscendC::HardEvent::FIX_M>(id);
    }
  }

  __aicore__ inline void TakeBackFreeSlots() {
    tiles_.TakeBackFreeSlots();
    for (int32_t slot = 0; slot < kRingSlots; ++slot) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(kStreamSlots + slot);
    }
    for (int32_t id = 0; id < 4; ++id) {
      AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(id);
    }
  }

  // Stage 1: x into L1, cb and the chunk states out to the vector cores.
  __aicore__ inline void Produce(const Step& step) {
    const int32_t slot = step.slot;
    AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(kStreamSlots + slot);
    if constexpr (!kCastX) {
      x_.Load(XSlot(slot), step);
    }
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kPrepared);
    if constexpr (kCastX) {
      tiles_.CopyBurst(XSlot(slot), ring_.XCast(slot, 0), step.heads * XTile());
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE1>(kStreamSlots + slot);
    if (!t_->states_only) {
      MultiplyCb(step);
    }
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE1>(kStreamSlots + slot);
    for (int32_t head = 0; head < step.heads; ++head) {
      for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
        MultiplyChunkStates(step, head, slice);
      }
    }
    if (t_->states_only) {
      tiles_.Release(kStreamSlots + slot);
    }
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_FIX>(kProduced);
  }

  // Stage 2: y.
  __aicore__ inline void Finish(const Step& step) {
    if (t_->states_only) {
      return;
    }
    if (step.opens) {
      // A later direction adds to what an earlier one stored.
      AscendC::PipeBarrier<PIPE_FIX>();
    }
    if (t_->direct) {
      AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE1>(kWeighted);
    } else {
      AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kWeighted);
    }
    for (int32_t head = 0; head < step.heads; head += t_->heads_per_store) {
      const int32_t left = step.heads - head;
      MultiplyY(step, head, left < t_->heads_per_store ? left : t_->heads_per_store);
    }
    tiles_.Release(kStreamSlots + step.slot);
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_FIX>(kFinished);
  }

  __aicore__ inline AscendC::LocalTensor<Op> XSlot(int32_t slot) const {
    const int32_t elements = static_cast<int32_t>(t_->l1.x_slot / sizeof(Op));
    return AscendC::LocalTensor<Op>(AscendC::TPosition::A1, t_->l1.x + slot * t_->l1.x_slot, elements);
  }

  __aicore__ inline AscendC::LocalTensor<float> Result() const {
    return AscendC::LocalTensor<float>(AscendC::TPosition::CO1, result_ * kResultBytes, kResultBytes / 4);
  }

  __aicore__ inline void MultiplyCb(const Step& step) {
    AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(result_);
    for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
      const int32_t width = SliceWidth(*t_, slice);
      int32_t c_slot, b_slot;
      AscendC::LocalTensor<Op> c = tiles_.Fetch(ring_.CRaw(step.slot, slice), kChunk * width, &c_slot);
      AscendC::LocalTensor<Op> b = tiles_.Fetch(ring_.BRaw(step.slot, slice), kChunk * width, &b_slot);
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), c, width, 0, width);
      LoadRightNz(tiles_.Right(), b, kChunk, width, 0, kChunk);
      tiles_.Release(c_slot);
      tiles_.Release(b_slot);
      tiles_.Multiply(Result(), kChunk, kChunk, width, slice == 0);
    }
    AscendC::SetFlag<AscendC::HardEvent::M_FIX>(result_);
    AscendC::WaitFlag<AscendC::HardEvent::M_FIX>(result_);
    StoreCb(step);
    AscendC::SetFlag<AscendC::HardEvent::FIX_M>(result_);
    result_ = 1 - result_;
  }

  __aicore__ inline void StoreCb(const Step& step) {
#if __NPU_ARCH__ == 3510
    if (t_->direct) {
      AscendC::LocalTensor<float> cb(AscendC::TPosition::VECCALC, t_->ub.cb + step.slot * kTileElements * 4,
                                     kTileElements);
      StoreHalves(cb, Result(), kChunk);
      return;
    }
#endif
    StoreFractal<float>(ring_.Cb(step.slot), Result(), kChunk, kChunk, kChunk);
  }

  __aicore__ inline void MultiplyChunkStates(const Step& step, int32_t head, int32_t slice) {
    const int32_t width = SliceWidth(*t_, slice);
    int32_t slot;
    AscendC::LocalTensor<Op> b = tiles_.Fetch(ring_.BScaled(step.slot, head, slice), kChunk * width, &slot);
    AscendC::LocalTensor<Op> x = XSlot(step.slot)[head * XTile()];
    for (int32_t first = 0; first < t_->headdim16; first += kWidest) {
      const int32_t left = t_->headdim16 - first;
      const int32_t rows = left < kWidest ? left : kWidest;
      tiles_.OperandsBegin();
      LoadLeftTransposed(tiles_.Left(), x, t_->headdim16, first, rows);
      LoadRightTransposed(tiles_.Right(), b, kChunk, width, 0, width);
      if (first + rows == t_->headdim16) {
        tiles_.Release(slot);
      }
      AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(result_);
      tiles_.Multiply(Result(), rows, width, kChunk, true);
      AscendC::SetFlag<AscendC::HardEvent::M_FIX>(result_);
      AscendC::WaitFlag<AscendC::HardEvent::M_FIX>(result_);
      const int64_t at = static_cast<int64_t>(slice) * kSlice * t_->headdim16 + first * kC0<Op>;
      StoreFractal<Op>(ring_.ChunkStates(step.slot, head)[at], Result(), rows, width, t_->headdim16);
      AscendC::SetFlag<AscendC::HardEvent::FIX_M>(result_);
      result_ = 1 - result_;
    }
  }

  // y of `heads` neighbouring heads, side by side in L0C.
  __aicore__ inline void MultiplyY(const Step& step, int32_t first_head, int32_t heads) {
    const int32_t region = static_cast<int32_t>(t_->l0c_y_bytes) / 4 / y_slots_;
    AscendC::LocalTensor<float> y(AscendC::TPosition::CO1, 2 * kResultBytes + y_slot_ * region * 4, region);
    AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(2 + y_slot_);
    for (int32_t i = 0; i < heads; ++i) {
      const int32_t head = first_head + i;
      AscendC::LocalTensor<float> part = y[i * XTile()];
      AscendC::LocalTensor<Op> x = XSlot(step.slot)[head * XTile()];
      if (t_->direct) {
        AccumulateWithin(part, ring_.WeightsInL1(step.slot, head), x);
      } else {
        int32_t slot;
        AscendC::LocalTensor<Op> weights =
            tiles_.Fetch(ring_.Weights(step.slot, head), kChunk * kChunk, &slot);
        AccumulateWithin(part, weights, x);
        tiles_.Release(slot);
      }
      for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
        AccumulateBefore(part, step, head, slice);
      }
    }
    AscendC::SetFlag<AscendC::HardEvent::M_FIX>(2 + y_slot_);
    AscendC::WaitFlag<AscendC::HardEvent::M_FIX>(2 + y_slot_);
    StoreY(y, step, first_head, heads);
    AscendC::SetFlag<AscendC::HardEvent::FIX_M>(2 + y_slot_);
    y_slot_ = (y_slot_ + 1) % y_slots_;
  }

  // W x: what the tokens of a chunk give each other.
  __aicore__ inline void AccumulateWithin(const AscendC::LocalTensor<float>& y,
                                          const AscendC::LocalTensor<Op>& weights,
                                          const AscendC::LocalTensor<Op>& x) {
    for (int32_t first = 0; first < t_->headdim16; first += kWidest) {
      const int32_t left = t_->headdim16 - first;
      const int32_t columns = left < kWidest ? left : kWidest;
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), weights, kChunk, 0, kChunk);
      LoadRightTransposed(tiles_.Right(), x, kChunk, t_->headdim16, first, columns);
      tiles_.Multiply(y[first * kChunk], kChunk, columns, kChunk, true);
    }
  }

  // C~ S^T: what the tokens receive from before the chunk.
  __aicore__ inline void AccumulateBefore(const AscendC::LocalTensor<float>& y, const Step& step,
                                          int32_t head, int32_t slice) {
    const int32_t width = SliceWidth(*t_, slice);
    const int32_t at = slice * kSlice * t_->headdim16;
    int32_t c_slot = 0, s_slot = 0;
    AscendC::LocalTensor<Op> c =
        tiles_.Fetch(ring_.CScaled(step.deep_slot, head, slice), kChunk * width, &c_slot);
    AscendC::LocalTensor<Op> s =
        t_->direct ? ring_.StatesInL1(step.slot, head)[at]
                   : tiles_.Fetch(ring_.States(step.slot, head)[at], t_->headdim16 * width, &s_slot);
    for (int32_t first = 0; first < t_->headdim16; first += kWidest) {
      const int32_t left = t_->headdim16 - first;
      const int32_t columns = left < kWidest ? left : kWidest;
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), c, width, 0, width);
      LoadRightNz(tiles_.Right(), s, t_->headdim16, width, first, columns);
      tiles_.Multiply(y[first * kChunk], kChunk, columns, width, false);
    }
    tiles_.Release(c_slot);
    if (!t_->direct) {
      tiles_.Release(s_slot);
    }
  }

  __aicore__ inline void StoreY(const AscendC::LocalTensor<float>& y, const Step& step, int32_t first_head,
                                int32_t heads) {
    const bool adds = step.direction > 0;
    if (adds) {
      AscendC::SetAtomicAdd<float>();
    }
    // Columns of a padded head lie between the heads in L0C, so such heads go out one by one.
    const int32_t together = t_->headdim == t_->headdim16 ? heads : 1;
    for (int32_t i = 0; i < heads; i += together) {
      for (int32_t row = 0; row < step.tokens;) {
        const int64_t token = step.chunk * kChunk + row;
        const Run run = NextRun(*t_, step.direction, token, step.tokens - row);
        AscendC::LocalTensor<float> part = y[i * XTile() + row * kFractalRows];
        const int32_t columns = together * t_->headdim;
        if (t_->epilogue) {
          const int64_t at = t_->directions > 1 ? run.position : row;
          StoreRows(ring_.Y(step, at, first_head + i), part, run.count, columns, kChunk,
                    run.distance * ring_.YPitch());
        } else {
          const int64_t at = (step.batch * t_->seqlen + run.position) * YPitch() +
                             static_cast<int64_t>(step.first_head + first_head + i) * t_->headdim;
          StoreRows(y_[at], part, run.count, columns, kChunk, run.distance * YPitch());
        }
        row += run.count;
      }
    }
    if (adds) {
      AscendC::SetAtomicNone();
    }
  }

  const SsdForwardTiling* t_;
  TokenLoads<Op> x_;
  AscendC::GlobalTensor<T> y_;
  Ring<Op> ring_;
  CubeTiles<Op> tiles_;
  int32_t result_, y_slot_, y_slots_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_CUBE_H
