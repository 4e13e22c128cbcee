// ssd_backward_pairs.h -- the gradients through what the tokens of a chunk give each other, on a vector core: its
// 32 rows of the 64 x 64 matrices of each head.
//
//   E_ij  = exp(cum_i - cum_j)                    for j <= i
//   W_ij  = C_i . B_j E_ij step_j, plus D on the diagonal                        to the cube
//   dW_ij = dy_i . x_j                                                           from the cube
//   dCB_ij = sum over heads of dW_ij E_ij step_j                                 to the cube
//   flow_ij = dW_ij E_ij step_j C_i . B_j, j < i, the gradient of cum_i - cum_j   to the cube
//   sums  column   sum_i>j  dW_ij E_ij C_i . B_j (this core's rows)
//         diagonal dW_ii C_i . B_i               and dD = sum_i dW_ii
//
//   Numerics  float32. The gradient of a token's log decay is the sum of the flows that cross it, from tokens
//             before it to tokens from it on. Row sums minus column sums would give it for less, but what is left
//             of their difference is mostly rounding; the cube adds up what crosses instead.
//   Layout    fractal_tiles.h. The diagonal of a core's rows lies in four squares of 8 x 8, 40 blocks apart.
#ifndef VMAMBA2_SSD_BACKWARD_PAIRS_H
#define VMAMBA2_SSD_BACKWARD_PAIRS_H

#include "fractal_tiles.h"
#include "operand_tiles.h"
#include "ssd_backward_decay.h"

namespace vmamba2 {

constexpr int32_t kSentEvent = 3;  // V and MTE3: what Weigh sends to the exchange

template <typename Op>
class PairGradients {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr float kMasked = -1.0e30f;
  static constexpr int32_t kSquares = kVectorRows / kBlockFloats;
  static constexpr int32_t kSquareRepeat = kVectorRows + kBlockFloats;  // blocks from one square to the next

 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm,
                              const BackwardRing<Op>& ring, int32_t sub, TilePool* in, TilePool* out,
                              OperandTiles<Op>* operands, BackwardDecays<Op>* decays) {
    t_ = tiling;
    ring_ = ring;
    sub_ = sub;
    in_ = in;
    out_ = out;
    operands_ = operands;
    decays_ = decays;
    if (Skips()) {
      d_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.d), tiling->common.nheads);
      dd_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.dd),
                          tiling->common.batch * 2 * tiling->common.nheads);
    }
    MakeMask();
    MakeCorner();
  }

  // The tile of C B^T is free again.
  __aicore__ inline void Done() { AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kCbEvent); }

  // Once, when events of the pools may be used.
  __aicore__ inline void Start() { SendBefore(); }

  __aicore__ inline void Run(const Step& step) {
    if (step.opens) {
      Open(step);
    }
    const AscendC::LocalTensor<float> cb = Ub<float>(t_->common.ub.cb, kTileElements);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kCbEvent);
    AscendC::DataCopy(cb, ring_.Cb(step.deep_slot)[sub_ * kVectorRows * kBlockFloats],
                      AscendC::DataCopyParams(kSlice / kBlockFloats, kVectorRows, kChunk - kVectorRows, 0));
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kCbEvent);
    decays_->ForWeights(step);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kCbEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kSentEvent);
    Diagonal(CbDiagonal(), cb);
    for (int32_t head = 0; head < step.heads; ++head) {
      Weights(step, head, cb);
      Gradients(step, head);
    }
    Send(ring_.Dcb(step.index), DcbSum());
    SendSums(step);
    if (step.closes && Skips()) {
      StoreSkip(step);
    }
  }

 private:
  __aicore__ inline bool Skips() const { return t_->common.skip == static_cast<int32_t>(Skip::kPerHead); }
  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->common.ub.work + which * kTileBytes, kTileElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> DcbSum() const { return Work(3); }
  __aicore__ inline AscendC::LocalTensor<float> SentDiagonal(int32_t head) const {
    return Ub<float>(t_->ub.sums + head * kVectorRows * 4, kVectorRows);
  }
  __aicore__ inline AscendC::LocalTensor<float> SentColumns() const {
    return Ub<float>(t_->ub.sums + 3 * kHalfVector * 4, kVectorElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> SkipTotals() const {
    return Ub<float>(t_->ub.totals + 2 * kVectorElements * 4, kHalfVector);
  }
  // The corner region: the 8 x 8 identity, the diagonal of C B^T, room for squares (or other short sums), a
  // diagonal.
  __aicore__ inline AscendC::LocalTensor<float> Identity() const { return Ub<float>(t_->ub.corner, kLanes); }
  __aicore__ inline AscendC::LocalTensor<float> CbDiagonal() const {
    return Ub<float>(t_->ub.corner + kLanes * 4, kVectorRows);
  }
  __aicore__ inline AscendC::LocalTensor<float> Squares() const {
    return Ub<float>(t_->ub.corner + (kLanes + kVectorRows) * 4, kSquares * kLanes);
  }
  __aicore__ inline AscendC::LocalTensor<float> OwnDiagonal() const {
    return Ub<float>(t_->ub.corner + (kLanes + kVectorRows + kSquares * kLanes) * 4, kVectorRows);
  }
  // The first of the squares on the diagonal of a tile.
  __aicore__ inline AscendC::LocalTensor<float> Corner(const AscendC::LocalTensor<float>& tile) const {
    return tile[sub_ * kSquares * kVectorRows * kBlockFloats];
  }

  // mask: 0 where token j gives to token i, and so low that exp is 0 elsewhere.
  __aicore__ inline void MakeMask() {
    const AscendC::LocalTensor<float> mask = Ub<float>(t_->common.ub.mask, kTileElements), lane = Work(0);
    const AscendC::LocalTensor<int32_t> index = Ub<int32_t>(t_->common.ub.work + kTileBytes, kTileElements);
    AscendC::CreateVecIndex(index, static_cast<int32_t>(0), static_cast<uint32_t>(kSlice));
    Settle();
    AscendC::Cast(lane, index, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(kSlice));
    Settle();
    for (int32_t row = 0; row < kVectorRows; ++row) {
      const AscendC::UnaryRepeatParams strides(kVectorRows, 1, 1, 8);
      AscendC::Adds(mask[row * kBlockFloats], lane, -static_cast<float>(sub_ * kVectorRows + row),
                    static_cast<uint64_t>(kLanes), 1, strides);
    }
    Settle();
    AscendC::Maxs(mask, mask, 0.0f, kTileElements);
    Settle();
    AscendC::Muls(mask, mask, kMasked, kTileElements);
    Settle();
  }

  // Before(): 1 where a column comes before a row's token. Work(0) holds the lanes' numbers.
  __aicore__ inline void SendBefore() {
    const AscendC::LocalTensor<float> before = Work(2);
    for (int32_t row = 0; row < kVectorRows; ++row) {
      AscendC::Adds(before[row * kBlockFloats], Work(0), -static_cast<float>(sub_ * kVectorRows + row),
                    static_cast<uint64_t>(kLanes), 1, AscendC::UnaryRepeatParams(kVectorRows, 1, 1, 8));
    }
    Settle();
    AscendC::Muls(before, before, -1.0f, kTileElements);
    Settle();
    AscendC::Maxs(before, before, 0.0f, kTileElements);
    Settle();
    AscendC::Mins(before, before, 1.0f, kTileElements);
    Settle();
    Send(ring_.Before(), before);
  }

  // A tile of this core's rows to the cube.
  __aicore__ inline void Send(const AscendC::GlobalTensor<Op>& dst, const AscendC::LocalTensor<float>& src) {
    const int32_t out = out_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    operands_->FractalsToOperand(out, src);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_->Store(dst, out, kSlice, kChunk, 0, kPanels);
  }

  __aicore__ inline void MakeCorner() {
    const AscendC::LocalTensor<float> identity = Identity(), lane = Work(0);  // lane as MakeMask left it
    for (int32_t row = 0; row < kBlockFloats; ++row) {
      AscendC::Adds(identity[row * kBlockFloats], lane, -static_cast<float>(row), kBlockFloats);
    }
    Settle();
    AscendC::Abs(identity, identity, kLanes);
    Settle();
    AscendC::Mins(identity, identity, 1.0f, kLanes);
    Settle();
    AscendC::Muls(identity, identity, -1.0f, kLanes);
    Settle();
    AscendC::Adds(identity, identity, 1.0f, kLanes);
    Settle();
  }

  __aicore__ inline void Open(const Step& step) {
    if (!Skips()) {
      return;
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      skip_[head] = d_.GetValue(static_cast<uint64_t>(step.first_head + head));
    }
    AscendC::Duplicate(SkipTotals(), 0.0f, kHalfVector);
    Settle();
  }

  // Squares = the diagonal squares of a tile, all else 0; diagonal = its 32 elements.
  __aicore__ inline void Diagonal(const AscendC::LocalTensor<float>& diagonal,
                                  const AscendC::LocalTensor<float>& tile) {
    AscendC::Mul(Squares(), Corner(tile), Identity(), kLanes, kSquares,
                 RowWise(1, 8, 1, kSquareRepeat, 1, 0));
    Settle();
    AscendC::BlockReduceSum(diagonal, Squares(), kSquares, kLanes, 1, 1, 8);
    Settle();
  }

  // Work(0) = E, Work(1) = E C B^T; W to the cube.
  __aicore__ inline void Weights(const Step& step, int32_t head, const AscendC::LocalTensor<float>& cb) {
    const AscendC::LocalTensor<float> e = Work(0), shared = Work(1);
    const int32_t column = head * kBlockFloats, row = head * kChunk;
    AscendC::Sub(e, decays_->Broadcast(0)[column], decays_->Row(BackwardDecays<Op>::kHiRow)[row], kLanes,
                 kVectorRows, RowWise(kVectorRows, 1, 0, kMaxHeads, 1, 0));
    Settle();
    AscendC::Add(e, e, Ub<float>(t_->common.ub.mask, kTileElements), kTileElements);
    Settle();
    if constexpr (kExact) {
      AscendC::Add(e, e, decays_->Broadcast(1)[column], kLanes, kVectorRows, ByRowFactor(kMaxHeads));
      Settle();
    }
    AscendC::Exp(e, e, kTileElements);
    Settle();
    if constexpr (kExact) {
      AscendC::Mul(e, e, decays_->Row(BackwardDecays<Op>::kUndoLoRow)[row], kLanes, kVectorRows,
                   ByColumnFactor());
      Settle();
    }
    AscendC::Mul(shared, e, cb, kTileElements);
    Settle();
    const int32_t out = out_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::LocalTensor<float> w = Work(2);
    if constexpr (kExact) {
      w = out_->template Tile<float>(out);
    }
    AscendC::Mul(w, shared, decays_->Row(BackwardDecays<Op>::kStepRow)[row], kLanes, kVectorRows,
                 ByColumnFactor());
    Settle();
    if (Skips()) {
      AscendC::Axpy(Corner(w), Identity(), skip_[head], static_cast<uint64_t>(kLanes), kSquares,
                    AscendC::UnaryRepeatParams(1, 1, kSquareRepeat, 0));
      Settle();
    }
    if constexpr (!kExact) {
      operands_->FractalsToOperand(out, w);
      Settle();
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_->Store(ring_.Weights(step.index, head), out, kSlice, kChunk, 0, kPanels);
  }

  __aicore__ inline void Gradients(const Step& step, int32_t head) {
    const AscendC::LocalTensor<float> step_row = decays_->Row(BackwardDecays<Op>::kStepRow)[head * kChunk];
    const int32_t slot = FetchFractals(in_, ring_.Dw(step.deep_slot, head), sub_, kSlice);
    const AscendC::LocalTensor<float> dw = in_->template Tile<float>(slot), term = Work(2);
    AscendC::Mul(term, dw, Work(0), kTileElements);
    Diagonal(OwnDiagonal(), dw);
    AscendC::Mul(head == 0 ? DcbSum() : term, term, step_row, kLanes, kVectorRows, ByColumnFactor());
    AscendC::Sub(Corner(dw), Corner(dw), Squares(), kLanes, kSquares,
                 RowWise(1, kSquareRepeat, 1, kSquareRepeat, 1, 8));
    AscendC::Mul(SentDiagonal(head), OwnDiagonal(), CbDiagonal(), kVectorRows);
    if (Skips()) {
      const AscendC::LocalTensor<float> total = SkipTotals()[head * kVectorRows];
      AscendC::Add(total, total, OwnDiagonal(), kVectorRows);
    }
    const AscendC::LocalTensor<float> columns = SentColumns()[head * kChunk];
    AscendC::Duplicate(columns, 0.0f, kChunk);
    Settle();
    if (head > 0) {
      AscendC::Add(DcbSum(), DcbSum(), term, kTileElements);
    }
    AscendC::Mul(dw, dw, Work(1), kTileElements);
    Settle();
    AscendC::Add(columns, dw, columns, kLanes, kVectorRows, RowWise(1, 0, kVectorRows, 1, 1, 0));
    SendFlows(step, head, dw, step_row);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
  }

  // Flows go rounded and, in 16 bits, with what that rounds off: gradients of A are sums of them that cancel.
  __aicore__ inline void SendFlows(const Step& step, int32_t head,
                                   const AscendC::LocalTensor<float>& unscaled,
                                   const AscendC::LocalTensor<float>& step_row) {
    if constexpr (kExact) {
      const int32_t out = out_->Next();
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
      AscendC::Mul(out_->template Tile<float>(out), unscaled, step_row, kLanes, kVectorRows,
                   ByColumnFactor());
      Settle();
      StoreFlows(step, 0, head, out);
    } else {
      const AscendC::LocalTensor<float> flows = Work(2), rounded = Work(0);
      AscendC::Mul(flows, unscaled, step_row, kLanes, kVectorRows, ByColumnFactor());
      Settle();
      for (int32_t part = 0; part < kFlowParts; ++part) {
        const int32_t out = out_->Next();
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
        operands_->FractalsToOperand(out, flows);
        Settle();
        if (part + 1 < kFlowParts) {
          operands_->OperandToFractals(rounded, out_->template Tile<Op>(out), kSlice);
          Settle();
          AscendC::Sub(flows, flows, rounded, kTileElements);
          Settle();
        }
        StoreFlows(step, part, head, out);
      }
    }
  }

  __aicore__ inline void StoreFlows(const Step& step, int32_t part, int32_t head, int32_t out) {
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_->Store(ring_.Flows(step.index, part, head), out, kSlice, kChunk, 0, kPanels);
  }

  __aicore__ inline void SendSums(const Step& step) {
    constexpr int32_t kOwnBlocks = kVectorRows / kBlockFloats;
    const AscendC::DataCopyParams own(step.heads, kOwnBlocks, 0, kChunk / kBlockFloats - kOwnBlocks);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kSentEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kSentEvent);
    AscendC::DataCopy(ring_.Sums(step.index, kDiagonal)[sub_ * kVectorRows],
                      Ub<float>(t_->ub.sums, kHalfVector), own);
    AscendC::DataCopy(ring_.Sums(step.index, kColumnSums + sub_), SentColumns(), step.heads * kChunk);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kSentEvent);
  }

  // dD of this core's rows of the task.
  __aicore__ inline void StoreSkip(const Step& step) {
    const AscendC::LocalTensor<float> totals = SkipTotals();
    constexpr int32_t kRowBlocks = kVectorRows / kBlockFloats;
    for (int32_t half = kVectorRows / 2; half >= kBlockFloats; half /= 2) {
      AscendC::Add(totals, totals, totals[half], static_cast<uint64_t>(half), kMaxHeads,
                   RowWise(1, kRowBlocks, 1, kRowBlocks, 1, kRowBlocks));
      Settle();
    }
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::BlockReduceSum(tile, totals, 1, kLanes, 1, kRowBlocks, 8);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    const AscendC::DataCopyExtParams row(1, static_cast<uint32_t>(step.heads * 4), 0, 0, 0);
    AscendC::DataCopyPad(dd_[(step.batch * 2 + sub_) * t_->common.nheads + step.first_head], tile, row);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  const SsdBackwardTiling* t_;
  BackwardRing<Op> ring_;
  int32_t sub_;
  TilePool *in_, *out_;
  OperandTiles<Op>* operands_;
  BackwardDecays<Op>* decays_;
  AscendC::GlobalTensor<float> d_, dd_;
  float skip_[kMaxHeads];
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_PAIRS_H
