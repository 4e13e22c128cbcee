// selective_scan_backward.h -- gradients of the selective scan on vector cores; the forward is
// selective_scan_forward.h, one tile's arithmetic selective_backward_tile.h.
//
// Same maths in PyTorch: ops_ascend/tiled.py selective_backward(). A task is (batch, group, part of its channel
// blocks); it walks the segments between saved states from the last to the first.
//   in     as the forward, its checkpoints, dy in T and dlast_state (batch, dim, dstate) in float32, either of
//          which may be absent
//   out    du, dz in T, ddelta in delta's dtype, contiguous; dA (rows, dim, dstate), dD and ddelta_bias
//          (rows, dim) in float32, for the caller to sum: a row for each core at most; dB, dC in T when one task has all
//          channels of a group, otherwise float32 with a leading axis of parts for the caller to sum
//   Work   in a segment the states are computed once from its start to find the tiles' starts, then again tile
//          by tile. The gradient of the state stays on chip, or in the workspace when dstate is large.
//   Numerics   float32; every sum has one order, so that results repeat bit by bit.
//   Tail   lanes of channels that do not exist hold zeros: they add nothing to dB and dC.
#ifndef VMAMBA2_SELECTIVE_SCAN_BACKWARD_H
#define VMAMBA2_SELECTIVE_SCAN_BACKWARD_H

#include "selective_backward_tile.h"

namespace vmamba2 {

// Between V and MTE3 and between MTE3 and MTE2: of what is carried through the workspace.
constexpr int32_t kSpillEvent = 2;

template <typename T>
class SelectiveBackward {
 public:
  __aicore__ inline void Init(const SelectiveTiling* tiling, const SelectiveBackwardAddresses& gm) {
    t_ = tiling;
    ub_ = &tiling->ub_backward;
    gm_ = gm;
    inputs_.Init(tiling, gm.a, gm.b, gm.c, gm.d, gm.delta_bias);
    sums_.Init(tiling, gm.db, gm.dc);
    tile_.Init(tiling, &sums_);
    checkpoints_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.checkpoints));
    dlast_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.dlast_state));
    da_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.da));
    dd_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.dd));
    dbias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.ddelta_bias));
    workspace_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.workspace));
  }

  __aicore__ inline void Process() {
    SelectiveCursor at;
    at.Start(t_, &t_->backward);
    rows_ahead_ = at;
    states_ahead_ = at;
    loaded_.group = -1;
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    FetchNextRows();
    FetchNextStates();
    for (; at.Valid(); at.NextBlock()) {
      if (at.Opens() && at.block == 0) {
        same_ = at.SameChannels(loaded_);
        if (!same_) {
          loaded_ = at;
        }
      }
      Open(at);
      for (SelectiveCursor chunk = at; true; chunk.NextChunk()) {
        Chunk(chunk);
        if (chunk.chunk + 1 == t_->chunks) {
          break;
        }
      }
      Close(at);
    }
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> Scratch() const {
    return Ub<float>(ub_->state, ScratchElements());
  }
  __aicore__ inline int32_t ScratchElements() const {
    const int32_t stretch = t_->backward.stretch * kScratchLanes, wide = RowPitch<half>(t_->backward.stretch);
    return (stretch > wide ? stretch : wide) * kBlockChannels;
  }
  __aicore__ inline AscendC::LocalTensor<float> Stage() const {
    return Ub<float>(ub_->stage, kStateElements);
  }
  template <typename E>
  __aicore__ inline AscendC::LocalTensor<E> Rows(uint32_t at, int32_t tokens) const {
    return Ub<E>(at, kBlockChannels * RowPitch<E>(tokens));
  }

  __aicore__ inline void FetchNextRows() {
    const SelectiveCursor& to = rows_ahead_;
    if (!to.Valid()) {
      return;
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kRowsEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kRowsEvent);
    inputs_.template Channels<T>(ub_->raw_u, gm_.u, t_->u, to);
    inputs_.Delta(ub_->raw_delta, gm_.delta, to);
    if (t_->has_z) {
      inputs_.template Channels<T>(ub_->raw_z, gm_.z, t_->z, to);
    }
    if (t_->has_dy) {
      inputs_.template Channels<T>(ub_->raw_dy, gm_.dy, t_->dy, to);
    }
    if (to.stretch > 0) {
      FetchCheckpoint(Ub<float>(ub_->raw_start, kStateElements), to);
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kRowsEvent);
    rows_ahead_.NextBlock();
  }

  // All blocks of a stretch share B and C; with several chunks of states they come again for every block.
  __aicore__ inline void FetchNextStates() {
    if (!states_ahead_.Valid()) {
      return;
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kStatesEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kStatesEvent);
    inputs_.States(ub_->raw_bc, states_ahead_);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kStatesEvent);
    if (t_->chunks == 1) {
      states_ahead_.NextStretch();
    } else {
      states_ahead_.NextChunk();
    }
  }

  __aicore__ inline void FetchCheckpoint(const AscendC::LocalTensor<float>& dst,
                                         const SelectiveCursor& to) const {
    const int32_t pitch = RowPitch<float>(to.channels);
    const AscendC::DataCopyExtParams copy(to.states, static_cast<uint32_t>(to.channels * 4), 0,
                                          static_cast<uint32_t>((kBlockChannels - pitch) / kBlockFloats), 0);
    const AscendC::DataCopyPadExtParams<float> zeros(true, 0, pitch - to.channels, 0.0f);
    AscendC::DataCopyPad(dst, checkpoints_[CheckpointPlace(*t_, to, to.stretch - 1)], copy, zeros);
  }

  // The state before the stretch, where the first tile finds it.
  __aicore__ inline void PlaceStart(const AscendC::LocalTensor<float>& raw, const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> start = tile_.Start(0);
    AscendC::Duplicate(start, 0.0f, kStateElements);
    Settle();
    if (at.stretch > 0) {
      AscendC::Adds(start, raw, 0.0f, static_cast<uint64_t>(at.channels), at.states,
                    AscendC::UnaryRepeatParams(1, 1, 8, 8));
      Settle();
    }
  }

  // Rows to lanes: u, the step and its slope, the gradient of y before the gate.
  __aicore__ inline void Open(const SelectiveCursor& at) {
    if (at.Opens() && !same_) {
      inputs_.Vectors(tile_.Vector(at, 0), tile_.Vector(at, 1), at);
    }
    const AscendC::LocalTensor<float> dout = tile_.Lanes(ub_->dout), step = tile_.Lanes(ub_->step);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kRowsEvent);
    OpenRows(tile_.Lanes(ub_->u), Rows<T>(ub_->raw_u, at.tokens), Scratch(), at.channels, at.tokens);
    if (t_->has_z) {
      OpenRows(tile_.Lanes(ub_->slope), Rows<T>(ub_->raw_z, at.tokens), Scratch(), at.channels, at.tokens);
    }
    if (t_->has_dy) {
      OpenRows(dout, Rows<T>(ub_->raw_dy, at.tokens), Scratch(), at.channels, at.tokens);
    } else {
      AscendC::Duplicate(dout, 0.0f, at.tokens * kBlockChannels);
    }
    OpenDelta<T>(*t_, step, ub_->raw_delta, Scratch(), tile_.Vector(at, 1), at);
    PlaceStart(Ub<float>(ub_->raw_start, kStateElements), at);
    const int32_t count = at.tokens * kBlockChannels;
    if (t_->softplus) {
      SigmoidDivisor(Scratch(), step, count);
      AscendC::Duplicate(tile_.Lanes(ub_->sigmoid), 1.0f, count);
      Settle();
      AscendC::Div(tile_.Lanes(ub_->sigmoid), tile_.Lanes(ub_->sigmoid), Scratch(), count);
      Settle();
      Softplus(step, Scratch(), count);
    }
    if (t_->has_z) {
      GateGradients(dout, tile_.Lanes(ub_->slope), Scratch(), count);
    }
  }

  __aicore__ inline void Chunk(const SelectiveCursor& at) {
    const bool fresh = t_->chunks > 1 || at.block == 0;
    if (fresh) {
      OpenStates(at);
    }
    OpenSlot(at);
    if (at.chunk == 0) {
      TakeOut(at);
    } else {
      LoadStart(at);
    }
    tile_.FindStarts(at);
    const bool completes = at.chunk + 1 == t_->chunks;
    for (int32_t tile = tile_.Tiles(at) - 1; tile >= 0; --tile) {
      tile_.Gradients(at, tile, fresh);
      // The next rows arrive where the gradients of the states were, with several chunks over the decays too.
      if (completes && tile == 0 && t_->chunks == 1) {
        FetchNextRows();
      }
      tile_.StepGradients(at);
      if (completes) {
        tile_.Finish(at);
      }
    }
    if (completes && t_->chunks > 1) {
      FetchNextRows();
    }
    if (t_->chunks > 1 || at.LastBlock()) {
      if (t_->backward.whole.parts == 1) {
        sums_.template Store<T>(at);
      } else {
        sums_.template Store<float>(at);
      }
    }
    CloseSlot(at);
  }

  // What the block before left behind has gone: its rows, and a task's dD and ddelta_bias.
  __aicore__ inline void TakeOut(const SelectiveCursor& at) {
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
    if (at.Opens() && !same_) {
      AscendC::Duplicate(tile_.Vector(at, 2), 0.0f, kBlockChannels);
      AscendC::Duplicate(tile_.Vector(at, 3), 0.0f, kBlockChannels);
      Settle();
    }
  }

  // The start of a later chunk of states, which the rows did not bring along.
  __aicore__ inline void LoadStart(const SelectiveCursor& at) {
    if (at.stretch > 0) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
      FetchCheckpoint(Stage(), at);
      AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
    }
    PlaceStart(Stage(), at);
  }

  __aicore__ inline void OpenStates(const SelectiveCursor& at) {
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kStatesEvent);
    for (int32_t which = 0; which < 2; ++which) {
      SpreadStates(tile_.Spread(which == 1), inputs_.StateRows(ub_->raw_bc, which == 1, at.tokens), Scratch(),
                   at.states, at.tokens);
    }
    FetchNextStates();
    Settle();
  }

  // A, and what is carried from the stretch behind.
  __aicore__ inline void OpenSlot(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> carry = tile_.Slot(ub_->carry, at), da = tile_.Slot(ub_->da, at);
    const bool first = at.Opens() && !same_;
    if (!t_->resident || first) {
      inputs_.A(tile_.Slot(ub_->a, at), Stage(), at);
    }
    if (first) {
      AscendC::Duplicate(da, 0.0f, kStateElements);
    } else if (!t_->resident) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
      AscendC::DataCopy(da, workspace_[SpillPlace(at)], kStateElements);
      AscendC::DataCopy(carry, workspace_[SpillPlace(at) + kStateElements], kStateElements);
      AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
    }
    if (at.Opens() && t_->has_dlast) {
      inputs_.Matrix(carry, dlast_, at.batch, Stage(), at);
    } else if (at.Opens()) {
      AscendC::Duplicate(carry, 0.0f, kStateElements);
    }
    Settle();
  }

  __aicore__ inline int64_t SpillPlace(const SelectiveCursor& at) const {
    return (static_cast<int64_t>(AscendC::GetBlockIdx()) * t_->chunks + at.chunk) * 2 * kStateElements;
  }

  __aicore__ inline void CloseSlot(const SelectiveCursor& at) {
    if (at.Completes()) {
      StoreMatrix(at);
    } else if (!t_->resident) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kSpillEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kSpillEvent);
      AscendC::DataCopy(workspace_[SpillPlace(at)], tile_.Slot(ub_->da, at), kStateElements);
      AscendC::DataCopy(workspace_[SpillPlace(at) + kStateElements], tile_.Slot(ub_->carry, at),
                        kStateElements);
      AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(kSpillEvent);
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(kSpillEvent);
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kSpillEvent);
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kSpillEvent);
    }
  }

  // dA of this chunk of states.
  __aicore__ inline void StoreMatrix(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> rows = Ub<float>(ub_->leaving, kStateElements);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    LanesToRows(rows, tile_.Slot(ub_->da, at), kChunkStates, kChunkStates);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    PutRows(da_, (loaded_.batch * t_->dim + at.channel) * t_->dstate + at.state, t_->dstate, rows,
            kChunkStates, at.channels, at.states);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
  }

  template <typename E>
  __aicore__ inline void PutChannels(GM_ADDR tensor, const AscendC::LocalTensor<E>& rows,
                                     const SelectiveCursor& at) {
    AscendC::GlobalTensor<E> dst;
    dst.SetGlobalBuffer(reinterpret_cast<__gm__ E*>(tensor));
    PutRows(dst, (at.batch * t_->dim + at.channel) * t_->seqlen + at.token, t_->seqlen, rows,
            RowPitch<E>(at.tokens), at.channels, at.tokens);
  }

  // du, ddelta and dz on their way out, and at the end of a task dD and ddelta_bias.
  template <typename Delta>
  __aicore__ inline void CloseAs(const SelectiveCursor& at) {
    const AscendC::LocalTensor<T> du = Rows<T>(ub_->out, at.tokens);
    const uint32_t behind = ub_->out + kBlockChannels * RowPitch<T>(at.tokens) * sizeof(T);
    const AscendC::LocalTensor<T> dz = Rows<T>(behind, at.tokens);
    const AscendC::LocalTensor<Delta> ddelta =
        Rows<Delta>(t_->has_z ? behind + (behind - ub_->out) : behind, at.tokens);
    CloseRows(du, tile_.Lanes(ub_->u), Scratch(), at.tokens);
    CloseRows(ddelta, tile_.Lanes(ub_->step), Scratch(), at.tokens);
    if (t_->has_z) {
      CloseRows(dz, tile_.Lanes(ub_->slope), Scratch(), at.tokens);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kOutEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kOutEvent);
    PutChannels(gm_.du, du, at);
    PutChannels(gm_.ddelta, ddelta, at);
    if (t_->has_z) {
      PutChannels(gm_.dz, dz, at);
    }
    if (at.Completes()) {
      const int64_t place = loaded_.batch * t_->dim + at.channel;
      if (t_->has_d) {
        PutRows(dd_, place, at.channels, tile_.Vector(at, 2), kBlockChannels, 1, at.channels);
      }
      if (t_->has_bias) {
        PutRows(dbias_, place, at.channels, tile_.Vector(at, 3), kBlockChannels, 1, at.channels);
      }
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
  }

  __aicore__ inline void Close(const SelectiveCursor& at) {
    if (t_->delta_dtype == static_cast<int32_t>(DType::kFloat32)) {
      CloseAs<float>(at);
    } else {
      CloseAs<T>(at);
    }
  }

  const SelectiveTiling* t_;
  const SelectiveBackwardLayout* ub_;
  SelectiveBackwardAddresses gm_;
  SelectiveInputs<T> inputs_;
  SelectiveChannelSums sums_;
  SelectiveBackwardTile tile_;
  SelectiveCursor rows_ahead_, states_ahead_;
  SelectiveCursor loaded_;  // whose A, D and delta_bias are on chip
  bool same_;               // they are this task's
  AscendC::GlobalTensor<float> checkpoints_, dlast_, da_, dd_, dbias_, workspace_;
};

template <typename T>
__aicore__ inline void SelectiveScanBackward(const SelectiveBackwardAddresses& gm,
                                             const SelectiveTiling& tiling) {
  AscendC::InitSocState();
  if ASCEND_IS_AIV {
    SelectiveBackward<T> kernel;
    kernel.Init(&tiling, gm);
    kernel.Process();
  }
  AscendC::PipeBarrier<PIPE_ALL>();
}

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_SCAN_BACKWARD_H
