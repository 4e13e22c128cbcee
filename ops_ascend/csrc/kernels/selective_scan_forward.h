// selective_scan_forward.h -- the Mamba-1 selective scan (arXiv:2312.00752) on vector cores.
//
//   step_t = softplus(delta_t + bias)      h_t = exp(step_t A) h_{t-1} + step_t u_t B_t
//   y_t = (h_t . C_t + D u_t) silu(z_t)
//
// Same maths in PyTorch: ops_ascend/tiled.py. A task is (batch, group, part of its channel blocks).
//   in     u, z (batch, dim, seqlen) and B, C (batch, ngroups, dstate, seqlen) in T, delta in float32 or T,
//          tokens dense, any other strides; A (dim, dstate), D, delta_bias (dim) in float32
//   out    y in T; last_state (batch, dim, dstate) in float32; with `save` the state between segments of
//          kSaveEvery tokens, block by block as [state][channel]
//   Work   64 channels are the lanes; a tile is [state][token][64]: a step of the recurrence is one
//          instruction with a repeat for every state, everything else has a repeat for every token. B and C
//          are spread over blocks, which a block stride of 0 then repeats over the lanes.
//   Numerics   float32. exp underflows to 0 for a large negative step A; nothing is clamped.
//   Tail   a short tile is a tile of fewer tokens; lanes of channels that do not exist are zero, never stored.
#ifndef VMAMBA2_SELECTIVE_SCAN_FORWARD_H
#define VMAMBA2_SELECTIVE_SCAN_FORWARD_H

#include "selective_task.h"

namespace vmamba2 {

template <typename T>
class SelectiveForward {
 public:
  __aicore__ inline void Init(const SelectiveTiling* tiling, const SelectiveForwardAddresses& gm) {
    t_ = tiling;
    ub_ = &tiling->ub_forward;
    gm_ = gm;
    inputs_.Init(tiling, gm.a, gm.b, gm.c, gm.d, gm.delta_bias);
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.y));
    last_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.last_state));
    checkpoints_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.checkpoints));
  }

  __aicore__ inline void Process() {
    SelectiveCursor at;
    at.Start(t_, &t_->forward);
    rows_ahead_ = at;
    states_ahead_ = at;
    loaded_.group = -1;
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    FetchNextRows();
    FetchNextStates();
    for (; at.Valid(); at.NextBlock()) {
      if (at.Opens() && at.block == 0) {
        OpenTask(at);
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
  __aicore__ inline AscendC::LocalTensor<float> Tile(uint32_t at) const {
    return Ub<float>(at, kChunkStates * t_->forward.tile * kBlockChannels);
  }
  __aicore__ inline AscendC::LocalTensor<float> Lanes(uint32_t at) const {
    return Ub<float>(at, RowPitch<half>(t_->forward.tile) * kBlockChannels);
  }
  __aicore__ inline AscendC::LocalTensor<float> Wide() const {
    return Ub<float>(ub_->state, RowPitch<half>(t_->forward.tile) * kBlockChannels);
  }
  __aicore__ inline AscendC::LocalTensor<float> Stage() const {
    return Ub<float>(ub_->stage, kStateElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> Slot(uint32_t region, const SelectiveCursor& at) const {
    return Ub<float>(region + at.Slot() * kStateElements * 4, kStateElements);
  }
  __aicore__ inline AscendC::LocalTensor<float> Vector(const SelectiveCursor& at, int32_t which) const {
    return Ub<float>(ub_->vectors + (2 * at.block + which) * kBlockChannels * 4, kBlockChannels);
  }

  // The rows are released by the vector unit before they are asked for again.
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

  __aicore__ inline void OpenTask(const SelectiveCursor& task) {
    const bool same = task.SameChannels(loaded_);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    for (SelectiveCursor at = task; at.Valid() && at.index == 0 && at.task == task.task; at.NextChunk()) {
      AscendC::Duplicate(Slot(ub_->carry, at), 0.0f, kStateElements);
      if (!same) {
        inputs_.A(Slot(ub_->a, at), Stage(), at);
        if (at.chunk == 0) {
          inputs_.Vectors(Vector(at, 0), Vector(at, 1), at);
        }
      }
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    loaded_ = task;
    Settle();
  }

  // Rows to lanes, the step, and what of y does not depend on the state.
  __aicore__ inline void Open(const SelectiveCursor& at) {
    const int32_t count = at.tokens * kBlockChannels;
    const AscendC::LocalTensor<float> step = Lanes(ub_->step), input = Lanes(ub_->input);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kRowsEvent);
    OpenRows(input, Ub<T>(ub_->raw_u, kBlockChannels * RowPitch<T>(at.tokens)), Wide(), at.channels,
             at.tokens);
    if (t_->has_z) {
      OpenRows(Lanes(ub_->gate), Ub<T>(ub_->raw_z, kBlockChannels * RowPitch<T>(at.tokens)), Wide(),
               at.channels, at.tokens);
    }
    OpenDelta<T>(*t_, step, ub_->raw_delta, Wide(), Vector(at, 1), at);
    FetchNextRows();
    if (t_->softplus) {
      Softplus(step, Tile(ub_->state), count);
    }
    if (t_->has_d) {
      AscendC::Mul(Lanes(ub_->sum), input, Vector(at, 0), kLanes, at.tokens, TimesVector());
      Settle();
    }
    AscendC::Mul(input, input, step, count);
    Settle();
  }

  __aicore__ inline void Chunk(const SelectiveCursor& at) {
    const AscendC::LocalTensor<float> decay = Tile(ub_->decay), state = Tile(ub_->state);
    const AscendC::LocalTensor<float> spread = Ub<float>(ub_->spread, SpreadElements());
    if (t_->chunks > 1 || at.block == 0) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kStatesEvent);
    }
    SpreadStates(spread, inputs_.StateRows(ub_->raw_bc, false, at.tokens), Wide(), at.states, at.tokens);
    if (at.chunk == 0) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
    }
    const int32_t slice = at.tokens * kBlockChannels, pitch = RowPitch<T>(at.tokens) * kBlockFloats;
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(decay[n * slice], Lanes(ub_->step), Slot(ub_->a, at)[n * kBlockChannels], kLanes,
                   at.tokens, TimesVector());
      AscendC::Mul(state[n * slice], Lanes(ub_->input), spread[n * pitch], kLanes, at.tokens, TimesSpread());
    }
    Settle();
    AscendC::Exp(decay, decay, at.states * slice);
    Settle();
    Recur(at, decay, state);
    if (t_->save && (at.stretch + 1) % t_->forward.per_segment == 0 && !at.Ends()) {
      SaveCheckpoint(at);
    }
    SpreadStates(spread, inputs_.StateRows(ub_->raw_bc, true, at.tokens), decay, at.states, at.tokens);
    if (t_->chunks > 1 || at.LastBlock()) {
      FetchNextStates();
    }
    for (int32_t n = 0; n < at.states; ++n) {
      AscendC::Mul(decay[n * slice], state[n * slice], spread[n * pitch], kLanes, at.tokens, TimesSpread());
    }
    Settle();
    SumStates(decay, at.states, slice);
    if (at.chunk == 0 && !t_->has_d) {
      AscendC::Adds(Lanes(ub_->sum), decay, 0.0f, slice);
    } else {
      AscendC::Add(Lanes(ub_->sum), Lanes(ub_->sum), decay, slice);
    }
    Settle();
  }

  __aicore__ inline int32_t SpreadElements() const {
    return kChunkStates * RowPitch<T>(t_->forward.tile) * kBlockFloats;
  }

  // state holds step u B and becomes h.
  __aicore__ inline void Recur(const SelectiveCursor& at, const AscendC::LocalTensor<float>& decay,
                               const AscendC::LocalTensor<float>& state) {
    const int32_t apart = at.tokens * kBlockFloats;
    const AscendC::LocalTensor<float> carry = Slot(ub_->carry, at);
    AscendC::MulAddDst(state, decay, carry, kLanes, at.states, RowWise(1, apart, 1, apart, 1, 8));
    Settle();
    for (int32_t token = 1; token < at.tokens; ++token) {
      const int32_t now = token * kBlockChannels;
      AscendC::MulAddDst(state[now], decay[now], state[now - kBlockChannels], kLanes, at.states,
                         RowWise(1, apart, 1, apart, 1, apart));
      Settle();
    }
    AscendC::Adds(carry, state[(at.tokens - 1) * kBlockChannels], 0.0f, kLanes, at.states,
                  AscendC::UnaryRepeatParams(1, 1, 8, apart));
    Settle();
  }

  __aicore__ inline void SaveCheckpoint(const SelectiveCursor& at) {
    const int64_t index = (at.stretch + 1) / t_->forward.per_segment - 1;
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    AscendC::Adds(Stage(), Slot(ub_->carry, at), 0.0f, kStateElements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
    PutRows(checkpoints_, CheckpointPlace(*t_, at, index), at.channels, Stage(), kBlockChannels, at.states,
            at.channels);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
  }

  // The gate, and y on its way out.
  __aicore__ inline void Close(const SelectiveCursor& at) {
    const int32_t count = at.tokens * kBlockChannels;
    const AscendC::LocalTensor<float> sum = Lanes(ub_->sum);
    if (t_->has_z) {
      const AscendC::LocalTensor<float> gate = Lanes(ub_->gate), divisor = Tile(ub_->state);
      SigmoidDivisor(divisor, gate, count);
      AscendC::Div(gate, gate, divisor, count);
      Settle();
      AscendC::Mul(sum, sum, gate, count);
      Settle();
    }
    const int32_t pitch = RowPitch<T>(at.tokens);
    const AscendC::LocalTensor<T> rows = Ub<T>(ub_->decay, kBlockChannels * pitch);
    CloseRows(rows, sum, Wide(), at.tokens);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kOutEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kOutEvent);
    PutRows(y_, (at.batch * t_->dim + at.channel) * t_->seqlen + at.token, t_->seqlen, rows, pitch,
            at.channels, at.tokens);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kOutEvent);
    if (at.Ends()) {
      StoreLastState(at);
    }
  }

  __aicore__ inline void StoreLastState(const SelectiveCursor& block) {
    SelectiveCursor at = block;
    for (int32_t chunk = 0; chunk < t_->chunks; ++chunk, at.NextChunk()) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
      LanesToRows(Stage(), Slot(ub_->carry, at), kChunkStates, kChunkStates);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kStageEvent);
      PutRows(last_, (at.batch * t_->dim + at.channel) * t_->dstate + at.state, t_->dstate, Stage(),
              kChunkStates, at.channels, at.states);
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kStageEvent);
    }
  }

  const SelectiveTiling* t_;
  const SelectiveForwardLayout* ub_;
  SelectiveForwardAddresses gm_;
  SelectiveInputs<T> inputs_;
  SelectiveCursor rows_ahead_, states_ahead_;
  SelectiveCursor loaded_;  // whose A, D and delta_bias are on chip
  AscendC::GlobalTensor<T> y_;
  AscendC::GlobalTensor<float> last_, checkpoints_;
};

template <typename T>
__aicore__ inline void SelectiveScanForward(const SelectiveForwardAddresses& gm,
                                            const SelectiveTiling& tiling) {
  AscendC::InitSocState();
  if ASCEND_IS_AIV {
    SelectiveForward<T> kernel;
    kernel.Init(&tiling, gm);
    kernel.Process();
  }
  AscendC::PipeBarrier<PIPE_ALL>();
}

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_SCAN_FORWARD_H
