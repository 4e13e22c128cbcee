// ssd_decay_sums.h -- from dt to the steps of one chunk and the sums of its log decays, on a vector core, for all
// heads of a task. Shared by forward and backward.
//
//   step = clamp(softplus(dt + bias))     a = step A, plus kReset at a reset     cum = inclusive sum of a
//
// Layout: [64 tokens][8 heads] float32, one 32-byte block per token. A backward scan sums from the end.
//   Numerics  a is split into hi, a multiple of 2^-10 with sums exact in float32, and a small lo. a below -104 is
//             -104: float32 cannot tell exp of the two apart.
//             A maximum may swallow a NaN: 0 times the value is added back, so that NaN, and an infinite dt
//             or A, give NaN.
//   Tail      tokens past the end have step 0 and a 0: they neither decay nor add.
#ifndef VMAMBA2_SSD_DECAY_SUMS_H
#define VMAMBA2_SSD_DECAY_SUMS_H

#include "ssd_forward_protocol.h"
#include "vector_math.h"
#include "vector_tiles.h"

namespace vmamba2 {

constexpr int32_t kVectorElements = kChunk * kMaxHeads;
constexpr int32_t kVectorBytes = kVectorElements * 4;
constexpr int32_t kVectorRepeats = kVectorElements / kLanes;
constexpr float kSmallestDecay = -104.0f;
constexpr float kReset = -128.0f;  // exp(kReset) is 0 in float32
constexpr float kGrid = 12288.0f;  // adding and subtracting it rounds to a multiple of 2^-10
constexpr float kLargestFloat = 3.0e38f;

// What the decays of a call are made of.
struct DecayAddresses {
  GM_ADDR dt;
  GM_ADDR a;
  GM_ADDR dt_bias;
  GM_ADDR resets;
};

class DecaySums {
 public:
  // Scratch vectors, in units of kVectorBytes inside the work region; kPing and kPong hold hi and lo side by
  // side. After Compute, kStep holds the steps and kPing the sums; the others are free.
  static constexpr int32_t kStep = 0, kPing = 1, kPong = 3, kFirst = 5, kSecond = 6, kTerm = 7;
  static_assert(3 * kBlockBytes + kVectorBytes <= kSmallBytes, "the small vectors must fit their region");
  static_assert((kTerm + 1) * kVectorBytes <= 2 * kTileBytes, "the scratch vectors must fit the work region");

  __aicore__ inline void Init(const SsdForwardTiling* tiling, const DecayAddresses& gm, TilePool* in) {
    t_ = tiling;
    in_ = in;
    a_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.a), tiling->nheads);
    if (tiling->has_bias) {
      bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.dt_bias), tiling->nheads);
    }
    if (tiling->has_resets) {
      resets_gm_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.resets), tiling->batch * tiling->seqlen);
    }
    dt_address_ = gm.dt;
    uint32_t at = tiling->ub.small;
    a_block_ = at;
    bias_block_ = at += kBlockBytes;
    ones_ = at += kBlockBytes;
    offsets_ = at += kBlockBytes;
    MakeOffsets();
    AscendC::Duplicate(Ones(), 1.0f, kBlockFloats);
  }

  __aicore__ inline AscendC::LocalTensor<float> Ones() const { return Ub<float>(ones_, kBlockFloats); }
  // Byte offsets that read [64][8] along the tokens of each head.
  __aicore__ inline AscendC::LocalTensor<uint32_t> Offsets() const {
    return Ub<uint32_t>(offsets_, kVectorElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> Scratch(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kVectorBytes, kVectorElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> Pair(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kVectorBytes, 2 * kVectorElements);
  }

  // Steps and sums of a chunk. `spare` is a vector that may be overwritten. With kSlope, also the derivative of
  // each step by its dt, into `slope`.
  template <bool kSlope>
  __aicore__ inline void Compute(const Step& step, const AscendC::LocalTensor<float>& spare,
                                 const AscendC::LocalTensor<float>& slope) {
    if (step.opens && step.direction == 0) {
      OpenTask(step);
    }
    LoadSteps(step);
    Steps<kSlope>(step, slope);
    Decays(step, spare);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot_);
  }

 private:
  __aicore__ inline void MakeOffsets() {
    AscendC::LocalTensor<int32_t> offsets = Ub<int32_t>(offsets_, kVectorElements);
    AscendC::CreateVecIndex(offsets, static_cast<int32_t>(0), static_cast<uint32_t>(kChunk));
    Settle();
    AscendC::Muls(offsets, offsets, static_cast<int32_t>(kMaxHeads * 4), kChunk);
    Settle();
    for (int32_t head = 1; head < kMaxHeads; ++head) {
      AscendC::Adds(offsets[head * kChunk], offsets, static_cast<int32_t>(head * 4), kChunk);
    }
    Settle();
  }

  __aicore__ inline void OpenTask(const Step& step) {
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    const AscendC::DataCopyExtParams row(1, static_cast<uint32_t>(step.heads * 4), 0, 0, 0);
    const AscendC::DataCopyPadExtParams<float> zeros(true, 0, kMaxHeads - step.heads, 0.0f);
    AscendC::DataCopyPad(Ub<float>(a_block_, kBlockFloats), a_[step.first_head], row, zeros);
    if (t_->has_bias) {
      AscendC::DataCopyPad(Ub<float>(bias_block_, kBlockFloats), bias_[step.first_head], row, zeros);
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
  }

  template <typename E>
  __aicore__ inline void LoadStepsAs(const Step& step) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(E));
    AscendC::GlobalTensor<E> dt;
    dt.SetGlobalBuffer(reinterpret_cast<__gm__ E*>(dt_address_), SpanElements(*t_, t_->dt, t_->nheads, 1));
    AscendC::LocalTensor<E> raw = in_->template Tile<E>(slot_);
    const uint32_t bytes = static_cast<uint32_t>(step.heads * sizeof(E));
    const AscendC::DataCopyPadExtParams<E> zeros(true, 0, kWidth - step.heads, static_cast<E>(0.0f));
    for (int32_t row = 0; row < step.tokens;) {
      const Run run = NextRun(*t_, step.direction, step.chunk * kChunk + row, step.tokens - row);
      const int64_t gap = run.distance * t_->dt.token * static_cast<int64_t>(sizeof(E)) - bytes;
      const int64_t at = step.batch * t_->dt.batch + run.position * t_->dt.token + step.first_head;
      const AscendC::DataCopyExtParams rows(run.count, bytes, static_cast<uint32_t>(gap), 0, 0);
      AscendC::DataCopyPad(raw[row * kWidth], dt[at], rows, zeros);
      row += run.count;
    }
  }

  __aicore__ inline void LoadSteps(const Step& step) {
    slot_ = in_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot_);
    if (t_->dt_dtype == static_cast<int32_t>(DType::kFloat32)) {
      LoadStepsAs<float>(step);
    } else if (t_->dt_dtype == static_cast<int32_t>(DType::kFloat16)) {
      LoadStepsAs<half>(step);
    } else {
      LoadStepsAs<bfloat16_t>(step);
    }
    if (t_->has_resets) {
      const AscendC::DataCopyExtParams row(1, static_cast<uint32_t>(step.tokens * 4), 0, 0, 0);
      const int32_t missing = (kBlockFloats - step.tokens % kBlockFloats) % kBlockFloats;
      const AscendC::DataCopyPadExtParams<float> zeros(true, 0, missing, 0.0f);
      AscendC::DataCopyPad(Resets(), resets_gm_[step.batch * t_->seqlen + step.chunk * kChunk], row, zeros);
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot_);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot_);
  }

  // Behind the steps in their tile.
  __aicore__ inline AscendC::LocalTensor<float> Resets() const {
    return in_->template Tile<float>(slot_)[kVectorElements];
  }

  // dst = dt as float32, tokens past the end 0.
  template <typename E>
  __aicore__ inline void Widen(const AscendC::LocalTensor<float>& dst, int32_t tokens) {
    AscendC::LocalTensor<E> raw = in_->template Tile<E>(slot_);
    if constexpr (sizeof(E) == 4) {
      AscendC::Adds(dst, raw, 0.0f, tokens * kMaxHeads);
    } else {
      AscendC::Cast(dst, raw, AscendC::RoundMode::CAST_NONE, static_cast<uint64_t>(kMaxHeads), tokens,
                    AscendC::UnaryRepeatParams(1, 1, 1, 1));
    }
  }

  template <bool kSlope>
  __aicore__ inline void Steps(const Step& step, const AscendC::LocalTensor<float>& slope) {
    AscendC::LocalTensor<float> dt = Scratch(kStep);
    if (t_->dt_dtype == static_cast<int32_t>(DType::kFloat32)) {
      Widen<float>(dt, step.tokens);
    } else if (t_->dt_dtype == static_cast<int32_t>(DType::kFloat16)) {
      Widen<half>(dt, step.tokens);
    } else {
      Widen<bfloat16_t>(dt, step.tokens);
    }
    ZeroTail(dt, step.tokens);
    Settle();
    if (t_->has_bias) {
      AscendC::Add(dt, dt, Ub<float>(bias_block_, kBlockFloats), kLanes, kVectorRepeats,
                   RowWise(1, 8, 1, 8, 0, 0));
      Settle();
    }
    if constexpr (kSlope) {
      StartSlope(slope, dt);
    }
    if (t_->softplus) {
      static_assert(kPing + kSoftplusScratch <= kFirst, "softplus must leave the vectors behind it alone");
      Softplus(dt, Ub<float>(t_->ub.work + kPing * kVectorBytes, kSoftplusScratch * kVectorElements),
               kVectorElements);
    }
    if (Clamps()) {
      Clamp<kSlope>(dt, slope);
    }
    if constexpr (kSlope) {
      ZeroTail(slope, step.tokens);
    }
    ZeroTail(dt, step.tokens);
    Settle();
  }

  // Softplus is never below 0, nor does it swallow a NaN.
  __aicore__ inline bool Clamps() const {
    const bool low = t_->dt_low > (t_->softplus ? 0.0f : -kLargestFloat);
    return low || t_->dt_high < kLargestFloat;
  }

  template <bool kSlope>
  __aicore__ inline void Clamp(const AscendC::LocalTensor<float>& dt,
                               const AscendC::LocalTensor<float>& slope) {
    const AscendC::LocalTensor<float> poison = Scratch(kPing), unclamped = Scratch(kPing + 1);
    AscendC::Muls(poison, dt, 0.0f, kVectorElements);
    if constexpr (kSlope) {
      AscendC::Adds(unclamped, dt, 0.0f, kVectorElements);
    }
    Settle();
    AscendC::Maxs(dt, dt, t_->dt_low, kVectorElements);
    Settle();
    if (t_->dt_high < kLargestFloat) {
      AscendC::Mins(dt, dt, t_->dt_high, kVectorElements);
      Settle();
    }
    if constexpr (kSlope) {
      EndSlope(slope, dt, unclamped);
    }
    AscendC::Add(dt, dt, poison, kVectorElements);
    Settle();
  }

  // slope = the derivative of softplus: 1 / (1 + exp(-x)), which is 0 where exp overflows.
  __aicore__ inline void StartSlope(const AscendC::LocalTensor<float>& slope,
                                    const AscendC::LocalTensor<float>& x) {
    const AscendC::LocalTensor<float> ones = Scratch(kPing);
    if (!t_->softplus) {
      AscendC::Duplicate(slope, 1.0f, kVectorElements);
      Settle();
      return;
    }
    AscendC::Duplicate(ones, 1.0f, kVectorElements);
    SigmoidDivisor(slope, x, kVectorElements);
    AscendC::Div(slope, ones, slope, kVectorElements);
    Settle();
  }

  // Nothing passes a clamp that is active: the slope is 0 wherever clamping changed the value.
  __aicore__ inline void EndSlope(const AscendC::LocalTensor<float>& slope,
                                  const AscendC::LocalTensor<float>& clamped,
                                  const AscendC::LocalTensor<float>& unclamped) {
    constexpr float kAnyDifference = 1.0e30f;
    AscendC::Sub(unclamped, unclamped, clamped, kVectorElements);
    Settle();
    AscendC::Abs(unclamped, unclamped, kVectorElements);
    Settle();
    AscendC::Muls(unclamped, unclamped, -kAnyDifference, kVectorElements);
    Settle();
    AscendC::Adds(unclamped, unclamped, 1.0f, kVectorElements);
    Settle();
    AscendC::Maxs(unclamped, unclamped, 0.0f, kVectorElements);
    Settle();
    AscendC::Mul(slope, slope, unclamped, kVectorElements);
    Settle();
  }

  __aicore__ inline void ZeroTail(const AscendC::LocalTensor<float>& vector, int32_t tokens) {
    if (tokens < kChunk) {
      AscendC::Duplicate(vector[tokens * kMaxHeads], 0.0f, (kChunk - tokens) * kMaxHeads);
    }
  }

  // kPing = inclusive sums of hi and lo, side by side for each token.
  __aicore__ inline void Decays(const Step& step, const AscendC::LocalTensor<float>& spare) {
    AscendC::LocalTensor<float> a = Scratch(kTerm), ping = Pair(kPing), pong = Pair(kPong);
    AscendC::Mul(a, Scratch(kStep), Ub<float>(a_block_, kBlockFloats), kLanes, kVectorRepeats,
                 RowWise(1, 8, 1, 8, 0, 0));
    Settle();
    const AscendC::LocalTensor<float> poison = Scratch(kFirst);
    AscendC::Muls(poison, a, 0.0f, kVectorElements);
    Settle();
    AscendC::Maxs(a, a, kSmallestDecay, kVectorElements);
    Settle();
    AscendC::Add(a, a, poison, kVectorElements);
    Settle();
    if (t_->has_resets) {
      AddResets(a, step.tokens, spare);
    }
    AscendC::Adds(Scratch(kFirst), a, kGrid, kVectorElements);
    Settle();
    AscendC::Adds(ping, Scratch(kFirst), -kGrid, kLanes, kVectorRepeats,
                  AscendC::UnaryRepeatParams(2, 1, 16, 8));
    Settle();
    AscendC::Sub(ping[kBlockFloats], a, ping, kLanes, kVectorRepeats, RowWise(2, 16, 1, 8, 2, 16));
    Settle();
    for (int32_t shift = 1; shift < kChunk; shift *= 2) {
      const int32_t part = shift * 2 * kMaxHeads;
      const int32_t rest = 2 * kVectorElements - part;
      if (step.backward) {
        AscendC::Add(pong, ping, ping[part], rest);
        AscendC::Adds(pong[rest], ping[rest], 0.0f, part);
      } else {
        AscendC::Add(pong[part], ping[part], ping, rest);
        AscendC::Adds(pong, ping, 0.0f, part);
      }
      Settle();
      AscendC::LocalTensor<float> swap = ping;
      ping = pong;
      pong = swap;
    }
  }

  __aicore__ inline void AddResets(const AscendC::LocalTensor<float>& a, int32_t tokens,
                                   const AscendC::LocalTensor<float>& spare) {
    AscendC::LocalTensor<float> resets = Resets();
    const int32_t covered = (tokens + kBlockFloats - 1) / kBlockFloats * kBlockFloats;
    if (covered < kChunk) {
      AscendC::Duplicate(resets[covered], 0.0f, kChunk - covered);
      Settle();
    }
    AscendC::Brcb(spare, resets, kChunk / kBlockFloats, AscendC::BrcbRepeatParams(1, 8));
    Settle();
    AscendC::Axpy(a, spare, kReset, kVectorElements);
    Settle();
  }

  const SsdForwardTiling* t_;
  AscendC::GlobalTensor<float> a_, bias_, resets_gm_;
  GM_ADDR dt_address_;
  TilePool* in_;
  int32_t slot_;
  uint32_t a_block_, bias_block_, ones_, offsets_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_DECAY_SUMS_H
