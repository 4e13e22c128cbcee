// ssd_backward_conclude.h -- from the sums that both vector cores have sent to the gradients of dt, A and dt_bias.
//
//   dlog_t  = crossing_t + sum_i>=t from_start_i + sum_j<t step_j into_end_j + through
//   dstep_t = A dlog_t + column_t + diagonal_t + into_end_t
//   d(dt)_t = dstep_t slope_t        dA = sum_t dlog_t step_t        d(dt_bias) = sum_t d(dt)_t
//
// dlog is the gradient of the log decay a_t of a token: it collects what reads across it, tokens from it on from
// before it. The two cores take turns, a chunk each, and each keeps totals of its own: dA and ddt_bias are
// (batch, 2, nheads), to be summed.
//   Numerics  float32. Sums only ever add: a difference of totals would leave the rounding of the largest term on
//             the smallest.
//   Layout    [64 tokens][8 heads]; what arrives is [8 heads][64 tokens].
#ifndef VMAMBA2_SSD_BACKWARD_CONCLUDE_H
#define VMAMBA2_SSD_BACKWARD_CONCLUDE_H

#include "ssd_backward_decay.h"

namespace vmamba2 {

template <typename Op>
class Conclusion {
  using Vector = AscendC::LocalTensor<float>;
  // Vectors of the work region.
  static constexpr int32_t kOffsets = 0, kCross = 1, kDiagonalHere = 2, kStart = 3, kEnd = 4, kColumn = 5;
  static constexpr int32_t kTermA = 6, kTermB = 7, kStepHere = 8, kSlope = 9, kPrefix = 10, kOther = 11;
  static constexpr int32_t kThroughHere = 12;
  static_assert((kThroughHere + 1) * kVectorBytes <= 4 * kTileBytes, "the vectors must fit the work region");

 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm,
                              const BackwardRing<Op>& ring, int32_t sub, TilePool* in, TilePool* out) {
    t_ = &tiling->common;
    tiling_ = tiling;
    ring_ = ring;
    sub_ = sub;
    in_ = in;
    out_ = out;
    const int64_t partial = t_->batch * 2 * t_->nheads;
    a_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.a), t_->nheads);
    ddt_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.ddt), t_->batch * t_->seqlen * t_->nheads);
    da_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.da), partial);
    if (t_->has_bias) {
      dbias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.ddt_bias), partial);
    }
  }

  __aicore__ inline void Run(const Step& step) {
    if (step.opens) {
      Open(step);
    }
    if (step.index % 2 == sub_) {
      Gather(step);
      Gradients();
      Store(step);
    }
    if (step.closes) {
      StoreTotal(step, Total(0), da_);
      if (t_->has_bias) {
        StoreTotal(step, Total(1), dbias_);
      }
    }
  }

 private:
  __aicore__ inline Vector Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kVectorBytes, kVectorElements);
  }
  __aicore__ inline Vector Total(int32_t which) const {
    return Ub<float>(tiling_->ub.totals + which * kVectorBytes, kVectorElements);
  }
  __aicore__ inline Vector A() const {
    return Ub<float>(tiling_->ub.totals + 2 * kVectorBytes + kHalfVector * 4, kBlockFloats);
  }

  __aicore__ inline void Open(const Step& step) {
    Settle();
    AscendC::Duplicate(Total(0), 0.0f, kVectorElements);
    AscendC::Duplicate(Total(1), 0.0f, kVectorElements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    const AscendC::DataCopyExtParams row(1, static_cast<uint32_t>(step.heads * 4), 0, 0, 0);
    const AscendC::DataCopyPadExtParams<float> zeros(true, 0, kMaxHeads - step.heads, 0.0f);
    AscendC::DataCopyPad(A(), a_[step.first_head], row, zeros);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
    Settle();
  }

  // A tile of the pool with `kinds` vectors by head and token, from kind `first` on; heads that do not exist are 0.
  __aicore__ inline int32_t Fetch(const Step& step, int32_t first, int32_t kinds) {
    const int32_t slot = in_->Next();
    const Vector tile = in_->template Tile<float>(slot);
    const int32_t blocks = step.heads * kChunk / kBlockFloats, gap = kVectorElements / kBlockFloats - blocks;
    if (gap > 0) {
      Settle();
      AscendC::Duplicate(tile, 0.0f, kTileElements);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    AscendC::DataCopy(tile, ring_.Sums(step.index, first), AscendC::DataCopyParams(kinds, blocks, gap, gap));
    return slot;
  }
  __aicore__ inline void Fetched(int32_t slot) {
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
  }

  // Byte offsets that read [8][64] by token.
  __aicore__ inline void MakeOffsets() {
    const AscendC::LocalTensor<int32_t> offsets =
        Ub<int32_t>(t_->ub.work + kOffsets * kVectorBytes, kVectorElements);
    AscendC::CreateVecIndex(offsets, static_cast<int32_t>(0), static_cast<uint32_t>(kMaxHeads));
    Settle();
    AscendC::Muls(offsets, offsets, static_cast<int32_t>(kChunk * 4), kMaxHeads);
    Settle();
    for (int32_t tokens = 1; tokens < kChunk; tokens *= 2) {
      AscendC::Adds(offsets[tokens * kMaxHeads], offsets, static_cast<int32_t>(tokens * 4),
                    tokens * kMaxHeads);
      Settle();
    }
  }

  __aicore__ inline void ByToken(int32_t which, const Vector& by_head) {
    AscendC::Gather(Work(which), by_head,
                    Ub<uint32_t>(t_->ub.work + kOffsets * kVectorBytes, kVectorElements), 0,
                    static_cast<uint32_t>(kVectorElements));
  }

  __aicore__ inline void Gather(const Step& step) {
    Settle();
    MakeOffsets();
    int32_t slot = Fetch(step, kDiagonal, 3);
    Fetched(slot);
    const Vector own = in_->template Tile<float>(slot);
    ByToken(kDiagonalHere, own[kDiagonal * kVectorElements]);
    ByToken(kStart, own[kFromStart * kVectorElements]);
    ByToken(kEnd, own[kIntoEnd * kVectorElements]);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    slot = Fetch(step, kColumnSums, 4);
    Fetched(slot);
    const Vector columns = in_->template Tile<float>(slot), crossing = columns[2 * kVectorElements];
    AscendC::Add(columns, columns, columns[kVectorElements], kVectorElements);
    AscendC::Add(crossing, crossing, crossing[kVectorElements], kVectorElements);
    Settle();
    ByToken(kColumn, columns);
    ByToken(kCross, crossing);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    slot = in_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    const Vector steps = in_->template Tile<float>(slot), halves = steps[2 * kVectorElements];
    AscendC::DataCopy(steps, ring_.Steps(step.index), 2 * kVectorElements);
    AscendC::DataCopy(halves, ring_.Sums(step.index, kThrough), 2 * kMaxHeads);
    Fetched(slot);
    AscendC::Add(Work(kThroughHere), halves, halves[kMaxHeads], kMaxHeads);
    AscendC::Adds(Work(kStepHere), steps, 0.0f, kVectorElements);
    AscendC::Adds(Work(kSlope), steps[kVectorElements], 0.0f, kVectorElements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    Settle();
  }

  // Inclusive sums over the tokens, from the first or from the last; the result is in the returned vector.
  __aicore__ inline Vector Accumulate(int32_t from, int32_t other, bool from_last) {
    Vector ping = Work(from), pong = Work(other);
    for (int32_t shift = 1; shift < kChunk; shift *= 2) {
      const int32_t part = shift * kMaxHeads, rest = kVectorElements - part;
      if (from_last) {
        AscendC::Add(pong, ping, ping[part], rest);
        AscendC::Adds(pong[rest], ping[rest], 0.0f, part);
      } else {
        AscendC::Add(pong[part], ping[part], ping, rest);
        AscendC::Adds(pong, ping, 0.0f, part);
      }
      Settle();
      const Vector swap = ping;
      ping = pong;
      pong = swap;
    }
    return ping;
  }

  // Work(kTermB) = the gradient of dt; totals grow.
  __aicore__ inline void Gradients() {
    const Vector step = Work(kStepHere);
    AscendC::Mul(Work(kOther), step, Work(kEnd), kVectorElements);
    Settle();
    // Before a token, not up to it.
    AscendC::Duplicate(Work(kPrefix), 0.0f, kMaxHeads);
    AscendC::Adds(Work(kPrefix)[kMaxHeads], Work(kOther), 0.0f, kVectorElements - kMaxHeads);
    Settle();
    const Vector after = Accumulate(kStart, kTermA, true), before = Accumulate(kPrefix, kOther, false);
    const Vector log_decay = Work(kTermB);
    AscendC::Add(log_decay, after, before, kVectorElements);
    AscendC::Add(Work(kCross), Work(kCross), Work(kThroughHere), kLanes, kVectorRepeats,
                 RowWise(1, 8, 1, 8, 0, 0));
    AscendC::Add(Work(kColumn), Work(kColumn), Work(kDiagonalHere), kVectorElements);
    Settle();
    AscendC::Add(log_decay, log_decay, Work(kCross), kVectorElements);
    AscendC::Add(Work(kColumn), Work(kColumn), Work(kEnd), kVectorElements);
    Settle();
    AscendC::Mul(Work(kStart), log_decay, step, kVectorElements);
    AscendC::Mul(Work(kEnd), log_decay, A(), kLanes, kVectorRepeats, RowWise(1, 8, 1, 8, 0, 0));
    Settle();
    AscendC::Add(Total(0), Total(0), Work(kStart), kVectorElements);
    AscendC::Add(log_decay, Work(kEnd), Work(kColumn), kVectorElements);
    Settle();
    AscendC::Mul(log_decay, log_decay, Work(kSlope), kVectorElements);
    Settle();
    AscendC::Add(Total(1), Total(1), log_decay, kVectorElements);
  }

  __aicore__ inline void Store(const Step& step) {
    const int32_t out = out_->Next();
    const Vector tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Adds(tile, Work(kTermB), 0.0f, kVectorElements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    const AscendC::DataCopyExtParams rows(step.tokens, static_cast<uint32_t>(step.heads * 4), 0,
                                          static_cast<uint32_t>((t_->nheads - step.heads) * 4), 0);
    const int64_t token = step.batch * t_->seqlen + step.chunk * kChunk;
    AscendC::DataCopyPad(ddt_[token * t_->nheads + step.first_head], tile, rows);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
    Settle();
  }

  __aicore__ inline void StoreTotal(const Step& step, const Vector& total,
                                    const AscendC::GlobalTensor<float>& dst) {
    Settle();
    for (int32_t tokens = kChunk / 2; tokens > 0; tokens /= 2) {
      AscendC::Add(total, total, total[tokens * kMaxHeads], tokens * kMaxHeads);
      Settle();
    }
    const int32_t out = out_->Next();
    const Vector tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Adds(tile, total, 0.0f, kMaxHeads);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    const AscendC::DataCopyExtParams row(1, static_cast<uint32_t>(step.heads * 4), 0, 0, 0);
    AscendC::DataCopyPad(dst[(step.batch * 2 + sub_) * t_->nheads + step.first_head], tile, row);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  const SsdForwardTiling* t_;
  const SsdBackwardTiling* tiling_;
  BackwardRing<Op> ring_;
  int32_t sub_;
  TilePool *in_, *out_;
  AscendC::GlobalTensor<float> a_, ddt_, da_, dbias_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_CONCLUDE_H
