// ssd_backward_decay.h -- the decays of one chunk in the backward, on a vector core, for all heads of a task.
//
// What outlives Prepare are the sums and the steps (BackwardVectors); the factors are made of them once more for
// the epilogue, which costs less than keeping them. The step and its slope go through a ring to Conclude, on the
// vector core that will need them.
//   Numerics  as in ssd_forward_decay.h.
#ifndef VMAMBA2_SSD_BACKWARD_DECAY_H
#define VMAMBA2_SSD_BACKWARD_DECAY_H

#include "ssd_backward_protocol.h"
#include "ssd_decay_sums.h"

namespace vmamba2 {

// The vectors of one chunk.
struct BackwardVectors {
  AscendC::LocalTensor<float> hi, lo, step;  // [64][8]
  AscendC::LocalTensor<float> decay;         // [8][8], exp(cum_last) of each head, repeated
};

template <typename Op>
class BackwardDecays {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr int32_t kLast = (kChunk - 1) * kMaxHeads;

 public:
  // Rows along the tokens of each head, [8][64], while a chunk is weighed.
  static constexpr int32_t kHiRow = 0, kUndoLoRow = 1, kStepRow = 2;
  // The same region in the epilogue: exp(cum_i) and exp(cum_last - cum_j).
  static constexpr int32_t kEnterRow = 0, kLeaveRow = 1;

  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm,
                              const BackwardRing<Op>& ring, int32_t sub, TilePool* in, TilePool* out) {
    t_ = tiling;
    ring_ = ring;
    sub_ = sub;
    out_ = out;
    sums_.Init(&tiling->common, DecayAddresses{gm.dt, gm.a, gm.dt_bias, gm.resets}, in);
  }

  __aicore__ inline AscendC::LocalTensor<float> Ones() const { return sums_.Ones(); }

  __aicore__ inline BackwardVectors Vectors(const Step& step) const {
    const uint32_t at = t_->ub.decays + step.slot * kBackwardDecayBytes;
    return BackwardVectors{Ub<float>(at, kVectorElements), Ub<float>(at + kVectorBytes, kVectorElements),
                           Ub<float>(at + 2 * kVectorBytes, kVectorElements),
                           Ub<float>(at + 3 * kVectorBytes, kMaxHeads * kBlockFloats)};
  }

  // Leaves the row factors of C~ and B~ for this core's rows in the two broadcast regions.
  __aicore__ inline void Prepare(const Step& step) {
    const BackwardVectors v = Vectors(step);
    const AscendC::LocalTensor<float> slope = Scratch(DecaySums::kSecond);
    sums_.template Compute<true>(step, v.hi, slope);
    const AscendC::LocalTensor<float> sums = sums_.Pair(DecaySums::kPing);
    AscendC::Adds(v.hi, sums, 0.0f, kLanes, kVectorRepeats, AscendC::UnaryRepeatParams(1, 2, 8, 16));
    AscendC::Adds(v.lo, sums[kBlockFloats], 0.0f, kLanes, kVectorRepeats,
                  AscendC::UnaryRepeatParams(1, 2, 8, 16));
    AscendC::Adds(v.step, Scratch(DecaySums::kStep), 0.0f, kVectorElements);
    Settle();
    if (step.index % 2 == sub_) {
      SendSteps(step, v, slope);
    }
    Factors(v);
    AscendC::Brcb(v.decay, Enter()[kLast], 1, AscendC::BrcbRepeatParams(1, 8));
    AscendC::Mul(Leave(), Leave(), v.step, kVectorElements);
    Settle();
    Spread(0, Enter());
    Spread(1, Leave());
    Settle();
  }

  // For the weights of a chunk: hi and lo of this core's rows spread over blocks, and the rows kHiRow, kUndoLoRow
  // and kStepRow. The 16-bit operand modes need only the sum of hi and lo.
  __aicore__ inline void ForWeights(const Step& step) {
    const BackwardVectors v = Vectors(step);
    const uint32_t count = static_cast<uint32_t>(step.heads * kChunk);
    AscendC::LocalTensor<float> first = Scratch(0);
    Settle();
    if constexpr (kExact) {
      AscendC::Muls(first, v.lo, -1.0f, kVectorElements);
      Settle();
      AscendC::Exp(first, first, kVectorElements);
      Spread(0, v.hi);
      Spread(1, v.lo);
      Settle();
      AscendC::Gather(Row(kHiRow), v.hi, sums_.Offsets(), 0, count);
      AscendC::Gather(Row(kUndoLoRow), first, sums_.Offsets(), 0, count);
    } else {
      AscendC::Add(first, v.hi, v.lo, kVectorElements);
      Settle();
      Spread(0, first);
      AscendC::Gather(Row(kHiRow), first, sums_.Offsets(), 0, count);
    }
    AscendC::Gather(Row(kStepRow), v.step, sums_.Offsets(), 0, count);
    Settle();
  }

  // For the epilogue: the row factors of C~ and B~ spread over blocks, and the rows kEnterRow and kLeaveRow.
  __aicore__ inline void ForEpilogue(const Step& step) {
    const BackwardVectors v = Vectors(step);
    const uint32_t count = static_cast<uint32_t>(step.heads * kChunk);
    Settle();
    Factors(v);
    AscendC::Gather(Row(kEnterRow), Enter(), sums_.Offsets(), 0, count);
    AscendC::Gather(Row(kLeaveRow), Leave(), sums_.Offsets(), 0, count);
    Spread(0, Enter());
    Settle();
    AscendC::Mul(Leave(), Leave(), v.step, kVectorElements);
    Settle();
    Spread(1, Leave());
    Settle();
  }

  // [32 rows][8 heads][8], one of the two factors of each row repeated over a block.
  __aicore__ inline AscendC::LocalTensor<float> Broadcast(int32_t which) const {
    return Ub<float>(t_->common.ub.broadcast + which * kTileBytes, kTileElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> Row(int32_t which) const {
    return Ub<float>(t_->ub.rows + which * kVectorBytes, kVectorElements);
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> Scratch(int32_t which) const { return sums_.Scratch(which); }
  __aicore__ inline AscendC::LocalTensor<float> Enter() const { return Scratch(DecaySums::kFirst); }
  __aicore__ inline AscendC::LocalTensor<float> Leave() const { return Scratch(DecaySums::kTerm); }

  __aicore__ inline void Spread(int32_t which, const AscendC::LocalTensor<float>& vector) {
    AscendC::Brcb(Broadcast(which), vector[sub_ * kVectorRows * kMaxHeads], kVectorRows,
                  AscendC::BrcbRepeatParams(1, 8));
  }

  // Enter = exp(cum_i), Leave = exp(cum_last - cum_j).
  __aicore__ inline void Factors(const BackwardVectors& v) {
    const AscendC::LocalTensor<float> low = Scratch(DecaySums::kPing);
    AscendC::Add(Enter(), v.hi, v.lo, kVectorElements);
    AscendC::Sub(Leave(), v.hi[kLast], v.hi, kLanes, kVectorRepeats, RowWise(1, 8, 0, 0, 1, 8));
    AscendC::Sub(low, v.lo[kLast], v.lo, kLanes, kVectorRepeats, RowWise(1, 8, 0, 0, 1, 8));
    Settle();
    AscendC::Add(Leave(), Leave(), low, kVectorElements);
    AscendC::Exp(Enter(), Enter(), kVectorElements);
    Settle();
    AscendC::Exp(Leave(), Leave(), kVectorElements);
    Settle();
  }

  __aicore__ inline void SendSteps(const Step& step, const BackwardVectors& v,
                                   const AscendC::LocalTensor<float>& slope) {
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Adds(tile, v.step, 0.0f, kVectorElements);
    AscendC::Adds(tile[kVectorElements], slope, 0.0f, kVectorElements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::DataCopy(ring_.Steps(step.index), tile, 2 * kVectorElements);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  const SsdBackwardTiling* t_;
  BackwardRing<Op> ring_;
  int32_t sub_;
  TilePool* out_;
  DecaySums sums_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_DECAY_H
