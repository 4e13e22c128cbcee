// ssd_forward_protocol.h -- what the cube core and its vector cores agree on: flags, and the rings they hand
// tiles through.
//
// Step i uses slot i % kRingSlots of a ring (i % kDeepSlots of a deep one). Nothing is sent back only to say
// that a slot is free.
//   The vector cores write C, B, B~ and x of step i + 2 after kProduced of step i, which follows their last
//   read; C~ of step i + 3, and W and the states of step i + 2, after kFinished of step i.
//   The cube core writes cb and the chunk states of step i + 2 after kPrepared of step i + 2, which follows
//   their last read for step i; y of step i + 3 after kWeighted of step i + 3, which follows the epilogue of
//   step i.
#ifndef VMAMBA2_SSD_FORWARD_PROTOCOL_H
#define VMAMBA2_SSD_FORWARD_PROTOCOL_H

#include "arch.h"
#include "ssd_forward_steps.h"

namespace vmamba2 {

constexpr uint8_t kCubeWithVectors = 2;  // flag mode: the cube core and both of its vector cores
constexpr uint16_t kPrepared = 0;        // vectors -> cube: B, C, B~, C~ (and x in the operands' dtype)
constexpr uint16_t kProduced = 1;        // cube -> vectors: cb and the chunk states
constexpr uint16_t kWeighted = 2;        // vectors -> cube: W and the states
constexpr uint16_t kFinished = 3;        // cube -> vectors: y is stored, and every tile of the step was read

struct SsdForwardAddresses {
  // One declaration each: GM_ADDR is a macro that ends in a star.
  GM_ADDR x;
  GM_ADDR dt;
  GM_ADDR a;
  GM_ADDR b;
  GM_ADDR c;
  GM_ADDR d;
  GM_ADDR z;
  GM_ADDR dt_bias;
  GM_ADDR initial_states;
  GM_ADDR resets;
  GM_ADDR y;
  GM_ADDR final_states;
  GM_ADDR checkpoints;
  GM_ADDR workspace;
};

__aicore__ inline int32_t Slices(const SsdForwardTiling& t) { return (t.dstate16 + kSlice - 1) / kSlice; }

__aicore__ inline int32_t SliceWidth(const SsdForwardTiling& t, int32_t slice) {
  const int32_t left = t.dstate16 - slice * kSlice;
  return left < kSlice ? left : kSlice;
}

// Elements from the first to the last one of a (batch, token, head, inner) tensor.
__aicore__ inline int64_t SpanElements(const SsdForwardTiling& t, const TokenStrides& s, int64_t heads,
                                       int64_t inner) {
  return (t.batch - 1) * s.batch + (t.seqlen - 1) * s.token + (heads - 1) * s.head + inner;
}

template <typename Op>
class Ring {
 public:
  __aicore__ inline void Init(const SsdForwardTiling& tiling, GM_ADDR workspace, int64_t block) {
    t_ = &tiling;
    workspace_ = workspace;
    base_ = workspace + block * tiling.ring.bytes;
  }

  __aicore__ inline AscendC::GlobalTensor<Op> CRaw(int32_t slot, int32_t slice) const {
    return Operand(t_->ring.c_raw, slot, 1, kChunk * t_->dstate16, 0)[kChunk * kSlice * slice];
  }
  __aicore__ inline AscendC::GlobalTensor<Op> BRaw(int32_t slot, int32_t slice) const {
    return Operand(t_->ring.b_raw, slot, 1, kChunk * t_->dstate16, 0)[kChunk * kSlice * slice];
  }
  __aicore__ inline AscendC::GlobalTensor<Op> CScaled(int32_t slot, int32_t head, int32_t slice) const {
    return Operand(t_->ring.c_scaled, slot, t_->heads_per_task, kChunk * t_->dstate16,
                   head)[kChunk * kSlice * slice];
  }
  __aicore__ inline AscendC::GlobalTensor<Op> BScaled(int32_t slot, int32_t head, int32_t slice) const {
    return Operand(t_->ring.b_scaled, slot, t_->heads_per_task, kChunk * t_->dstate16,
                   head)[kChunk * kSlice * slice];
  }
  __aicore__ inline AscendC::GlobalTensor<Op> XCast(int32_t slot, int32_t head) const {
    return Operand(t_->ring.x_cast, slot, t_->heads_per_task, kChunk * t_->headdim16, head);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> Weights(int32_t slot, int32_t head) const {
    return Operand(t_->ring.weights, slot, t_->heads_per_task, kChunk * kChunk, head);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> States(int32_t slot, int32_t head) const {
    return Operand(t_->ring.states, slot, t_->heads_per_task, t_->headdim16 * t_->dstate16, head);
  }
  // The same two tiles in L1, with direct paths.
  __aicore__ inline AscendC::LocalTensor<Op> WeightsInL1(int32_t slot, int32_t head) const {
    constexpr uint32_t kElements = kChunk * kChunk;
    const uint32_t index = static_cast<uint32_t>(slot * t_->heads_per_task + head);
    return AscendC::LocalTensor<Op>(AscendC::TPosition::A1, t_->l1.weights + index * kElements * sizeof(Op),
                                    kElements);
  }
  __aicore__ inline AscendC::LocalTensor<Op> StatesInL1(int32_t slot, int32_t head) const {
    const uint32_t elements = static_cast<uint32_t>(t_->headdim16 * t_->dstate16);
    const uint32_t index = static_cast<uint32_t>(slot * t_->heads_per_task + head);
    return AscendC::LocalTensor<Op>(AscendC::TPosition::A1, t_->l1.states + index * elements * sizeof(Op),
                                    elements);
  }
  __aicore__ inline AscendC::GlobalTensor<float> Cb(int32_t slot) const {
    return Wide(t_->ring.cb, slot, 1, kChunk * kChunk, 0);
  }
  __aicore__ inline AscendC::GlobalTensor<float> ChunkStates(int32_t slot, int32_t head) const {
    return Wide(t_->ring.chunk_states, slot, t_->heads_per_task, t_->headdim16 * t_->dstate16, head);
  }
  __aicore__ inline AscendC::GlobalTensor<float> Spill(int32_t head) const {
    return Wide(t_->ring.spill, 0, t_->heads_per_task, t_->headdim16 * t_->dstate16, head);
  }

  // What one segment of a sequence leaves: the states of its heads, and the decay across it of each head.
  __aicore__ inline AscendC::GlobalTensor<float> SegmentStates(int64_t unit, int32_t segment,
                                                               int32_t head) const {
    const int64_t elements = static_cast<int64_t>(t_->headdim16) * t_->dstate16;
    const int64_t at = ((unit * t_->segments + segment) * t_->heads_per_task + head) * elements;
    AscendC::GlobalTensor<float> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace_ + t_->ring.segment_states + at * 4),
                           elements);
    return tensor;
  }
  __aicore__ inline AscendC::GlobalTensor<float> SegmentDecays(int64_t unit, int32_t segment) const {
    constexpr int64_t kElements = kMaxHeads * 8;
    const int64_t at = (unit * t_->segments + segment) * kElements;
    AscendC::GlobalTensor<float> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace_ + t_->ring.segment_decays + at * 4),
                           kElements);
    return tensor;
  }

  // One row of the ring of y holds all heads of the task.
  __aicore__ inline int64_t YPitch() const {
    return static_cast<int64_t>(t_->heads_per_task) * t_->headdim16;
  }

  __aicore__ inline AscendC::GlobalTensor<float> Y(const Step& step, int64_t row, int32_t head) const {
    const int64_t slot = t_->directions > 1 ? step.task_index % kRingSlots : step.deep_slot;
    AscendC::GlobalTensor<float> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(base_ + t_->ring.y + slot * t_->ring.y_slot),
                           t_->ring.y_slot / 4);
    return tensor[row * YPitch() + static_cast<int64_t>(head) * t_->headdim16];
  }

 private:
  __aicore__ inline AscendC::GlobalTensor<Op> Operand(int64_t offset, int32_t slot, int32_t heads,
                                                      int64_t elements, int32_t head) const {
    AscendC::GlobalTensor<Op> tensor;
    const int64_t at = offset + (static_cast<int64_t>(slot) * heads + head) * elements * sizeof(Op);
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ Op*>(base_ + at), (heads - head) * elements);
    return tensor;
  }
  __aicore__ inline AscendC::GlobalTensor<float> Wide(int64_t offset, int32_t slot, int32_t heads,
                                                      int64_t elements, int32_t head) const {
    AscendC::GlobalTensor<float> tensor;
    const int64_t at = offset + (static_cast<int64_t>(slot) * heads + head) * elements * 4;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(base_ + at), (heads - head) * elements);
    return tensor;
  }

  const SsdForwardTiling* t_;
  GM_ADDR workspace_;
  GM_ADDR base_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_PROTOCOL_H
