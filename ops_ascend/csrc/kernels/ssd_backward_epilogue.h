// ssd_backward_epilogue.h -- what the vector cores make of the last products of a chunk: the gradients of B, C and
// z, and the sums of what the tokens exchange with the states.
//
//   dC_i = sum_j dCB_ij B_j + sum over heads of exp(cum_i) dy_i S
//   dB_j = sum_i dCB_ij C_i + sum over heads of exp(cum_last - cum_j) step_j x_j G
//   dz   = dy silu'(z) y, y before the gate
//   crossing_t = sum_i>=t of what token i takes from all tokens before t (this core's i)
//   sums from_start_i = exp(cum_i) C_i . (dy_i S)       into_end_j = exp(cum_last - cum_j) B_j . (x_j G)
//
//   Numerics  float32, rounded once. With several parts of a group's heads, dB and dC are float32 sums of each
//             part, (parts, batch, seqlen, ngroups, dstate).
#ifndef VMAMBA2_SSD_BACKWARD_EPILOGUE_H
#define VMAMBA2_SSD_BACKWARD_EPILOGUE_H

#include "fractal_tiles.h"
#include "operand_tiles.h"
#include "ssd_backward_decay.h"

namespace vmamba2 {

template <typename T, typename Op>
class BackwardEpilogue {
  static constexpr int32_t kFirstSum = kFromStart;  // of the two by token that are sent from here

 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm,
                              const BackwardRing<Op>& ring, int32_t sub, TilePool* in, TilePool* out,
                              OperandTiles<Op>* operands, BackwardDecays<Op>* decays) {
    t_ = &tiling->common;
    tiling_ = tiling;
    ring_ = ring;
    sub_ = sub;
    in_ = in;
    out_ = out;
    operands_ = operands;
    decays_ = decays;
    gradients_[0] = gm.dc;
    gradients_[1] = gm.db;
    if (t_->has_z) {
      dz_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.dz),
                          t_->batch * t_->seqlen * t_->nheads * t_->headdim);
    }
  }

  __aicore__ inline void Run(const Step& step) {
    decays_->ForEpilogue(step);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kCopyEvent);
    AscendC::Duplicate(Sums(0), 0.0f, 2 * kHalfVector);
    AscendC::Duplicate(Crossing(), 0.0f, kVectorElements);
    Settle();
    SumFlows(step);
    for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
      Shared(step, slice, 0);
      Shared(step, slice, 1);
    }
    SendSums(step);
    for (int32_t head = 0; t_->has_z && head < step.heads; ++head) {
      for (int32_t column = 0; column < t_->headdim; column += kSlice) {
        GateGradient(step, head, column);
      }
    }
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kTileBytes, kTileElements);
  }
  // [8][32] of from_start (0) and of into_end (1), side by side.
  __aicore__ inline AscendC::LocalTensor<float> Sums(int32_t which) const {
    return Ub<float>(tiling_->ub.sums + (kFirstSum + which) * kHalfVector * 4, (2 - which) * kHalfVector);
  }
  __aicore__ inline AscendC::LocalTensor<float> Crossing() const {
    return Ub<float>(tiling_->ub.sums + (3 * kHalfVector + kVectorElements) * 4, kVectorElements);
  }
  // Block sums of each head, in the tile of C B^T, which is free until the next chunk is weighed.
  __aicore__ inline AscendC::LocalTensor<float> HeadSums() const {
    return Ub<float>(t_->ub.cb, kMaxHeads * kBlockSums);
  }
  __aicore__ inline int32_t RealRows(const Step& step) const {
    const int32_t left = step.tokens - sub_ * kVectorRows;
    return left < 0 ? 0 : (left < kVectorRows ? left : kVectorRows);
  }

  // Of each column t, what this core's tokens from t on take.
  __aicore__ inline void SumFlows(const Step& step) {
    constexpr float kMaskedBeyond = 1.0e-29f;  // makes less than -1 of everything that the mask hides
    const AscendC::LocalTensor<float> seen = Work(0), product = Work(1);
    AscendC::Muls(seen, Ub<float>(t_->ub.mask, kTileElements), kMaskedBeyond, kTileElements);
    Settle();
    AscendC::Maxs(seen, seen, -1.0f, kTileElements);
    Settle();
    AscendC::Adds(seen, seen, 1.0f, kTileElements);
    Settle();
    for (int32_t head = 0; head < step.heads; ++head) {
      const int32_t slot = FetchFractals(in_, ring_.FlowsBefore(step.index, head), sub_, kSlice);
      AscendC::Mul(product, in_->template Tile<float>(slot), seen, kTileElements);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
      Settle();
      const AscendC::LocalTensor<float> sum = Crossing()[head * kChunk];
      AscendC::Add(sum, product, sum, kLanes, kVectorRows, RowWise(1, 0, kVectorRows, 1, 1, 0));
      Settle();
    }
  }

  // One slice of dC (which = 0) or dB (1), with the sums of every head.
  __aicore__ inline void Shared(const Step& step, int32_t slice, int32_t which) {
    const int32_t width = SliceWidth(*t_, slice), elements = width * kVectorRows;
    const AscendC::LocalTensor<float> own = Work(0), product = Work(1), scaled = Work(2), sum = Work(3);
    LoadOperand(own, which == 0 ? ring_.CRaw(step.slot, slice) : ring_.BRaw(step.slot, slice), width);
    const int32_t within = FetchFractals(
        in_, which == 0 ? ring_.CWithin(step.index, slice) : ring_.BWithin(step.index, slice), sub_, width);
    AscendC::Adds(sum, in_->template Tile<float>(within), 0.0f, elements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(within);
    Settle();
    for (int32_t head = 0; head < step.heads; ++head) {
      const int32_t slot = FetchFractals(
          in_,
          which == 0 ? ring_.CGradient(step.index, head, slice) : ring_.BGradient(step.index, head, slice),
          sub_, width);
      const AscendC::LocalTensor<float> through = in_->template Tile<float>(slot);
      AscendC::Mul(product, through, own, elements);
      AscendC::Mul(scaled, through, decays_->Broadcast(which)[head * kBlockFloats],
                   static_cast<uint64_t>(width), kVectorRows, ByRowFactor(kMaxHeads));
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
      Settle();
      AscendC::Add(sum, sum, scaled, elements);
      BlockSums(HeadSums()[head * kBlockSums], product, width);
      Settle();
    }
    AddRowSums(Sums(which), HeadSums(), width, step.heads);
    StoreShared(step, slice, which, sum);
  }

  // Rows of C or B as float32, in fractals of 8 columns, from the operand that the cube was given.
  __aicore__ inline void LoadOperand(const AscendC::LocalTensor<float>& dst,
                                     const AscendC::GlobalTensor<Op>& src, int32_t width) {
    const int32_t slot = in_->Next();
    const AscendC::LocalTensor<Op> tile = in_->template Tile<Op>(slot);
    const int32_t blocks = width / kC0<Op>;
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    if constexpr (kPanels) {
      constexpr int32_t kPanelsHere = kVectorRows / kFractalRows;
      for (int32_t panel = 0; panel < kPanelsHere; ++panel) {
        AscendC::DataCopy(tile[panel * kFractal<Op>],
                          src[(sub_ * kPanelsHere + panel) * kFractalRows * width],
                          AscendC::DataCopyParams(blocks, kFractalRows, 0, kVectorRows - kFractalRows));
      }
    } else {
      AscendC::DataCopy(tile, src[sub_ * kVectorRows * kC0<Op>],
                        AscendC::DataCopyParams(blocks, kVectorRows, kChunk - kVectorRows, 0));
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    operands_->OperandToFractals(dst, tile, width);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    Settle();
  }

  __aicore__ inline void StoreShared(const Step& step, int32_t slice, int32_t which,
                                     const AscendC::LocalTensor<float>& sum) {
    const int64_t row_elements = static_cast<int64_t>(t_->ngroups) * t_->dstate;
    const int64_t all = t_->batch * t_->seqlen * row_elements;
    const int64_t token = step.chunk * kChunk + sub_ * kVectorRows;
    const int64_t at = (step.batch * t_->seqlen + token) * row_elements +
                       static_cast<int64_t>(step.group) * t_->dstate + slice * kSlice;
    const int32_t left = t_->dstate - slice * kSlice;
    const int32_t columns = left < kSlice ? left : kSlice;
    if (t_->parts == 1) {
      AscendC::GlobalTensor<T> dst;
      dst.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gradients_[which]), all);
      StoreRows(dst[at], step, sum, columns, row_elements, kVectorRows, 1);
      return;
    }
    const int64_t part = step.unit % t_->parts;
    AscendC::GlobalTensor<float> dst;
    dst.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gradients_[which]), all * t_->parts);
    StoreRows(dst[part * all + at], step, sum, columns, row_elements, kVectorRows, 1);
  }

  // Rows of a float32 tile whose blocks lie `block` and whose rows lie `row` blocks apart.
  template <typename E>
  __aicore__ inline void StoreRows(const AscendC::GlobalTensor<E>& dst, const Step& step,
                                   const AscendC::LocalTensor<float>& tile, int32_t columns, int64_t pitch,
                                   int32_t block, int32_t row) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(E));
    const int32_t rows = RealRows(step);
    if (rows == 0) {
      return;
    }
    const int32_t blocks = (columns + kWidth - 1) / kWidth;
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<E> rounded = out_->template Tile<E>(out);
    const uint64_t lanes = static_cast<uint64_t>((columns + kFractalRows - 1) / kFractalRows * kFractalRows);
    constexpr int32_t kRowBlocks = kSlice / kWidth;
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (sizeof(E) == 4) {
      AscendC::Adds(rounded, tile, 0.0f, lanes, rows, AscendC::UnaryRepeatParams(1, block, kRowBlocks, row));
    } else {
      AscendC::Cast(rounded, tile, AscendC::RoundMode::CAST_RINT, lanes, rows,
                    AscendC::UnaryRepeatParams(1, block, kRowBlocks, row));
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    const AscendC::DataCopyExtParams copy(
        rows, static_cast<uint32_t>(columns * sizeof(E)), static_cast<uint32_t>(kRowBlocks - blocks),
        static_cast<uint32_t>((pitch - columns) * static_cast<int64_t>(sizeof(E))), 0);
    AscendC::DataCopyPad(dst, rounded, copy);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
    Settle();
  }

  __aicore__ inline void SendSums(const Step& step) {
    constexpr int32_t kOwnBlocks = kVectorRows / kBlockFloats;
    const AscendC::DataCopyParams own(step.heads, kOwnBlocks, 0, kChunk / kBlockFloats - kOwnBlocks);
    for (int32_t which = 0; which < 2; ++which) {
      const AscendC::LocalTensor<float> factors = decays_->Row(which)[sub_ * kVectorRows];
      AscendC::Mul(Sums(which), Sums(which), factors, static_cast<uint64_t>(kVectorRows), step.heads,
                   RowWise(1, kOwnBlocks, 1, kOwnBlocks, 1, kChunk / kBlockFloats));
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kCopyEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kCopyEvent);
    for (int32_t which = 0; which < 2; ++which) {
      AscendC::DataCopy(ring_.Sums(step.index, kFirstSum + which)[sub_ * kVectorRows], Sums(which), own);
    }
    AscendC::DataCopy(ring_.Sums(step.index, kCrossing + sub_), Crossing(), step.heads * kChunk);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kCopyEvent);
  }

  __aicore__ inline void GateGradient(const Step& step, int32_t head, int32_t column) {
    const int32_t left = t_->headdim - column, left16 = t_->headdim16 - column;
    const int32_t columns = left < kSlice ? left : kSlice, width = left16 < kSlice ? left16 : kSlice;
    const int32_t y_slot = FetchFractals(in_, ring_.Y(step.index, head)[column * kChunk], sub_, width);
    const int32_t gate_slot = in_->Next();
    const AscendC::LocalTensor<float> gate = in_->template Tile<float>(gate_slot);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(gate_slot);
    AscendC::DataCopy(gate, ring_.Gate(step.slot, head, column / kSlice, sub_), GateCopy(width));
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(gate_slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(gate_slot);
    AscendC::Mul(gate, gate, in_->template Tile<float>(y_slot), static_cast<uint64_t>(width), kVectorRows,
                 RowWise(1, 8, 1, 8, kVectorRows, 1));
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(y_slot);
    Settle();
    const int64_t pitch = static_cast<int64_t>(t_->nheads) * t_->headdim;
    const int64_t token = step.chunk * kChunk + sub_ * kVectorRows;
    const int64_t at = (step.batch * t_->seqlen + token) * pitch +
                       static_cast<int64_t>(step.first_head + head) * t_->headdim + column;
    StoreRows(dz_[at], step, gate, columns, pitch, 1, kSlice / kBlockFloats);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(gate_slot);
  }

  const SsdForwardTiling* t_;
  const SsdBackwardTiling* tiling_;
  BackwardRing<Op> ring_;
  int32_t sub_;
  TilePool *in_, *out_;
  OperandTiles<Op>* operands_;
  BackwardDecays<Op>* decays_;
  GM_ADDR gradients_[2];  // of C and of B
  AscendC::GlobalTensor<T> dz_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_EPILOGUE_H
