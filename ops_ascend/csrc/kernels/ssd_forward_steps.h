// ssd_forward_steps.h -- the order of the work of one block, and where the tokens of a chunk lie.
//
// A task is (batch, group, part of the group's heads, segment of the sequence). Its steps are, for each grid
// order, the chunks in the order of the scan; the cube core and both vector cores of a block walk the same
// steps. Tasks are dealt round-robin to the blocks, so any number of tasks runs on any number of blocks.
//
// Few tasks are made more by cutting the sequence into segments, in two launches: the first (states_only)
// finds the state that each segment but the last leaves when it starts from nothing (the first one: from the
// initial state) and its total decay; in the second a segment puts its own initial state together from those
// before it.
#ifndef VMAMBA2_SSD_FORWARD_STEPS_H
#define VMAMBA2_SSD_FORWARD_STEPS_H

#include "kernel_operator.h"
#include "ssd_forward_tiling.h"

namespace vmamba2 {

struct Step {
  int64_t index;       // of this step in the block
  int64_t task_index;  // of its task in the block
  int64_t batch;
  int64_t chunk;
  int32_t group;
  int32_t first_head;
  int32_t heads;
  int32_t direction;
  int32_t segment;
  int64_t unit;        // (batch, group, part)
  int32_t tokens;      // of this chunk; fewer than kChunk in the last one of a sequence
  bool backward;       // the scan runs from the last token to the first
  bool opens;          // first step of a direction
  bool closes;         // last step of a direction
  bool ends_sequence;  // its last chunk is done
  bool ends_task;
  int32_t slot;  // of the rings
  int32_t deep_slot;
};

class StepWalk {
 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, int32_t block) {
    tiling_ = tiling;
    task_ = block;
    index_ = task_index_ = 0;
    direction_ = 0;
    done_ = 0;
  }

  __aicore__ inline bool Valid() const { return task_ < tiling_->ntasks; }

  __aicore__ inline Step Get() const {
    const SsdForwardTiling& t = *tiling_;
    Step step;
    const int64_t segments = Segments();
    step.segment = static_cast<int32_t>(task_ % segments);
    step.unit = task_ / segments;
    const int64_t part = step.unit % t.parts;
    const int64_t unit = step.unit / t.parts;
    step.index = index_;
    step.task_index = task_index_;
    step.batch = unit / t.ngroups;
    step.group = static_cast<int32_t>(unit % t.ngroups);
    step.first_head = step.group * t.heads_per_group + static_cast<int32_t>(part) * t.heads_per_task;
    const int32_t left = t.heads_per_group - static_cast<int32_t>(part) * t.heads_per_task;
    step.heads = left < t.heads_per_task ? left : t.heads_per_task;
    step.direction = direction_;
    step.backward = direction_ % 2 == 1;
    const int64_t first = step.segment * t.chunks_per_segment;
    step.chunk = step.backward ? t.nchunks - 1 - done_ : first + done_;
    const int64_t rest = t.seqlen - step.chunk * kChunk;
    step.tokens = static_cast<int32_t>(rest < kChunk ? rest : kChunk);
    step.opens = done_ == 0;
    step.closes = done_ + 1 == Chunks();
    step.ends_sequence = step.chunk + 1 == t.nchunks;
    step.ends_task = step.closes && direction_ + 1 == t.directions;
    step.slot = static_cast<int32_t>(index_ % kRingSlots);
    step.deep_slot = static_cast<int32_t>(index_ % kDeepSlots);
    return step;
  }

  __aicore__ inline void Next() {
    ++index_;
    if (++done_ < Chunks()) {
      return;
    }
    done_ = 0;
    if (++direction_ < tiling_->directions) {
      return;
    }
    direction_ = 0;
    task_ += tiling_->blocks;
    ++task_index_;
  }

 private:
  // The first launch leaves out the last segment: nothing follows it.
  __aicore__ inline int64_t Segments() const { return tiling_->segments - (tiling_->states_only ? 1 : 0); }

  // Chunks of the current task's segment.
  __aicore__ inline int64_t Chunks() const {
    const int64_t left = tiling_->nchunks - task_ % Segments() * tiling_->chunks_per_segment;
    return left < tiling_->chunks_per_segment ? left : tiling_->chunks_per_segment;
  }

  const SsdForwardTiling* tiling_;
  int64_t task_, index_, task_index_, done_;
  int32_t direction_;
};

// A stretch of tokens that follow each other in the scan order at one distance in memory.
struct Run {
  int64_t position;  // of the first token on the grid, row after row
  int64_t distance;  // between neighbours, in tokens
  int32_t count;
};

// The run that starts at token `first` of the order and has at most `most` tokens.
__aicore__ inline Run NextRun(const SsdForwardTiling& t, int32_t direction, int64_t first, int32_t most) {
  if (direction < 2) {
    return Run{first, 1, most};
  }
  const int64_t column = first / t.height;
  const int64_t row = first % t.height;
  const int64_t left = t.height - row;
  return Run{row * t.width + column, t.width, static_cast<int32_t>(left < most ? left : most)};
}

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_STEPS_H
