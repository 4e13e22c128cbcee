// ssd_backward_cube.h -- the cube core's half of the SSD backward: the products of a chunk.
//
// Stage 1 (Produce), from what does not depend on the other chunks:
//   cb           = C B^T           (64 x 64), once for all heads of the task
//   dw           = dy x^T          (64 x 64)
//   dstates      = dy^T C~         (headdim x dstate), what the chunk adds to the state's gradient
//   chunk_states = x^T B~          (headdim x dstate), what it adds to the state; second chunk of a pair only
// Stage 2 (Finish), with S the state that enters the chunk and G the gradient of the one that leaves it:
//   dx           = B~ G^T + W^T dy (64 x headdim), into the caller's tensor
//   y            = C~ S^T + W x    (64 x headdim), only with a gate, whose gradient needs it
//   b_gradient   = x G             (64 x dstate)
//   c_gradient   = dy S            (64 x dstate)
//   flows_before = flows [j < t]   (64 x 64), of what tokens take from each other, all that lies before token t
//   b_within     = dCB^T C, c_within = dCB B  (64 x dstate), once for all heads
//
// All operands but x and dy come from the vector cores through rings (ssd_backward_protocol.h); x and dy come
// from the caller's tensors where those are operands as they are, and stay in L1 from stage 1 to stage 2.
//   Numerics  operands in Op, accumulation in float32; dx rounds once, on its way out of L0C.
//   Tail      rows of x and dy past the last token are zero in L1; rows of dx past it are not stored.
#ifndef VMAMBA2_SSD_BACKWARD_CUBE_H
#define VMAMBA2_SSD_BACKWARD_CUBE_H

#include "cube_results.h"
#include "cube_tiles.h"
#include "operand_loads.h"
#include "ssd_backward_protocol.h"
#include "token_loads.h"

namespace vmamba2 {

template <typename T, typename Op>
class SsdBackwardCube {
  static constexpr bool kCast = !IsSame<T, Op>::value;
  static constexpr int32_t kWidest = kStateRows;       // rows or columns of one L0 operand
  static constexpr int32_t kSmallestL0c = 128 * 1024;  // of the two chips
  static constexpr int32_t kTokensEvent = kStreamSlots;
  static_assert(kWidest * kSlice * sizeof(Op) <= CubeTiles<Op>::kOperandBytes,
                "an operand must fit its L0 slot");
  static_assert(kWidest * kSlice * 4 <= CubeResults::kSmallBytes, "a product must fit its L0C slot");
  static_assert(CubeResults::kSmallSlots * CubeResults::kSmallBytes <= kSmallestL0c / 2,
                "half of L0C is for the large results");
  static_assert(kChunk * kMaxSize * 4 <= kSmallestL0c / 2, "dx of one head must fit its half of L0C");

 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm) {
    all_ = tiling;
    t_ = &tiling->common;
    if constexpr (!kCast) {
      x_.Init(t_, t_->x, gm.x);
      dy_.Init(t_, tiling->dy, gm.dy);
    }
    dx_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.dx), t_->batch * t_->seqlen * DxPitch());
    ring_.Init(tiling, gm.workspace, AscendC::GetBlockIdx());
    tiles_.Init(t_);
    results_.Init(static_cast<int32_t>(t_->l0c_y_bytes), t_->heads_per_store * TokenTile() * 4);
    tokens_free_ = false;
  }

  __aicore__ inline void Process() {
    tiles_.GrantFreeSlots();
    results_.GrantFreeSlots();
    BackwardWalk ahead, walk;
    ahead.Init(all_, AscendC::GetBlockIdx());
    walk.Init(all_, AscendC::GetBlockIdx());
    const bool works = walk.Valid();
    for (int32_t i = 0; i < kAhead && ahead.Valid(); ++i, ahead.Next()) {
      Produce(ahead.Get());
    }
    for (; walk.Valid(); walk.Next()) {
      if (ahead.Valid()) {
        Produce(ahead.Get());
        ahead.Next();
      }
      Finish(walk.Get());
    }
    if (works) {
      // The vector cores' sums of the last step cross here.
      AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kWeighted);
      AscendC::PipeBarrier<PIPE_ALL>();
      AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_FIX>(kFinished);
    }
    TakeFreeTokens();
    tiles_.TakeBackFreeSlots();
    results_.TakeBackFreeSlots();
  }

 private:
  __aicore__ inline int64_t DxPitch() const { return static_cast<int64_t>(t_->nheads) * t_->headdim; }
  __aicore__ inline int32_t TokenTile() const { return kChunk * t_->headdim16; }
  __aicore__ inline bool DyFromRing() const { return kCast || t_->has_z; }
  // Rows of one operand, from row `first` of a state (or column of x and dy) on.
  __aicore__ inline int32_t RowsFrom(int32_t first) const {
    const int32_t left = t_->headdim16 - first;
    return left < kWidest ? left : kWidest;
  }

  // x or dy of all heads of a step.
  __aicore__ inline AscendC::LocalTensor<Op> Tokens(uint32_t base, const Step& step) const {
    const uint32_t slot = static_cast<uint32_t>(step.index % kTokenSlots);
    return AscendC::LocalTensor<Op>(AscendC::TPosition::A1, base + slot * all_->l1_slot,
                                    static_cast<uint32_t>(all_->l1_slot / sizeof(Op)));
  }
  __aicore__ inline AscendC::LocalTensor<Op> X(const Step& step, int32_t head) const {
    return Tokens(all_->l1_x, step)[head * TokenTile()];
  }
  __aicore__ inline AscendC::LocalTensor<Op> Dy(const Step& step, int32_t head) const {
    return Tokens(all_->l1_dy, step)[head * TokenTile()];
  }

  // One event for all slots of x and dy: it is taken before each stage, and a stage's loads lie between.
  __aicore__ inline void TakeFreeTokens() {
    if (tokens_free_) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(kTokensEvent);
      tokens_free_ = false;
    }
  }
  __aicore__ inline void FreeTokens() {
    AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(kTokensEvent);
    tokens_free_ = true;
  }

  __aicore__ inline void Produce(const Step& step) {
    TakeFreeTokens();
    if constexpr (!kCast) {
      x_.Load(X(step, 0), step);
      if (!DyFromRing()) {
        dy_.Load(Dy(step, 0), step);
      }
    }
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kPrepared);
    if constexpr (kCast) {
      tiles_.CopyBurst(X(step, 0), ring_.XCast(step.slot, 0), step.heads * TokenTile());
    }
    if (DyFromRing()) {
      tiles_.CopyBurst(Dy(step, 0), ring_.Dy(step.slot, 0), step.heads * TokenTile());
    }
    // x and dy are there when the tiles of cb are, which follow them on the same pipe.
    MultiplyCb(step);
    for (int32_t head = 0; head < step.heads; ++head) {
      MultiplyDw(step, head);
      for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
        MultiplyStates(ring_.DStates(step.deep_slot, head, slice), Dy(step, head),
                       ring_.CScaled(step.slot, head, slice), SliceWidth(*t_, slice));
        if (SecondOfPair(step)) {
          MultiplyStates(ring_.ChunkStates(step.deep_slot, head, slice), X(step, head),
                         ring_.BScaled(step.slot, head, slice), SliceWidth(*t_, slice));
        }
      }
    }
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_FIX>(kProduced);
  }

  __aicore__ inline void Finish(const Step& step) {
    TakeFreeTokens();
    AscendC::CrossCoreWaitFlag<kCubeWithVectors, PIPE_MTE2>(kWeighted);
    for (int32_t head = 0; head < step.heads; head += t_->heads_per_store) {
      const int32_t left = step.heads - head;
      const int32_t heads = left < t_->heads_per_store ? left : t_->heads_per_store;
      MultiplyWithStates<true>(step, head, heads);
      MultiplyWithStates<false>(step, head, heads);
    }
    FreeTokens();
    for (int32_t head = 0; head < step.heads; ++head) {
      MultiplyFlows(step, head);
    }
    MultiplyWithin(step);
    AscendC::CrossCoreSetFlag<kCubeWithVectors, PIPE_FIX>(kFinished);
  }

  __aicore__ inline void StoreSmall(const AscendC::GlobalTensor<float>& dst,
                                    const AscendC::LocalTensor<float>& result, int32_t rows, int32_t columns,
                                    int32_t height) {
    results_.SmallReady();
    StoreFractal<float>(dst, result, rows, columns, height);
    results_.SmallStored();
  }

  __aicore__ inline void MultiplyCb(const Step& step) {
    const AscendC::LocalTensor<float> result = results_.BeginSmall();
    for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
      const int32_t width = SliceWidth(*t_, slice);
      int32_t c_slot, b_slot;
      AscendC::LocalTensor<Op> c = tiles_.Fetch(ring_.CRaw(step.slot, slice), kChunk * width, &c_slot);
      AscendC::LocalTensor<Op> b = tiles_.Fetch(ring_.BRaw(step.slot, slice), kChunk * width, &b_slot);
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), c, width, 0, width);
      LoadRight(tiles_.Right(), b, kChunk, width, 0, width);
      tiles_.Release(c_slot);
      tiles_.Release(b_slot);
      tiles_.Multiply(result, kChunk, kChunk, width, slice == 0);
    }
    StoreSmall(ring_.Cb(step.deep_slot), result, kChunk, kChunk, kChunk);
  }

  __aicore__ inline void MultiplyDw(const Step& step, int32_t head) {
    const AscendC::LocalTensor<float> result = results_.BeginSmall();
    for (int32_t first = 0; first < t_->headdim16; first += kWidest) {
      const int32_t inner = RowsFrom(first);
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), Dy(step, head), t_->headdim16, first, inner);
      LoadRight(tiles_.Right(), X(step, head), kChunk, t_->headdim16, first, inner);
      tiles_.Multiply(result, kChunk, kChunk, inner, first == 0);
    }
    StoreSmall(ring_.Dw(step.deep_slot, head), result, kChunk, kChunk, kChunk);
  }

  // What a chunk adds to a slice of a state or of its gradient: tokens^T scaled.
  __aicore__ inline void MultiplyStates(const AscendC::GlobalTensor<float>& dst,
                                        const AscendC::LocalTensor<Op>& tokens,
                                        const AscendC::GlobalTensor<Op>& scaled, int32_t width) {
    int32_t slot;
    AscendC::LocalTensor<Op> tile = tiles_.Fetch(scaled, kChunk * width, &slot);
    for (int32_t first = 0; first < t_->headdim16; first += kWidest) {
      const int32_t rows = RowsFrom(first);
      tiles_.OperandsBegin();
      LoadLeftTransposed(tiles_.Left(), tokens, t_->headdim16, first, rows);
      LoadRightTransposed(tiles_.Right(), tile, kChunk, width, 0, width);
      if (first + rows == t_->headdim16) {
        tiles_.Release(slot);
      }
      const AscendC::LocalTensor<float> result = results_.BeginSmall();
      tiles_.Multiply(result, rows, width, kChunk, true);
      StoreSmall(dst[first * kC0<float>], result, rows, width, t_->headdim16);
    }
  }

  // The products with G: dx and b_gradient; or those with S: y and c_gradient. Neighbouring heads lie side by
  // side in the large result. It comes second everywhere, since the one before it may still be on its way out.
  template <bool kGradient>
  __aicore__ inline void MultiplyWithStates(const Step& step, int32_t first_head, int32_t heads) {
    const bool large = kGradient || t_->has_z;
    bool begun = false;
    for (int32_t i = 0; i < heads; ++i) {
      for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
        MultiplyWithSlice<kGradient>(step, first_head + i, slice, results_.Large()[i * TokenTile()], large,
                                     &begun);
      }
      if (large) {
        MultiplyWeights<kGradient>(step, first_head + i, results_.Large()[i * TokenTile()]);
      }
    }
    if (!large) {
      return;
    }
    results_.LargeReady();
    if constexpr (kGradient) {
      StoreDx(results_.Large(), step, first_head, heads);
    } else {
      StoreFractal<float>(ring_.Y(step.index, first_head), results_.Large(), kChunk, heads * t_->headdim16,
                          kChunk);
    }
    results_.LargeStored();
  }

  template <bool kGradient>
  __aicore__ inline void MultiplyWithSlice(const Step& step, int32_t head, int32_t slice,
                                           const AscendC::LocalTensor<float>& into, bool large, bool* begun) {
    const int32_t width = SliceWidth(*t_, slice);
    const AscendC::LocalTensor<Op> tokens = kGradient ? X(step, head) : Dy(step, head);
    const AscendC::LocalTensor<float> small = results_.BeginSmall();
    for (int32_t first = 0, tile = 0; first < t_->headdim16; first += kWidest, ++tile) {
      const int32_t rows = RowsFrom(first);
      int32_t slot;
      AscendC::LocalTensor<Op> state = tiles_.Fetch(kGradient ? ring_.DLeaving(step.index, head, slice, tile)
                                                              : ring_.States(step.index, head, slice, tile),
                                                    rows * width, &slot);
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), tokens, t_->headdim16, first, rows);
      LoadRightTransposed(tiles_.Right(), state, rows, width, 0, width);
      tiles_.Multiply(small, kChunk, width, rows, first == 0);
      if (large) {
        MultiplyScaled<kGradient>(step, head, slice, state, into[first * kChunk], rows, begun);
      }
      tiles_.Release(slot);
    }
    StoreSmall(
        kGradient ? ring_.BGradient(step.index, head, slice) : ring_.CGradient(step.index, head, slice),
        small, kChunk, width, kChunk);
  }

  // Into the large result: B~ or C~ times a tile of the state, transposed.
  template <bool kGradient>
  __aicore__ inline void MultiplyScaled(const Step& step, int32_t head, int32_t slice,
                                        const AscendC::LocalTensor<Op>& state,
                                        const AscendC::LocalTensor<float>& into, int32_t rows, bool* begun) {
    const int32_t width = SliceWidth(*t_, slice);
    int32_t slot;
    AscendC::LocalTensor<Op> scaled = tiles_.Fetch(
        kGradient ? ring_.BScaled(step.slot, head, slice) : ring_.CScaled(step.slot, head, slice),
        kChunk * width, &slot);
    if (!*begun) {
      results_.BeginLarge();
      *begun = true;
    }
    tiles_.OperandsBegin();
    LoadLeft(tiles_.Left(), scaled, width, 0, width);
    LoadRight(tiles_.Right(), state, rows, width, 0, width);
    tiles_.Release(slot);
    tiles_.Multiply(into, kChunk, rows, width, slice == 0);
  }

  // Into the large result: W^T dy or W x.
  template <bool kGradient>
  __aicore__ inline void MultiplyWeights(const Step& step, int32_t head,
                                         const AscendC::LocalTensor<float>& into) {
    const AscendC::LocalTensor<Op> tokens = kGradient ? Dy(step, head) : X(step, head);
    int32_t slot;
    AscendC::LocalTensor<Op> weights = tiles_.Fetch(ring_.Weights(step.index, head), kChunk * kChunk, &slot);
    for (int32_t first = 0; first < t_->headdim16; first += kWidest) {
      const int32_t columns = RowsFrom(first);
      tiles_.OperandsBegin();
      if constexpr (kGradient) {
        LoadLeftTransposed(tiles_.Left(), weights, kChunk, 0, kChunk);
      } else {
        LoadLeft(tiles_.Left(), weights, kChunk, 0, kChunk);
      }
      LoadRightTransposed(tiles_.Right(), tokens, kChunk, t_->headdim16, first, columns);
      tiles_.Multiply(into[first * kChunk], kChunk, columns, kChunk, false);
    }
    tiles_.Release(slot);
  }

  // Sums of what each token takes over the tokens before every other one.
  __aicore__ inline void MultiplyFlows(const Step& step, int32_t head) {
    constexpr int32_t kParts = sizeof(Op) == 4 ? 1 : kFlowParts;
    const AscendC::LocalTensor<float> result = results_.BeginSmall();
    for (int32_t part = 0; part < kParts; ++part) {
      int32_t flows_slot, before_slot;
      AscendC::LocalTensor<Op> flows =
          tiles_.Fetch(ring_.Flows(step.index, part, head), kChunk * kChunk, &flows_slot);
      AscendC::LocalTensor<Op> before = tiles_.Fetch(ring_.Before(), kChunk * kChunk, &before_slot);
      tiles_.OperandsBegin();
      LoadLeft(tiles_.Left(), flows, kChunk, 0, kChunk);
      LoadRight(tiles_.Right(), before, kChunk, kChunk, 0, kChunk);
      tiles_.Release(flows_slot);
      tiles_.Release(before_slot);
      tiles_.Multiply(result, kChunk, kChunk, kChunk, part == 0);
    }
    StoreSmall(ring_.FlowsBefore(step.index, head), result, kChunk, kChunk, kChunk);
  }

  __aicore__ inline void MultiplyWithin(const Step& step) {
    for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
      MultiplyDcb<false>(step, ring_.CWithin(step.index, slice), ring_.BRaw(step.slot, slice),
                         SliceWidth(*t_, slice));
      MultiplyDcb<true>(step, ring_.BWithin(step.index, slice), ring_.CRaw(step.slot, slice),
                        SliceWidth(*t_, slice));
    }
  }

  template <bool kTransposed>
  __aicore__ inline void MultiplyDcb(const Step& step, const AscendC::GlobalTensor<float>& dst,
                                     const AscendC::GlobalTensor<Op>& tokens, int32_t width) {
    int32_t dcb_slot, slot;
    AscendC::LocalTensor<Op> dcb = tiles_.Fetch(ring_.Dcb(step.index), kChunk * kChunk, &dcb_slot);
    AscendC::LocalTensor<Op> tile = tiles_.Fetch(tokens, kChunk * width, &slot);
    const AscendC::LocalTensor<float> result = results_.BeginSmall();
    tiles_.OperandsBegin();
    if constexpr (kTransposed) {
      LoadLeftTransposed(tiles_.Left(), dcb, kChunk, 0, kChunk);
    } else {
      LoadLeft(tiles_.Left(), dcb, kChunk, 0, kChunk);
    }
    LoadRightTransposed(tiles_.Right(), tile, kChunk, width, 0, width);
    tiles_.Release(dcb_slot);
    tiles_.Release(slot);
    tiles_.Multiply(result, kChunk, width, kChunk, true);
    StoreSmall(dst, result, kChunk, width, kChunk);
  }

  __aicore__ inline void StoreDx(const AscendC::LocalTensor<float>& dx, const Step& step, int32_t first_head,
                                 int32_t heads) {
    // Columns of a padded head lie between the heads in L0C, so such heads go out one by one.
    const int32_t together = t_->headdim == t_->headdim16 ? heads : 1;
    const int64_t token = step.batch * t_->seqlen + step.chunk * kChunk;
    for (int32_t i = 0; i < heads; i += together) {
      const int64_t at =
          token * DxPitch() + static_cast<int64_t>(step.first_head + first_head + i) * t_->headdim;
      StoreRows(dx_[at], dx[i * TokenTile()], step.tokens, together * t_->headdim, kChunk, DxPitch());
    }
  }

  const SsdBackwardTiling* all_;
  const SsdForwardTiling* t_;
  TokenLoads<Op> x_, dy_;
  AscendC::GlobalTensor<T> dx_;
  BackwardRing<Op> ring_;
  CubeTiles<Op> tiles_;
  CubeResults results_;
  bool tokens_free_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_CUBE_H
