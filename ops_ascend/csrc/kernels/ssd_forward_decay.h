// ssd_forward_decay.h -- the decays of one chunk in the forward, on a vector core, for all heads of a task.
//
//   row factors of C~       exp(cum_i)
//   row factors of B~       exp(cum_last - cum_j) step_j
//   factor of the state     exp(cum_last)
//   for W                   cum_j and step_j along lanes ("rows"), cum_i by token ("columns")
//
//   Numerics  cum_i - cum_j cancels: exp(cum_i - cum_j) = exp((hi_i - hi_j) + lo_i) exp(-lo_j), with the sums of
//             ssd_decay_sums.h. The 16-bit operand modes do without.
#ifndef VMAMBA2_SSD_FORWARD_DECAY_H
#define VMAMBA2_SSD_FORWARD_DECAY_H

#include "ssd_decay_sums.h"

namespace vmamba2 {

// The vectors of one chunk that outlive its preparation.
struct ChunkVectors {
  AscendC::LocalTensor<float> hi, lo;            // [64][8]
  AscendC::LocalTensor<float> hi_row, step_row;  // [8][64]
  AscendC::LocalTensor<float> decay;             // [8][8], exp(cum_last) of each head, repeated
};

template <typename Op>
class ChunkDecays {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr int32_t kCFactor = DecaySums::kFirst, kBFactor = DecaySums::kSecond;

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const SsdForwardAddresses& gm, TilePool* in) {
    t_ = tiling;
    sums_.Init(tiling, DecayAddresses{gm.dt, gm.a, gm.dt_bias, gm.resets}, in);
  }

  __aicore__ inline AscendC::LocalTensor<float> Ones() const { return sums_.Ones(); }

  __aicore__ inline ChunkVectors Vectors(int32_t slot) const {
    const uint32_t at = t_->ub.decays + slot * kDecayBytes;
    return ChunkVectors{Ub<float>(at, kVectorElements), Ub<float>(at + kVectorBytes, kVectorElements),
                        Ub<float>(at + 2 * kVectorBytes, kVectorElements),
                        Ub<float>(at + 3 * kVectorBytes, kVectorElements),
                        Ub<float>(at + 4 * kVectorBytes, kMaxHeads * kBlockFloats)};
  }

  // Prepares a chunk; leaves the row factors of C~ and B~ for this core's rows in the two broadcast regions.
  __aicore__ inline void Prepare(const Step& step, int32_t first_row) {
    const ChunkVectors v = Vectors(step.slot);
    sums_.Compute<false>(step, v.step_row, v.step_row);
    Factors(step, v);
    AscendC::Brcb(Broadcast(0), Scratch(kCFactor)[first_row * kMaxHeads], kVectorRows,
                  AscendC::BrcbRepeatParams(1, 8));
    AscendC::Brcb(Broadcast(1), Scratch(kBFactor)[first_row * kMaxHeads], kVectorRows,
                  AscendC::BrcbRepeatParams(1, 8));
    Settle();
  }

  // The columns of W: hi (and lo) of this core's rows, each repeated over a block.
  __aicore__ inline void Columns(const ChunkVectors& v, int32_t first_row) {
    Settle();
    AscendC::Brcb(Broadcast(0), v.hi[first_row * kMaxHeads], kVectorRows, AscendC::BrcbRepeatParams(1, 8));
    if constexpr (kExact) {
      AscendC::Brcb(Broadcast(1), v.lo[first_row * kMaxHeads], kVectorRows, AscendC::BrcbRepeatParams(1, 8));
    }
    Settle();
  }

  __aicore__ inline AscendC::LocalTensor<float> Broadcast(int32_t which) const {
    return Ub<float>(t_->ub.broadcast + which * kTileBytes, kTileElements);
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> Scratch(int32_t which) const { return sums_.Scratch(which); }

  // Everything that the sums are needed for.
  __aicore__ inline void Factors(const Step& step, const ChunkVectors& v) {
    AscendC::LocalTensor<float> sums = sums_.Pair(DecaySums::kPing), term = Scratch(DecaySums::kTerm),
                                dt = Scratch(DecaySums::kStep);
    AscendC::LocalTensor<float> c = Scratch(kCFactor), b = Scratch(kBFactor);
    const int32_t last = (step.backward ? 0 : kChunk - 1) * 2 * kMaxHeads;
    AscendC::Adds(v.hi, sums, 0.0f, kLanes, kVectorRepeats, AscendC::UnaryRepeatParams(1, 2, 8, 16));
    AscendC::Adds(v.lo, sums[kBlockFloats], 0.0f, kLanes, kVectorRepeats,
                  AscendC::UnaryRepeatParams(1, 2, 8, 16));
    AscendC::Sub(b, sums[last], sums, kLanes, kVectorRepeats, RowWise(1, 8, 0, 0, 2, 16));
    AscendC::Sub(c, sums[last + kBlockFloats], sums[kBlockFloats], kLanes, kVectorRepeats,
                 RowWise(1, 8, 0, 0, 2, 16));
    Settle();
    AscendC::Add(b, b, c, kVectorElements);
    Settle();
    AscendC::Exp(b, b, kVectorElements);
    AscendC::Add(term, v.hi, v.lo, kVectorElements);
    Settle();
    AscendC::Mul(b, b, dt, kVectorElements);
    AscendC::Exp(c, term, kVectorElements);
    Settle();
    AscendC::Brcb(v.decay, c[last / 2], 1, AscendC::BrcbRepeatParams(1, 8));
    Settle();
    if (t_->directions > 1) {
      AscendC::Muls(c, c, t_->direction_weight, kVectorElements);
      AscendC::Muls(dt, dt, t_->direction_weight, kVectorElements);
      Settle();
    }
    if constexpr (kExact) {
      AscendC::Muls(term, v.lo, -1.0f, kVectorElements);
      Settle();
      AscendC::Exp(term, term, kVectorElements);
      Settle();
      AscendC::Mul(dt, dt, term, kVectorElements);
    } else {
      AscendC::Adds(v.hi, term, 0.0f, kVectorElements);
    }
    Settle();
    const AscendC::LocalTensor<uint32_t> offsets = sums_.Offsets();
    const uint32_t count = static_cast<uint32_t>(step.heads * kChunk);
    AscendC::Gather(v.hi_row, v.hi, offsets, 0, count);
    AscendC::Gather(v.step_row, dt, offsets, 0, count);
    Settle();
  }

  const SsdForwardTiling* t_;
  DecaySums sums_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_DECAY_H
