// selective_backward_sums.h -- dB and dC of a stretch of tokens: sums over the channels of a part, kept on chip
// until all of its blocks have added to them.
//
// Eight partial sums for each (state, token) of a tile, one of every eight channels, are summed once more for
// the whole tile. What is kept is [tile][dB, dC][state][tokens of a tile, rounded up to whole 16-bit blocks].
#ifndef VMAMBA2_SELECTIVE_BACKWARD_SUMS_H
#define VMAMBA2_SELECTIVE_BACKWARD_SUMS_H

#include "selective_task.h"

namespace vmamba2 {

class SelectiveChannelSums {
 public:
  __aicore__ inline void Init(const SelectiveTiling* tiling, GM_ADDR db, GM_ADDR dc) {
    t_ = tiling;
    ub_ = &tiling->ub_backward;
    db_ = db;
    dc_ = dc;
    width_ = RowPitch<half>(tiling->backward.tile);
    // Short tiles leave tokens alone that are summed all the same.
    AscendC::Duplicate(Ub<float>(ub_->partial, TileElements() * kBlockFloats), 0.0f,
                       TileElements() * kBlockFloats);
  }

  // Where the partial sums of one state go, one block for each token.
  __aicore__ inline AscendC::LocalTensor<float> Partial(bool second, int32_t state) const {
    return Ub<float>(
        ub_->partial,
        TileElements() * kBlockFloats)[((second ? kChunkStates : 0) + state) * width_ * kBlockFloats];
  }

  // A tile's partial sums are complete; `fresh` if no other block has added to its sums.
  __aicore__ inline void AddTile(int32_t tile, bool fresh) {
    const AscendC::LocalTensor<float> kept =
        Ub<float>(ub_->sums, Tiles() * TileElements())[tile * TileElements()];
    const AscendC::LocalTensor<float> totals = Ub<float>(ub_->totals, TileElements());
    AscendC::BlockReduceSum(fresh ? kept : totals, Partial(false, 0), TileElements() / kBlockFloats, kLanes,
                            1, 1, kBlockFloats);
    Settle();
    if (!fresh) {
      AscendC::Add(kept, kept, totals, TileElements());
      Settle();
    }
  }

  // All blocks have added to the stretch.
  template <typename E>
  __aicore__ inline void Store(const SelectiveCursor& at) {
    const int32_t tiles = (at.tokens + t_->backward.tile - 1) / t_->backward.tile;
    const AscendC::LocalTensor<E> leaving = Ub<E>(ub_->leaving, Tiles() * TileElements());
    const AscendC::LocalTensor<float> kept = Ub<float>(ub_->sums, Tiles() * TileElements());
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    if constexpr (sizeof(E) == 4) {
      AscendC::Adds(leaving, kept, 0.0f, tiles * TileElements());
    } else {
      AscendC::Cast(leaving, kept, AscendC::RoundMode::CAST_RINT,
                    static_cast<uint32_t>(tiles * TileElements()));
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    const int64_t unit = (static_cast<int64_t>(at.part) * t_->batch + at.batch) * t_->ngroups + at.group;
    const int64_t place = (unit * t_->dstate + at.state) * t_->seqlen + at.token;
    for (int32_t which = 0; which < 2; ++which) {
      AscendC::GlobalTensor<E> dst;
      dst.SetGlobalBuffer(reinterpret_cast<__gm__ E*>(which == 0 ? db_ : dc_));
      for (int32_t tile = 0; tile < tiles; ++tile) {
        const int32_t token = tile * t_->backward.tile, rest = at.tokens - token;
        PutRows(dst, place + token, t_->seqlen,
                leaving[tile * TileElements() + which * kChunkStates * width_], width_, at.states,
                rest < t_->backward.tile ? rest : t_->backward.tile);
      }
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
  }

 private:
  __aicore__ inline int32_t TileElements() const { return 2 * kChunkStates * width_; }
  __aicore__ inline int32_t Tiles() const {
    return (t_->backward.stretch + t_->backward.tile - 1) / t_->backward.tile;
  }

  const SelectiveTiling* t_;
  const SelectiveBackwardLayout* ub_;
  GM_ADDR db_;
  GM_ADDR dc_;
  int32_t width_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_BACKWARD_SUMS_H
