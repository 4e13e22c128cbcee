// selective_backward_tile.h -- the gradients of one tile of tokens and one chunk of states, everything on
// chip.
//
//   forward again   h_t = a_t h_{t-1} + step_t u_t B_t,   a_t = exp(step_t A)
//   backward        s_t = dout_t C_t + a_{t+1} s_{t+1}
//   dC_t = sum dout_t h_t    dB_t = sum step_t u_t s_t           over channels: first inside blocks of eight
//   dproduct_t = sum s_t B_t                                     over states: the gradient of step_t u_t
//   q_t = s_t a_t h_{t-1}    dA = sum q_t step_t                 over tokens
//   dstep_t = sum q_t A + dproduct_t u_t                         over states
//
// Layout: [state][token][64 channels]. The three of them, a, h and s, are used up one after the other: what is
// needed per state is summed in place.
#ifndef VMAMBA2_SELECTIVE_BACKWARD_TILE_H
#define VMAMBA2_SELECTIVE_BACKWARD_TILE_H

#include "selective_backward_sums.h"

namespace vmamba2 {

class SelectiveBackwardTile {
 public:
  __aicore__ inline void Init(const SelectiveTiling* tiling, SelectiveChannelSums* sums) {
    t_ = tiling;
    ub_ = &tiling->ub_backward;
    sums_ = sums;
    AscendC::Duplicate(Before(), 0.0f, kBlockChannels);
    Settle();
  }

  __aicore__ inline AscendC::LocalTensor<float> Lanes(uint32_t region) const {
    return Ub<float>(region, RowPitch<half>(t_->backward.stretch) * kBlockChannels);
  }
  __aicore__ inline AscendC::LocalTensor<float> Slot(uint32_t region, const SelectiveCursor& at) const {
    return Ub<float>(region + (t_->resident ? at.Slot() : 0) * kStateElements * 4, kStateElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> Vector(const SelectiveCursor& at, int32_t which) const {
    return Ub<float>(ub_->vectors + (4 * at.block + which) * kBlockChannels * 4, kBlockChannels);
  }
  __aicore__ inline AscendC::LocalTensor<float> Start(int32_t tile) const {
    return Ub<float>(ub_->starts + tile * kStateElements * 4, kStateElements);
  }
  // B spread, then C.
  __aicore__ inline AscendC::LocalTensor<float> Spread(bool second) const {
    const int32_t elements = kChunkStates * SpreadPitch(t_->backward.stretch) * kBlockFloats;
    return Ub<float>(ub_->spread + (second ? elements * 4 : 0), elements);
  }
  __aicore__ inline int32_t Tiles(const SelectiveCursor& at) const {
    return (at.tokens + t_->backward.tile - 1) / t_->backward.tile;
  }

  // The states before all tiles but the first, which the caller has put in place.
  __aicore__ inline void FindStarts(const SelectiveCursor& at) {
    for (int32_t tile = 0; tile + 1 < Tiles(at); ++tile) {
      Choose(at, tile);
      States(at, tile);
      AscendC::Adds(Start(tile + 1), H(0)[slice_ - kBlockChannels], 0.0f, kLanes, at.states,
                    AscendC::UnaryRepeatParams(1, 1, 8, apart_));
      Settle();
    }
  }

  // All but dstep, which StepGradients finds from what this leaves in `decay`. `fresh`: the sums over channels
  // start here.
  __aicore__ inline void Gradients(const SelectiveCursor& at, int32_t tile, bool fresh) {
    Choose(at, tile);
    States(at, tile);
    StateGradients(at);
    DecayGradients(at, tile);
    if (t_->has_z) {
      Outputs(at);
    }
    ChannelSums(at);
    sums_->AddTile(tile, fresh);
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(S(n), Decay(n), Here(ub_->step), slice_);
    }
    Settle();
    for (int32_t n = 0; n < at.states; ++n) {
      AddTokens(Slot(ub_->da, at)[n * kBlockChannels], S(n));
    }
    Settle();
  }

  // In the first slice of `decay` dstep without dproduct's share.
  __aicore__ inline void StepGradients(const SelectiveCursor& at) {
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(Decay(n), Decay(n), Slot(ub_->a, at)[n * kBlockChannels], kLanes, tokens_, TimesVector());
    }
    Settle();
    SumStates(Decay(0), at.states, slice_);
    if (t_->chunks > 1) {
      Keep(at);
    }
  }

  // What needs the sums over all states; du, ddelta and dz take the places of u, step and slope.
  __aicore__ inline void Finish(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> dproduct = H(0), dstep = Decay(0);
    const AscendC::LocalTensor<float> first = Scratch(kFirst), second = Scratch(kSecond);
    const AscendC::LocalTensor<float> u = Here(ub_->u), step = Here(ub_->step), dout = Here(ub_->dout);
    Settle();
    AscendC::MulAddDst(dstep, dproduct, u, slice_);
    Settle();
    AscendC::Mul(dproduct, dproduct, step, slice_);
    if (t_->has_d) {
      AscendC::Mul(first, dout, u, slice_);
      AscendC::Mul(second, u, Vector(at, 0), kLanes, tokens_, TimesVector());
      Settle();
      AddTokens(Vector(at, 2), first);
      AscendC::Mul(u, dout, Vector(at, 0), kLanes, tokens_, TimesVector());
      if (t_->has_z) {
        AscendC::Add(Scratch(kY), Scratch(kY), second, slice_);
      }
      Settle();
      AscendC::Add(u, u, dproduct, slice_);
    } else {
      Settle();
      AscendC::Adds(u, dproduct, 0.0f, slice_);
    }
    if (t_->has_z) {
      AscendC::Mul(Here(ub_->slope), Here(ub_->slope), Scratch(kY), slice_);
    }
    if (t_->softplus) {
      AscendC::Mul(step, dstep, Here(ub_->sigmoid), slice_);
    } else {
      AscendC::Adds(step, dstep, 0.0f, slice_);
    }
    Settle();
    if (t_->has_bias) {
      AddTokens(Vector(at, 3), step);
      Settle();
    }
  }

 private:
  enum Work { kInput, kFirst, kSecond, kY };

  __aicore__ inline void Choose(const SelectiveCursor& at, int32_t tile) {
    token_ = tile * t_->backward.tile;
    const int32_t rest = at.tokens - token_;
    tokens_ = rest < t_->backward.tile ? rest : t_->backward.tile;
    slice_ = tokens_ * kBlockChannels;
    apart_ = tokens_ * kBlockFloats;
  }

  __aicore__ inline AscendC::LocalTensor<float> Tile(uint32_t region, int32_t state) const {
    return Ub<float>(region, kChunkStates * t_->backward.tile * kBlockChannels)[state * slice_];
  }
  // One state's tokens: a, later q and q A; s; and h, of which Before() is the states one token earlier, but for
  // the first token.
  __aicore__ inline AscendC::LocalTensor<float> Decay(int32_t state) const { return Tile(ub_->decay, state); }
  __aicore__ inline AscendC::LocalTensor<float> S(int32_t state) const { return Tile(ub_->gradient, state); }
  __aicore__ inline AscendC::LocalTensor<float> H(int32_t state) const {
    return Tile(ub_->state + kBlockChannels * 4, state);
  }
  __aicore__ inline AscendC::LocalTensor<float> Before() const {
    return Ub<float>(ub_->state, (kChunkStates * t_->backward.tile + 1) * kBlockChannels);
  }
  __aicore__ inline AscendC::LocalTensor<float> Scratch(int32_t which) const {
    const int32_t elements = t_->backward.tile * kBlockChannels;
    return Ub<float>(ub_->work + which * elements * 4, elements);
  }
  __aicore__ inline int32_t SpreadPitch(int32_t tokens) const {
    return t_->dtype == static_cast<int32_t>(DType::kFloat32) ? RowPitch<float>(tokens)
                                                              : RowPitch<half>(tokens);
  }
  // This tile's tokens of lanes of the stretch.
  __aicore__ inline AscendC::LocalTensor<float> Here(uint32_t region) const {
    return Lanes(region)[token_ * kBlockChannels];
  }
  __aicore__ inline AscendC::LocalTensor<float> SpreadHere(bool second, const SelectiveCursor& at,
                                                           int32_t state) const {
    return Spread(second)[(state * SpreadPitch(at.tokens) + token_) * kBlockFloats];
  }

  __aicore__ inline void States(const SelectiveCursor& at, int32_t tile) {
    const AscendC::LocalTensor<float> input = Scratch(kInput), a = Slot(ub_->a, at);
    AscendC::Mul(input, Here(ub_->u), Here(ub_->step), slice_);
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(Decay(n), Here(ub_->step), a[n * kBlockChannels], kLanes, tokens_, TimesVector());
    }
    Settle();
    AscendC::Exp(Decay(0), Decay(0), at.states * slice_);
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(H(n), input, SpreadHere(false, at, n), kLanes, tokens_, TimesSpread());
    }
    Settle();
    const AscendC::LocalTensor<float> decay = Decay(0), h = H(0);
    AscendC::MulAddDst(h, decay, Start(tile), kLanes, at.states, RowWise(1, apart_, 1, apart_, 1, 8));
    Settle();
    for (int32_t token = 1; token < tokens_; ++token) {
      const int32_t now = token * kBlockChannels;
      AscendC::MulAddDst(h[now], decay[now], h[now - kBlockChannels], kLanes, at.states,
                         RowWise(1, apart_, 1, apart_, 1, apart_));
      Settle();
    }
  }

  __aicore__ inline void StateGradients(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> s = S(0), decay = Decay(0);
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(S(n), Here(ub_->dout), SpreadHere(true, at, n), kLanes, tokens_, TimesSpread());
    }
    Settle();
    const AscendC::LocalTensor<float> last = s[slice_ - kBlockChannels];
    AscendC::Add(last, last, Slot(ub_->carry, at), kLanes, at.states, RowWise(1, apart_, 1, apart_, 1, 8));
    Settle();
    for (int32_t token = tokens_ - 2; token >= 0; --token) {
      const int32_t now = token * kBlockChannels, next = now + kBlockChannels;
      AscendC::MulAddDst(s[now], decay[next], s[next], kLanes, at.states,
                         RowWise(1, apart_, 1, apart_, 1, apart_));
      Settle();
    }
  }

  // The carried gradient, and q in the place of a.
  __aicore__ inline void DecayGradients(const SelectiveCursor& at, int32_t tile) {
    const AscendC::LocalTensor<float> q = Decay(0), carry = Slot(ub_->carry, at);
    AscendC::Mul(q, q, S(0), at.states * slice_);
    Settle();
    AscendC::Adds(carry, q, 0.0f, kLanes, at.states, AscendC::UnaryRepeatParams(1, 1, 8, apart_));
    Settle();
    AscendC::Mul(q, q, Before(), at.states * slice_);
    Settle();
    AscendC::Mul(q, carry, Start(tile), kLanes, at.states, RowWise(1, apart_, 1, 8, 1, 8));
  }

  // y before the gate.
  __aicore__ inline void Outputs(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> y = Scratch(kY);
    AscendC::Mul(y, H(0), SpreadHere(true, at, 0), kLanes, tokens_, TimesSpread());
    Settle();
    for (int32_t n = 1; n < at.states; ++n) {
      AscendC::MulAddDst(y, H(n), SpreadHere(true, at, n), kLanes, tokens_, TimesSpread());
      Settle();
    }
  }

  // Partial sums for dB and dC, and dproduct in the first slice of h; s and h are used up.
  __aicore__ inline void ChannelSums(const SelectiveCursor& at) {
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(H(n), H(n), Here(ub_->dout), slice_);
    }
    Settle();
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::BlockReduceSum(sums_->Partial(true, n), H(n), tokens_, kLanes, 1, 1, 8);
    }
    Settle();
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(H(n), S(n), SpreadHere(false, at, n), kLanes, tokens_, TimesSpread());
    }
    Settle();
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(S(n), S(n), Scratch(kInput), slice_);
    }
    SumStates(H(0), at.states, slice_);
    Settle();
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::BlockReduceSum(sums_->Partial(false, n), S(n), tokens_, kLanes, 1, 1, 8);
    }
    Settle();
  }

  // sum += every token's lanes.
  __aicore__ inline void AddTokens(const AscendC::LocalTensor<float>& sum,
                                   const AscendC::LocalTensor<float>& lanes) {
    AscendC::Add(sum, lanes, sum, kLanes, tokens_, RowWise(1, 0, 1, 8, 1, 0));
  }

  // With several chunks of states the sums over states are carried from chunk to chunk.
  __aicore__ inline void Keep(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> sums[3] = {H(0), Decay(0), Scratch(kY)};
    const int32_t lanes = RowPitch<half>(t_->backward.stretch) * kBlockChannels * 4;
    for (int32_t i = 0; i < (t_->has_z ? 3 : 2); ++i) {
      const AscendC::LocalTensor<float> kept = Here(ub_->kept + i * lanes);
      if (at.chunk > 0) {
        AscendC::Add(sums[i], sums[i], kept, slice_);
        Settle();
      }
      if (at.chunk + 1 < t_->chunks) {
        AscendC::Adds(kept, sums[i], 0.0f, slice_);
        Settle();
      }
    }
  }

  const SelectiveTiling* t_;
  const SelectiveBackwardLayout* ub_;
  SelectiveChannelSums* sums_;
  int32_t token_, tokens_;  // of the tile, in the stretch
  int32_t slice_, apart_;   // elements and blocks of one state's tokens
};

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_BACKWARD_TILE_H
