// ssd_backward_protocol.h -- what the cube core and its vector cores agree on in the SSD backward: the order of
// the chunks, the flags, and the rings they hand tiles through.
//
// A task is (batch, group, part of the group's heads). Its steps are its chunks from the last to the first.
// Step i of a block, on the vector cores and on the cube core:
//   Prepare  (kAhead steps ahead) -> kPrepared -> Produce (kAhead steps ahead) -> kProduced
//   Weigh                         -> kWeighted -> Finish                      -> kFinished -> Epilogue, Conclude
// In iteration i the vector cores run Prepare(i + 2), Weigh(i), Epilogue(i - 1), Conclude(i - 3); the cube core
// runs Produce(i + 2), Finish(i). So the cube core has Finish(i - 1) to do while the vector cores weigh step i.
//
// Nothing is sent back only to say that a slot is free.
//   Prepare(i) overwrites what Epilogue(i - kInputSlots) has read, after it waited for kFinished of that step.
//   Produce(i) overwrites what Weigh(i - kProductSlots) has read, before kPrepared of step i.
//   Weigh(i) overwrites what Finish(i - 2) has read, for whose kFinished Epilogue(i - 2) waited; of states, which
//   are weighed a step early, three slots are needed.
//   Finish(i) overwrites what Epilogue(i - 2) has read, before kWeighted of step i.
//
// The two vector cores also read each other's sums: what Weigh(i) and Epilogue(i) send precedes kWeighted of
// step i + 2, and Conclude(i) follows kFinished of step i + 2. After the last step one more pair of flags, by
// the same two names, does that. What Conclude(i) has read is written again by Weigh(i + kSumSlots - 1) at the
// earliest, long after kFinished of step i + 4 has told the other core.
#ifndef VMAMBA2_SSD_BACKWARD_PROTOCOL_H
#define VMAMBA2_SSD_BACKWARD_PROTOCOL_H

#include "ssd_backward_tiling.h"
#include "ssd_forward_protocol.h"

namespace vmamba2 {

struct SsdBackwardAddresses {
  GM_ADDR x;
  GM_ADDR dt;
  GM_ADDR a;
  GM_ADDR b;
  GM_ADDR c;
  GM_ADDR d;
  GM_ADDR z;
  GM_ADDR dt_bias;
  GM_ADDR resets;
  GM_ADDR checkpoints;
  GM_ADDR dy;
  GM_ADDR dfinal_states;
  GM_ADDR dx;
  GM_ADDR ddt;
  GM_ADDR db;
  GM_ADDR dc;
  GM_ADDR dz;
  GM_ADDR da;
  GM_ADDR dd;
  GM_ADDR ddt_bias;
  GM_ADDR dinitial_states;
  GM_ADDR workspace;
};

// The steps of a block. In a Step, `slot` counts kInputSlots and `deep_slot` kProductSlots here.
class BackwardWalk {
 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, int32_t block) {
    t_ = &tiling->common;
    task_ = block;
    index_ = task_index_ = 0;
    done_ = 0;
  }

  __aicore__ inline bool Valid() const { return task_ < t_->ntasks; }

  __aicore__ inline Step Get() const {
    const SsdForwardTiling& t = *t_;
    Step step;
    const int32_t part = static_cast<int32_t>(task_ % t.parts);
    const int64_t unit = task_ / t.parts;
    step.index = index_;
    step.task_index = task_index_;
    step.batch = unit / t.ngroups;
    step.group = static_cast<int32_t>(unit % t.ngroups);
    step.first_head = step.group * t.heads_per_group + part * t.heads_per_task;
    const int32_t left = t.heads_per_group - part * t.heads_per_task;
    step.heads = left < t.heads_per_task ? left : t.heads_per_task;
    step.direction = 0;
    step.backward = false;
    step.segment = 0;
    step.unit = task_;
    step.chunk = t.nchunks - 1 - done_;
    const int64_t rest = t.seqlen - step.chunk * kChunk;
    step.tokens = static_cast<int32_t>(rest < kChunk ? rest : kChunk);
    step.opens = done_ == 0;
    step.closes = step.chunk == 0;
    step.ends_sequence = step.opens;
    step.ends_task = step.closes;
    step.slot = static_cast<int32_t>(index_ % kInputSlots);
    step.deep_slot = static_cast<int32_t>(index_ % kProductSlots);
    return step;
  }

  __aicore__ inline void Next() {
    ++index_;
    if (++done_ < t_->nchunks) {
      return;
    }
    done_ = 0;
    task_ += t_->blocks;
    ++task_index_;
  }

 private:
  const SsdForwardTiling* t_;
  int64_t task_, index_, task_index_, done_;
};

// The state that enters an odd chunk is found from the one before it, which the forward has saved. Both chunks'
// states are made in the step of the odd one, which comes first.
__aicore__ inline bool FirstOfPair(const Step& step) { return step.chunk % kStatePair == 1; }
// Whether the chunk after an even one exists, and needs what this chunk adds to the state.
__aicore__ inline bool SecondOfPair(const Step& step) { return step.chunk % kStatePair == 0 && !step.opens; }

// How a tile of the gate, 32 rows of 64 floats of which `width` count, goes into its ring and out of it.
__aicore__ inline AscendC::DataCopyParams GateCopy(int32_t width) {
  constexpr int32_t kRow = kSlice * 4 / kBlockBytes;
  const int32_t blocks = width * 4 / kBlockBytes;
  return width == kSlice ? AscendC::DataCopyParams(1, kVectorRows * kRow, 0, 0)
                         : AscendC::DataCopyParams(kVectorRows, blocks, kRow - blocks, kRow - blocks);
}

template <typename Op>
class BackwardRing {
 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, GM_ADDR workspace, int64_t block) {
    t_ = tiling;
    base_ = workspace + block * tiling->ring.bytes;
  }

  // Operands of 64 tokens; `slot` is Step::slot.
  __aicore__ inline AscendC::GlobalTensor<Op> CRaw(int32_t slot, int32_t slice) const {
    return At<Op>(t_->ring.c_raw, slot * Shared() + kChunk * kSlice * slice);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> BRaw(int32_t slot, int32_t slice) const {
    return At<Op>(t_->ring.b_raw, slot * Shared() + kChunk * kSlice * slice);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> CScaled(int32_t slot, int32_t head, int32_t slice) const {
    return At<Op>(t_->ring.c_scaled, Place(slot, head, Shared()) + kChunk * kSlice * slice);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> BScaled(int32_t slot, int32_t head, int32_t slice) const {
    return At<Op>(t_->ring.b_scaled, Place(slot, head, Shared()) + kChunk * kSlice * slice);
  }
  // All heads of a slot follow each other.
  __aicore__ inline AscendC::GlobalTensor<Op> XCast(int32_t slot, int32_t head) const {
    return At<Op>(t_->ring.x_cast, Place(slot, head, Tokens()));
  }
  __aicore__ inline AscendC::GlobalTensor<Op> Dy(int32_t slot, int32_t head) const {
    return At<Op>(t_->ring.dy, Place(slot, head, Tokens()));
  }
  // dy silu'(z) of one tile of one vector core, by rows.
  __aicore__ inline AscendC::GlobalTensor<float> Gate(int32_t slot, int32_t head, int32_t column,
                                                      int32_t sub) const {
    const int64_t head_elements = static_cast<int64_t>(t_->token_columns) * 2 * kTileElements;
    return At<float>(t_->ring.gate, Place(slot, head, head_elements) + (column * 2 + sub) * kTileElements);
  }

  // Products of stage 1, float32 and fractal; `slot` is Step::deep_slot.
  __aicore__ inline AscendC::GlobalTensor<float> Cb(int32_t slot) const {
    return At<float>(t_->ring.cb, static_cast<int64_t>(slot) * kChunk * kChunk);
  }
  __aicore__ inline AscendC::GlobalTensor<float> Dw(int32_t slot, int32_t head) const {
    return At<float>(t_->ring.dw, Place(slot, head, kChunk * kChunk));
  }
  // dy^T C~, (headdim16 x a slice of dstate).
  __aicore__ inline AscendC::GlobalTensor<float> DStates(int32_t slot, int32_t head, int32_t slice) const {
    return At<float>(t_->ring.dstates, Place(slot, head, State()) + SliceStart(slice));
  }
  // x^T B~, likewise; only of the second chunk of a pair.
  __aicore__ inline AscendC::GlobalTensor<float> ChunkStates(int32_t slot, int32_t head,
                                                             int32_t slice) const {
    return At<float>(t_->ring.chunk_states, Place(slot, head, State()) + SliceStart(slice));
  }

  // What Weigh hands on; `step` is Step::index.
  __aicore__ inline AscendC::GlobalTensor<Op> Weights(int64_t step, int32_t head) const {
    return At<Op>(t_->ring.weights, Place(step % kWeightSlots, head, kChunk * kChunk));
  }
  __aicore__ inline AscendC::GlobalTensor<Op> Dcb(int64_t step) const {
    return At<Op>(t_->ring.dcb, step % kWeightSlots * kChunk * kChunk);
  }
  // What token i takes from token j, of the gradient of their decay; and 1 where j (a column) comes before a token.
  __aicore__ inline AscendC::GlobalTensor<Op> Flows(int64_t step, int32_t part, int32_t head) const {
    return At<Op>(t_->ring.flows, Place(step % kWeightSlots * kFlowParts + part, head, kChunk * kChunk));
  }
  __aicore__ inline AscendC::GlobalTensor<Op> Before() const { return At<Op>(t_->ring.before, 0); }
  // The state that enters the chunk, and the gradient of the one that leaves it; an operand of at most kStateRows
  // rows for each tile of rows.
  __aicore__ inline AscendC::GlobalTensor<Op> States(int64_t step, int32_t head, int32_t slice,
                                                     int32_t row_tile) const {
    return At<Op>(t_->ring.states, Place(step % kStateSlots, head, State()) + StateTile(slice, row_tile));
  }
  __aicore__ inline AscendC::GlobalTensor<Op> DLeaving(int64_t step, int32_t head, int32_t slice,
                                                       int32_t row_tile) const {
    return At<Op>(t_->ring.dleaving, Place(step % kStateSlots, head, State()) + StateTile(slice, row_tile));
  }

  // Products of stage 2, float32 and fractal: dy S and x G of each head (64 x slice), dCB B and dCB^T C (64 x
  // slice), and y before the gate (64 x headdim16).
  __aicore__ inline AscendC::GlobalTensor<float> CGradient(int64_t step, int32_t head, int32_t slice) const {
    return At<float>(t_->ring.c_gradient,
                     Place(step % kWeightSlots, head, Shared()) + kChunk * kSlice * slice);
  }
  __aicore__ inline AscendC::GlobalTensor<float> BGradient(int64_t step, int32_t head, int32_t slice) const {
    return At<float>(t_->ring.b_gradient,
                     Place(step % kWeightSlots, head, Shared()) + kChunk * kSlice * slice);
  }
  __aicore__ inline AscendC::GlobalTensor<float> CWithin(int64_t step, int32_t slice) const {
    return At<float>(t_->ring.c_within, step % kWeightSlots * Shared() + kChunk * kSlice * slice);
  }
  __aicore__ inline AscendC::GlobalTensor<float> BWithin(int64_t step, int32_t slice) const {
    return At<float>(t_->ring.b_within, step % kWeightSlots * Shared() + kChunk * kSlice * slice);
  }
  // Row i, column t: what token i takes from all tokens before t.
  __aicore__ inline AscendC::GlobalTensor<float> FlowsBefore(int64_t step, int32_t head) const {
    return At<float>(t_->ring.flows_before, Place(step % kWeightSlots, head, kChunk * kChunk));
  }
  __aicore__ inline AscendC::GlobalTensor<float> Y(int64_t step, int32_t head) const {
    return At<float>(t_->ring.y, Place(step % kWeightSlots, head, Tokens()));
  }

  // Vector cores only.
  __aicore__ inline AscendC::GlobalTensor<float> Sums(int64_t step, int32_t kind) const {
    return At<float>(t_->ring.sums, step % kSumSlots * (kSumBytes / 4) + kind * kVectorFloats);
  }
  __aicore__ inline AscendC::GlobalTensor<float> Steps(int64_t step) const {
    return At<float>(t_->ring.steps, step % kStepSlots * 2 * kVectorFloats);
  }
  __aicore__ inline AscendC::GlobalTensor<float> Spill(int32_t head) const {
    return At<float>(t_->ring.spill,
                     static_cast<int64_t>(head) * Slices(t_->common) * kSlice * t_->common.headdim16);
  }

 private:
  __aicore__ inline int64_t Shared() const { return static_cast<int64_t>(kChunk) * t_->common.dstate16; }
  __aicore__ inline int64_t Tokens() const { return static_cast<int64_t>(kChunk) * t_->common.headdim16; }
  __aicore__ inline int64_t State() const { return t_->state_elements; }
  __aicore__ inline int64_t SliceStart(int32_t slice) const {
    return static_cast<int64_t>(t_->common.headdim16) * kSlice * slice;
  }
  __aicore__ inline int64_t StateTile(int32_t slice, int32_t row_tile) const {
    return SliceStart(slice) + static_cast<int64_t>(row_tile) * kStateRows * SliceWidth(t_->common, slice);
  }
  __aicore__ inline int64_t Place(int64_t slot, int32_t head, int64_t elements) const {
    return (slot * t_->common.heads_per_task + head) * elements;
  }
  template <typename E>
  __aicore__ inline AscendC::GlobalTensor<E> At(int64_t offset, int64_t element) const {
    AscendC::GlobalTensor<E> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ E*>(base_ + offset) + element,
                           (t_->ring.bytes - offset) / static_cast<int64_t>(sizeof(E)) - element);
    return tensor;
  }

  const SsdBackwardTiling* t_;
  GM_ADDR base_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_PROTOCOL_H
