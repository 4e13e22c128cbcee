// ssd_forward_weights.h -- how much the tokens of a chunk give each other.
//
//   W_ij = C_i . B_j exp(cum_i - cum_j) step_j    for j <= i (j >= i when the scan runs backward)
//   plus D on the diagonal
//
// A core makes its 32 rows of the 64 x 64 matrix of each head.
//   Numerics  exp of (hi_i - hi_j) + lo_i, and exp(-lo_j) in step_j (ssd_forward_decay.h); tokens that do not
//             give are pushed so low that exp is 0. D is added only in the first of several grid orders.
#ifndef VMAMBA2_SSD_FORWARD_WEIGHTS_H
#define VMAMBA2_SSD_FORWARD_WEIGHTS_H

#include "operand_tiles.h"
#include "ssd_forward_decay.h"

namespace vmamba2 {

template <typename Op>
class WeightTiles {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr float kMasked = -1.0e30f;

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const SsdForwardAddresses& gm,
                              const Ring<Op>& ring, int32_t sub, TilePool* out, OperandTiles<Op>* operands,
                              ChunkDecays<Op>* decays) {
    t_ = tiling;
    ring_ = ring;
    first_row_ = sub * kVectorRows;
    out_ = out;
    operands_ = operands;
    decays_ = decays;
    if (PerHeadSkip()) {
      d_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.d), tiling->nheads);
    }
  }

  __aicore__ inline void Open(const Step& step) {
    MakeMask(step.backward);
    if (PerHeadSkip()) {
      for (int32_t head = 0; head < step.heads; ++head) {
        skip_[head] = d_.GetValue(static_cast<uint64_t>(step.first_head + head));
      }
    }
  }

  // W of one head, to the cube. cb holds this core's rows of C B^T.
  __aicore__ inline void Run(const Step& step, const ChunkVectors& v, const AscendC::LocalTensor<float>& cb,
                             int32_t head) {
    AscendC::LocalTensor<float> w = Work(0);
    const int32_t column = head * kBlockFloats;
    const bool skip = PerHeadSkip() && step.direction == 0;
    // cb lies in rows when it came directly, in fractals when it came through the ring.
    const int32_t cb_block = t_->direct ? 1 : kVectorRows;
    const int32_t cb_repeat = t_->direct ? kBlockFloats : 1;
    AscendC::Sub(w, decays_->Broadcast(0)[column], v.hi_row[head * kChunk], kLanes, kVectorRows,
                 RowWise(1, 8, 0, kMaxHeads, 1, 0));
    Settle();
    AscendC::Add(w, w, Ub<float>(t_->ub.mask, kTileElements), kTileElements);
    Settle();
    if constexpr (kExact) {
      AscendC::Add(w, w, decays_->Broadcast(1)[column], kLanes, kVectorRows,
                   RowWise(1, 8, 1, 8, 0, kMaxHeads));
      Settle();
    }
    AscendC::Exp(w, w, kTileElements);
    Settle();
    AscendC::Mul(w, w, v.step_row[head * kChunk], kLanes, kVectorRows, RowWise(1, 8, 1, 8, 1, 0));
    Settle();
    const int32_t out = out_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (kExact) {
      AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
      AscendC::Mul(tile, w, cb, kLanes, kVectorRows, RowWise(kVectorRows, 1, 1, 8, cb_block, cb_repeat));
      if (skip) {
        Settle();
        AscendC::Axpy(tile, Ub<float>(t_->ub.identity, kTileElements), skip_[head], kTileElements);
      }
    } else {
      AscendC::Mul(w, w, cb, kLanes, kVectorRows, RowWise(1, 8, 1, 8, cb_block, cb_repeat));
      Settle();
      if (skip) {
        AscendC::Axpy(w, Ub<float>(t_->ub.identity, kTileElements), skip_[head], kTileElements);
        Settle();
      }
      operands_->RoundToFractals(out, w, kSlice);
    }
    Settle();
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    if constexpr (kHasDirectPaths) {
      if (t_->direct) {
        operands_->Store(ring_.WeightsInL1(step.slot, head), out, kSlice, kChunk, 0, kPanels);
        return;
      }
    }
    operands_->Store(ring_.Weights(step.slot, head), out, kSlice, kChunk, 0, kPanels);
  }

 private:
  __aicore__ inline bool PerHeadSkip() const { return t_->skip == static_cast<int32_t>(Skip::kPerHead); }
  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kTileBytes, kTileElements);
  }

  // mask: 0 where token j gives to token i, and so low that exp is 0 elsewhere. identity: 1 on the diagonal.
  __aicore__ inline void MakeMask(bool backward) {
    AscendC::LocalTensor<float> mask = Ub<float>(t_->ub.mask, kTileElements), lane = Work(0),
                                distance = Work(1);
    AscendC::CreateVecIndex(Ub<int32_t>(t_->ub.work + kTileBytes, kTileElements), static_cast<int32_t>(0),
                            static_cast<uint32_t>(kSlice));
    Settle();
    AscendC::Cast(lane, Ub<int32_t>(t_->ub.work + kTileBytes, kTileElements), AscendC::RoundMode::CAST_RINT,
                  static_cast<uint32_t>(kSlice));
    Settle();
    // distance = j - i of every element.
    for (int32_t row = 0; row < kVectorRows; ++row) {
      AscendC::Adds(distance[row * kSlice], lane, -static_cast<float>(first_row_ + row), kSlice);
    }
    Settle();
    AscendC::Muls(mask, distance, backward ? -1.0f : 1.0f, kTileElements);
    Settle();
    AscendC::Maxs(mask, mask, 0.0f, kTileElements);
    Settle();
    AscendC::Muls(mask, mask, kMasked, kTileElements);
    if (PerHeadSkip()) {
      MakeIdentity(distance);
    }
    Settle();
  }

  // In the order of the tile that D is added to: fractals in the exact mode, rows otherwise.
  __aicore__ inline void MakeIdentity(const AscendC::LocalTensor<float>& distance) {
    AscendC::LocalTensor<float> identity = Ub<float>(t_->ub.identity, kTileElements);
    AscendC::Abs(distance, distance, kTileElements);
    Settle();
    AscendC::Mins(distance, distance, 1.0f, kTileElements);
    Settle();
    AscendC::Muls(distance, distance, -1.0f, kTileElements);
    Settle();
    if constexpr (kExact) {
      AscendC::Adds(identity, distance, 1.0f, kLanes, kVectorRows,
                    AscendC::UnaryRepeatParams(kVectorRows, 1, 1, 8));
    } else {
      AscendC::Adds(identity, distance, 1.0f, kTileElements);
    }
  }

  const SsdForwardTiling* t_;
  Ring<Op> ring_;
  int32_t first_row_;
  TilePool* out_;
  OperandTiles<Op>* operands_;
  ChunkDecays<Op>* decays_;
  AscendC::GlobalTensor<float> d_;
  float skip_[kMaxHeads];
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_WEIGHTS_H
