// selective_cursor.h -- the order in which a vector core works: tasks, in each stretches of time, in each
// channel blocks, in each chunks of states.
//
// Loads run ahead of the arithmetic, so a kernel holds several cursors over the same walk.
#ifndef VMAMBA2_SELECTIVE_CURSOR_H
#define VMAMBA2_SELECTIVE_CURSOR_H

#include "kernel_operator.h"
#include "selective_scan_tiling.h"

namespace vmamba2 {

struct SelectiveCursor {
  const SelectiveTiling* t;
  const SelectiveNest* nest;
  int64_t task, batch;
  int32_t group, part;
  int32_t first_block, blocks;  // of the part, in the group
  int64_t index, stretch;       // position in the walk, and in time
  int64_t token;
  int32_t tokens;
  int32_t block;              // of the part
  int32_t channel, channels;  // first one, absolute, and how many
  int32_t chunk;
  int32_t state, states;

  __aicore__ inline void Start(const SelectiveTiling* tiling, const SelectiveNest* walk) {
    t = tiling;
    nest = walk;
    task = AscendC::GetBlockIdx();
    OpenTask();
  }
  __aicore__ inline bool Valid() const { return task < nest->rest.first_task + nest->rest.tasks; }
  __aicore__ inline bool Opens() const { return index == 0; }
  __aicore__ inline bool Ends() const { return index + 1 == nest->stretches; }
  __aicore__ inline int32_t Slot() const { return block + chunk; }  // one of the two is 0
  // Whether both tasks have the same channels.
  __aicore__ inline bool SameChannels(const SelectiveCursor& other) const {
    return group == other.group && first_block == other.first_block && blocks == other.blocks;
  }
  // Whether no later task of this core has the same channels.
  __aicore__ inline bool Completes() const {
    if (!Ends()) {
      return false;
    }
    SelectiveCursor next = *this;
    next.NextStretch();
    return !next.Valid() || !next.SameChannels(*this);
  }
  __aicore__ inline bool LastBlock() const { return block + 1 == blocks; }

  __aicore__ inline void NextChunk() {
    if (chunk + 1 < t->chunks) {
      OpenChunk(chunk + 1);
    } else {
      NextBlock();
    }
  }
  __aicore__ inline void NextBlock() {
    if (block + 1 < blocks) {
      OpenBlock(block + 1);
    } else {
      NextStretch();
    }
  }
  __aicore__ inline void NextStretch() {
    if (index + 1 < nest->stretches) {
      OpenStretch(index + 1);
    } else {
      task += nest->cores;
      OpenTask();
    }
  }

 private:
  __aicore__ inline int64_t Fewer(int64_t a, int64_t b) const { return a < b ? a : b; }

  // Tasks of one part lie next to each other, so that a core seldom has to fetch other channels' A.
  __aicore__ inline void OpenTask() {
    if (!Valid()) {
      return;
    }
    const SelectiveCut& cut = task < nest->rest.first_task ? nest->whole : nest->rest;
    const int64_t index_in_cut = task - cut.first_task;
    const int64_t pair = cut.first_pair + index_in_cut % cut.pairs;
    batch = pair % t->batch;
    group = static_cast<int32_t>(pair / t->batch);
    part = static_cast<int32_t>(index_in_cut / cut.pairs);
    first_block = part * cut.blocks_per_part;
    blocks = static_cast<int32_t>(Fewer(t->group_blocks - first_block, cut.blocks_per_part));
    OpenStretch(0);
  }

  __aicore__ inline void OpenStretch(int64_t position) {
    index = position;
    stretch = nest->backward ? nest->stretches - 1 - position : position;
    const int32_t inside = static_cast<int32_t>(stretch % nest->per_segment) * nest->stretch;
    token = stretch / nest->per_segment * kSaveEvery + inside;
    tokens = static_cast<int32_t>(Fewer(Fewer(nest->stretch, kSaveEvery - inside), t->seqlen - token));
    OpenBlock(0);
  }

  __aicore__ inline void OpenBlock(int32_t which) {
    block = which;
    const int32_t inside = (first_block + block) * kBlockChannels;
    channel = group * t->group_channels + inside;
    channels = static_cast<int32_t>(Fewer(t->group_channels - inside, kBlockChannels));
    OpenChunk(0);
  }

  __aicore__ inline void OpenChunk(int32_t which) {
    chunk = which;
    state = chunk * kChunkStates;
    states = static_cast<int32_t>(Fewer(t->dstate - state, kChunkStates));
  }
};

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_CURSOR_H
