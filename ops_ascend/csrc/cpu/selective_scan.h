// selective_scan.h -- what forward and backward of the Mamba-1 scan share: who computes what, and a tile's
// steps.
//
//   h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t        y_t = (h_t . C_t + D u_t) * silu(z_t)
//
// Same maths in PyTorch: ops_ascend/tiled.py. Paper: arXiv:2312.00752.
//
// A block is kLanes channels of a group, one in each lane; its states are one vector for each n. A task is
// some blocks of a group of a batch entry. It walks the tokens tile by tile, and in a tile block by block: B
// and C of a tile are read once for all blocks. How the channels are split into tasks depends on the sizes
// alone, never on the number of threads, and so do all sums.
#ifndef VMAMBA2_CPU_SELECTIVE_SCAN_H
#define VMAMBA2_CPU_SELECTIVE_SCAN_H

#include <algorithm>
#include <type_traits>

#include "scratch.h"
#include "selective_tile.h"
#include "threads.h"
#include "vector.h"
#include "vector_math.h"

namespace vmamba2 {

struct ChannelBlock {
  int64_t first;     // channel
  int64_t channels;  // at most kLanes
};

struct SelectiveTask {
  int64_t batch, group, part;
  int64_t first, blocks;  // of the group's blocks
};

// Enough tasks for the threads of a large machine: what they cost is sums over the parts of dB and dC.
constexpr int64_t kWantedTasks = 32;
constexpr int64_t kFewestBlocks = 2;

class SelectiveSplit {
 public:
  // Parts of at most `most` blocks.
  SelectiveSplit(const VmSelectiveCall& call, int64_t lanes, int64_t most)
      : ngroups_(call.ngroups), lanes_(lanes), group_channels_(call.dim / call.ngroups) {
    blocks_ = (group_channels_ + lanes - 1) / lanes;
    const int64_t groups = std::max<int64_t>(call.batch * call.ngroups, 1);
    const int64_t wanted = (kWantedTasks + groups - 1) / groups;
    const int64_t each = std::max(kFewestBlocks, (blocks_ + wanted - 1) / wanted);
    const int64_t fewest_parts = (blocks_ + std::min(each, most) - 1) / std::min(each, most);
    part_blocks_ = (blocks_ + fewest_parts - 1) / fewest_parts;
    parts_ = (blocks_ + part_blocks_ - 1) / part_blocks_;
    tasks_ = call.batch * call.ngroups * parts_;
  }

  int64_t tasks() const { return tasks_; }
  int64_t parts() const { return parts_; }              // of a group
  int64_t part_blocks() const { return part_blocks_; }  // of a part, at most
  int64_t blocks() const { return blocks_; }            // of a group

  SelectiveTask Task(int64_t task) const {
    const int64_t part = task % parts_, entry = task / parts_, first = part * part_blocks_;
    return {entry / ngroups_, entry % ngroups_, part, first, std::min(part_blocks_, blocks_ - first)};
  }

  // The inverse of Task.
  int64_t Index(const SelectiveTask& task) const {
    return (task.batch * ngroups_ + task.group) * parts_ + task.part;
  }

  ChannelBlock Block(int64_t group, int64_t block) const {
    const int64_t first = block * lanes_;
    return {group * group_channels_ + first, std::min(lanes_, group_channels_ - first)};
  }

 private:
  int64_t ngroups_, lanes_, group_channels_;
  int64_t blocks_, part_blocks_, parts_, tasks_;
};

// Some tokens of a task's sequence.
struct TokenTile {
  int64_t begin, tokens;
};

// ---- Where things lie.

// Of u, delta, z, y, (B, D, L), and of states, (B, D, N), where tokens are states.
inline TileShape ChannelsOf(const VmTensor& tensor, int64_t batch, const ChannelBlock& block,
                            const TokenTile& tile) {
  const int64_t* strides = tensor.strides;
  return {batch * strides[0] + block.first * strides[1] + tile.begin * strides[2],
          block.channels,
          strides[1],
          tile.tokens,
          strides[2],
          tile.begin};
}

// Of A, (D, N).
inline TileShape StatesOf(const VmTensor& tensor, const ChannelBlock& block, int64_t dstate) {
  return {block.first * tensor.strides[0], block.channels, tensor.strides[0], dstate, tensor.strides[1]};
}

// Of D and delta_bias, (D,).
inline TileShape ParameterOf(const VmTensor& tensor, const ChannelBlock& block) {
  return {block.first * tensor.strides[0], block.channels, tensor.strides[0], 1, 0};
}

// One value for each channel of a block; zero without a tensor.
template <class Real>
inline Vector<Real> LoadParameter(const VmTensor& tensor, const ChannelBlock& block) {
  if (!tensor.data) return Vector<Real>{};
  Real values[kLanes<Real>];
  LoadTile(tensor, ParameterOf(tensor, block), values, kLanes<Real>);
  return Load(values);
}

// B or C of a tile, (tokens, Padded(dstate)).
template <class Real>
inline void LoadGroup(const VmTensor& tensor, const SelectiveTask& task, int64_t dstate,
                      const TokenTile& tile, Real* out) {
  const int64_t* strides = tensor.strides;
  const int64_t offset = task.batch * strides[0] + task.group * strides[1] + tile.begin * strides[3];
  for (int64_t n = 0; n < dstate; n += kLanes<Real>) {
    const int64_t states = std::min(kLanes<Real>, dstate - n);
    const TileShape shape = {
        offset + n * strides[2], states, strides[2], tile.tokens, strides[3], tile.begin};
    LoadTile(tensor, shape, out + n, Padded<Real>(dstate));
  }
}

// ---- Steps.

// The steps of a block's tile, (tokens, kLanes), and their slopes with respect to delta unless slope is null
// or there is no softplus.
template <class Real>
inline void LoadSteps(const VmSelectiveCall& call, int64_t batch, const ChannelBlock& block,
                      const TokenTile& tile, Vector<Real> bias, Real* step, Real* slope) {
  constexpr int64_t kStep = kLanes<Real>;
  LoadTile(call.delta, ChannelsOf(call.delta, batch, block, tile), step, kStep);
  if (!call.delta_softplus) {
    for (int64_t t = 0; t < tile.tokens; ++t) Store(step + t * kStep, Load(step + t * kStep) + bias);
    return;
  }
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const Vector<Real> raw = Load(step + t * kStep) + bias;
    const Vector<Real> power = ExpOfMinusMagnitude<Real>(raw);
    Store(step + t * kStep, SoftplusFrom<Real>(raw, power));
    if (slope) Store(slope + t * kStep, SoftplusSlopeFrom<Real>(raw, power));
  }
}

// exp(delta A) = 2^(delta (A log2 e)).
template <class Real>
inline void LoadDecayRates(const VmSelectiveCall& call, const ChannelBlock& block, Real* rates) {
  LoadTile(call.a, StatesOf(call.a, block, call.dstate), rates, kLanes<Real>);
  for (int64_t i = 0; i < call.dstate * kLanes<Real>; ++i) rates[i] *= Real(1.4426950408889634);
}

template <class Real>
inline void Fill(Real* values, int64_t count, Real value) {
  for (int64_t i = 0; i < count; ++i) values[i] = value;
}

// States of a block that a loop over tokens carries in registers; where there are 16 of those, some lie in
// L1, which costs less than more passes over the tokens.
constexpr int kMostStates = 8;

// body(kStates, first state) for all states.
template <int kMost = kMostStates, class Body>
inline void ForStateBlocks(int64_t dstate, Body body) {
  int64_t n = 0;
  for (; n + kMost <= dstate; n += kMost) body(std::integral_constant<int, kMost>{}, n);
  if constexpr (kMost > 1) {
    ForStateBlocks<kMost / 2>(dstate - n, [&](auto states, int64_t first) { body(states, n + first); });
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SELECTIVE_SCAN_H
