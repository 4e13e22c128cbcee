// ssd_forward_state.h -- the running state of the scan, float32, on the vector cores.
//
//   S <- exp(cum_last) S + chunk_states        (headdim x dstate) of every head of the task
//
// A state is kept as the cube wants it: [dstate / C0][headdim][C0], padded to fractals. Each of the two
// vector cores owns one half of that flat array. It lives in the Unified Buffer; when it does not fit, in
// this block's workspace ("spilled").
//   in / out  initial_states, final_states (batch, nheads, headdim, dstate), and the state that enters every
//             checkpoint_every-th chunk, checkpoints (batch, ncheckpoints, nheads, headdim, dstate); float32
//   Numerics  float32 throughout; rounded to Op only in the copy that the cube reads.
#ifndef VMAMBA2_SSD_FORWARD_STATE_H
#define VMAMBA2_SSD_FORWARD_STATE_H

#include "ssd_forward_state_rows.h"

namespace vmamba2 {

template <typename Op>
class RunningState {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr int32_t kColumns = kC0<Op>;

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const SsdForwardAddresses& gm,
                              const Ring<Op>& ring, int32_t sub, TilePool* in, TilePool* out) {
    t_ = tiling;
    ring_ = ring;
    in_ = in;
    out_ = out;
    half_ = tiling->headdim16 * tiling->dstate16 / 2;
    begin_ = sub * half_;
    rows_.Init(tiling, begin_, half_, in, out);
    const int64_t elements =
        tiling->batch * tiling->nheads * tiling->headdim * static_cast<int64_t>(tiling->dstate);
    if (tiling->has_initial) {
      initial_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.initial_states), elements);
    }
    final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.final_states), elements);
    if (tiling->checkpoint_every > 0) {
      checkpoints_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.checkpoints),
                                   elements * tiling->ncheckpoints);
    }
    copies_pending_ = false;
  }

  __aicore__ inline void Done() { AwaitCopies(); }

  // The state before the first chunk of a sequence or of a segment of one.
  __aicore__ inline void Open(const Step& step) {
    for (int32_t head = 0; head < step.heads; ++head) {
      if (t_->state_on_chip) {
        OpenOnChip(step, head);
      } else {
        OpenSpilled(step, head);
      }
    }
    if (t_->states_only) {
      AwaitCopies();
      AscendC::Duplicate(Carried(), 1.0f, kMaxHeads * kBlockFloats);
      Settle();
      return;
    }
    for (int32_t segment = 0; segment < step.segment; ++segment) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
      AscendC::DataCopy(Carried(), ring_.SegmentDecays(step.unit, segment), kMaxHeads * kBlockFloats);
      AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
      AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
      Advance(step, Carried(), segment);
    }
  }

  // Hands the state to the cube, and saves it when this chunk is a checkpoint.
  __aicore__ inline void Publish(const Step& step) {
    const bool saves = t_->checkpoint_every > 0 && step.chunk % t_->checkpoint_every == 0;
    const int64_t saved =
        (step.batch * t_->ncheckpoints + (saves ? step.chunk / t_->checkpoint_every : 0)) * t_->nheads;
    if (!t_->state_on_chip) {
      OrderSpill();
    }
    if (kExact && t_->state_on_chip) {
      ReadyForCopies();
      for (int32_t head = 0; head < step.heads; ++head) {
        CopyToCube(step, head, 0, AsOp(head), half_);
      }
      CopiesIssued();
    } else {
      for (int32_t head = 0; head < step.heads; ++head) {
        for (int32_t at = 0; at < half_; at += kTileElements) {
          PublishPiece(step, head, at, half_ - at < kTileElements ? half_ - at : kTileElements);
        }
      }
    }
    for (int32_t head = 0; saves && head < step.heads; ++head) {
      Save(checkpoints_, saved + step.first_head + head, head);
    }
  }

  // Adds what the chunk contributed; `decay` holds exp(cum_last) of each head, repeated over a block.
  __aicore__ inline void Update(const Step& step, const AscendC::LocalTensor<float>& decay) {
    if (t_->states_only) {
      AscendC::Mul(Carried(), Carried(), decay, kMaxHeads * kBlockFloats);
    }
    Advance(step, decay, kThisChunk);
  }

  // What the segment leaves, for the second launch.
  __aicore__ inline void CloseSegment(const Step& step) {
    if (!t_->state_on_chip) {
      OrderSpill();
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      const AscendC::GlobalTensor<float> dst = ring_.SegmentStates(step.unit, step.segment, head);
      if (t_->state_on_chip) {
        ReadyForCopies();
        AscendC::DataCopy(dst[begin_], OnChip(head), half_);
        CopiesIssued();
        continue;
      }
      for (int32_t at = 0; at < half_; at += kTileElements) {
        const int32_t elements = half_ - at < kTileElements ? half_ - at : kTileElements;
        AscendC::DataCopy(dst[begin_ + at], Relay(ring_.Spill(head)[begin_ + at], elements), elements);
        Relayed();
      }
    }
    if (begin_ == 0) {
      ReadyForCopies();
      AscendC::DataCopy(ring_.SegmentDecays(step.unit, step.segment), Carried(), kMaxHeads * kBlockFloats);
      CopiesIssued();
    }
  }

 private:
  static constexpr int32_t kThisChunk = -1;

  // state <- decay * state + what this chunk, or an earlier segment, adds.
  __aicore__ inline void Advance(const Step& step, const AscendC::LocalTensor<float>& decay,
                                 int32_t segment) {
    if (t_->state_on_chip) {
      AwaitCopies();
    } else {
      OrderSpill();
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      const AscendC::LocalTensor<float> factor = decay[head * kBlockFloats];
      const AscendC::GlobalTensor<float> addend = segment == kThisChunk
                                                      ? ring_.ChunkStates(step.slot, head)
                                                      : ring_.SegmentStates(step.unit, segment, head);
      for (int32_t at = 0; at < half_; at += kTileElements) {
        AdvancePiece(addend, head, at, half_ - at < kTileElements ? half_ - at : kTileElements, factor);
      }
    }
    Settle();
  }

 public:
  // The state after the last chunk.
  __aicore__ inline void Close(const Step& step) {
    if (!t_->state_on_chip) {
      OrderSpill();
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      Save(final_, step.batch * t_->nheads + step.first_head + head, head);
    }
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> OnChip(int32_t head) const {
    return Ub<float>(t_->ub.state + head * half_ * 4, half_);
  }
  __aicore__ inline AscendC::LocalTensor<Op> AsOp(int32_t head) const {
    return Ub<Op>(t_->ub.state + head * half_ * 4, half_ * 4 / static_cast<int32_t>(sizeof(Op)));
  }

  // MTE3 reads the state: after the vector unit wrote it, and before the vector unit writes it again.
  __aicore__ inline void ReadyForCopies() {
    AwaitCopies();
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(kCopyEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(kCopyEvent);
  }
  __aicore__ inline void CopiesIssued() {
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(kCopyEvent);
    copies_pending_ = true;
  }
  __aicore__ inline void AwaitCopies() {
    if (copies_pending_) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(kCopyEvent);
      copies_pending_ = false;
    }
  }

  // Reads of the spilled state come after its writes.
  __aicore__ inline void OrderSpill() {
    AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(0);
  }

  __aicore__ inline void OpenOnChip(const Step& step, int32_t head) {
    AscendC::LocalTensor<float> state = OnChip(head);
    AwaitCopies();
    Settle();
    AscendC::Duplicate(state, 0.0f, half_);
    Settle();
    if (!t_->has_initial || step.segment > 0) {
      return;
    }
    const int64_t matrix = step.batch * t_->nheads + step.first_head + head;
    if (rows_.Whole()) {
      rows_.LoadWhole(state, initial_, matrix);
      return;
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    for (int32_t flat = begin_; flat < begin_ + half_;) {
      const Stretch s = rows_.At(flat);
      rows_.LoadStretch(state[flat - begin_], initial_, matrix, s);
      flat += s.rows * kColumns;
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
  }

  __aicore__ inline void OpenSpilled(const Step& step, int32_t head) {
    const int64_t matrix = step.batch * t_->nheads + step.first_head + head;
    for (int32_t flat = begin_; flat < begin_ + half_;) {
      const Stretch s = rows_.At(flat);
      const int32_t out = out_->Next();
      AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
      AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
      AscendC::Duplicate(tile, 0.0f, s.rows * kColumns);
      Settle();
      if (t_->has_initial && step.segment == 0) {
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
        rows_.LoadStretch(tile, initial_, matrix, s);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
      }
      AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
      AscendC::DataCopy(ring_.Spill(head)[flat], tile, s.rows * kColumns);
      AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
      flat += s.rows * kColumns;
    }
  }

  // A piece of the spilled state, in a tile that V may read.
  __aicore__ inline int32_t FetchPiece(const AscendC::GlobalTensor<float>& src, int32_t elements) {
    const int32_t slot = in_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    AscendC::DataCopy(in_->template Tile<float>(slot), src, elements);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    return slot;
  }

  // A piece of the spilled state, in a tile that MTE3 may read; Relayed() gives the tile back.
  __aicore__ inline AscendC::LocalTensor<float> Relay(const AscendC::GlobalTensor<float>& src,
                                                      int32_t elements) {
    const int32_t in = FetchPiece(src, elements);
    relay_ = out_->Next();
    AscendC::LocalTensor<float> tile = out_->template Tile<float>(relay_);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(relay_);
    AscendC::Adds(tile, in_->template Tile<float>(in), 0.0f, elements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(relay_);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(relay_);
    return tile;
  }
  __aicore__ inline void Relayed() { AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(relay_); }

  __aicore__ inline AscendC::LocalTensor<float> Carried() const {
    return Ub<float>(t_->ub.carried, kMaxHeads * kBlockFloats);
  }

  // Elements [at, at + elements) of this core's half of a state.
  __aicore__ inline void CopyToCube(const Step& step, int32_t head, int32_t at,
                                    const AscendC::LocalTensor<Op>& src, int32_t elements) {
    if constexpr (kHasDirectPaths) {
      if (t_->direct) {
        AscendC::DataCopy(ring_.StatesInL1(step.slot, head)[begin_ + at], src, elements);
        return;
      }
    }
    AscendC::DataCopy(ring_.States(step.slot, head)[begin_ + at], src, elements);
  }

  __aicore__ inline void PublishPiece(const Step& step, int32_t head, int32_t at, int32_t elements) {
    const int32_t out = out_->Next();
    AscendC::LocalTensor<Op> rounded = out_->template Tile<Op>(out);
    int32_t in = -1;
    if (!t_->state_on_chip) {
      in = FetchPiece(ring_.Spill(head)[begin_ + at], elements);
    }
    const AscendC::LocalTensor<float> piece = in < 0 ? OnChip(head)[at] : in_->template Tile<float>(in);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (kExact) {
      AscendC::Adds(rounded, piece, 0.0f, elements);
    } else {
      AscendC::Cast(rounded, piece, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(elements));
    }
    if (in >= 0) {
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    CopyToCube(step, head, at, rounded, elements);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  __aicore__ inline void AdvancePiece(const AscendC::GlobalTensor<float>& src, int32_t head, int32_t at,
                                      int32_t elements, const AscendC::LocalTensor<float>& factor) {
    const int32_t repeats = elements / kLanes;
    const int32_t added = FetchPiece(src[begin_ + at], elements);
    AscendC::LocalTensor<float> addend = in_->template Tile<float>(added);
    if (t_->state_on_chip) {
      AscendC::LocalTensor<float> piece = OnChip(head)[at];
      AscendC::Mul(piece, piece, factor, kLanes, repeats, RowWise(1, 8, 1, 8, 0, 0));
      Settle();
      AscendC::Add(piece, piece, addend, elements);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(added);
      return;
    }
    const int32_t old = FetchPiece(ring_.Spill(head)[begin_ + at], elements);
    const int32_t out = out_->Next();
    AscendC::LocalTensor<float> piece = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Mul(piece, in_->template Tile<float>(old), factor, kLanes, repeats, RowWise(1, 8, 1, 8, 0, 0));
    Settle();
    AscendC::Add(piece, piece, addend, elements);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(added);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(old);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::DataCopy(ring_.Spill(head)[begin_ + at], piece, elements);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  __aicore__ inline void Save(const AscendC::GlobalTensor<float>& dst, int64_t matrix, int32_t head) {
    if (t_->state_on_chip && rows_.Whole()) {
      rows_.StoreWhole(dst, matrix, OnChip(head));
      return;
    }
    if (t_->state_on_chip) {
      ReadyForCopies();
      for (int32_t flat = begin_; flat < begin_ + half_;) {
        const Stretch s = rows_.At(flat);
        rows_.StoreStretch(dst, matrix, s, OnChip(head)[flat - begin_]);
        flat += s.rows * kColumns;
      }
      CopiesIssued();
      return;
    }
    for (int32_t flat = begin_; flat < begin_ + half_;) {
      const Stretch s = rows_.At(flat);
      rows_.StoreStretch(dst, matrix, s, Relay(ring_.Spill(head)[flat], s.rows * kColumns));
      Relayed();
      flat += s.rows * kColumns;
    }
  }

  const SsdForwardTiling* t_;
  Ring<Op> ring_;
  StateRows<Op> rows_;
  TilePool *in_, *out_;
  AscendC::GlobalTensor<float> initial_, final_, checkpoints_;
  int32_t half_, begin_, relay_;
  bool copies_pending_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_STATE_H
