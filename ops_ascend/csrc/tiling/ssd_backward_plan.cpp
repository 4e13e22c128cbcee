#include "ssd_backward_plan.h"

#include <algorithm>
#include <stdexcept>

namespace vmamba2 {
namespace {

constexpr int64_t kGmAlignment = 512;  // of every ring: bursts that start there are the fastest
constexpr uint32_t kTile = kTileElements * 4;

int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

void Require(bool holds, const char* name, int64_t value, const char* rule) {
  if (!holds) {
    throw std::invalid_argument("ssd_backward: " + std::string(name) + " (" + std::to_string(value) + ") " +
                                rule);
  }
}

int64_t OperandBytes(const SsdBackwardTiling& t) { return t.common.operand_dtype == 0 ? 4 : 2; }
int64_t SlicesOf(const SsdBackwardTiling& t) { return CeilDiv(t.common.dstate16, kSlice); }
bool CastsX(const SsdBackwardTiling& t) { return t.common.operand_dtype != t.common.dtype; }

void TakeCall(const SsdBackwardCall& call, SsdBackwardTiling* t) {
  t->common = TakeSsdCall(call.forward);
  SsdForwardTiling& common = t->common;
  Require(common.directions == 1, "directions", common.directions, "must be 1");
  Require(common.skip != static_cast<int32_t>(Skip::kPerChannel), "D", common.skip,
          "must be one number per head");
  Require(common.checkpoint_every == kStatePair, "checkpoint_every", common.checkpoint_every, "must be 2");
  Require(call.has_dy != 0, "has_dy", call.has_dy, "must be 1");
  for (int i = 0; i < 3; ++i) {
    Require(call.dy_strides[i] >= 0, "dy", call.dy_strides[i], "must have strides that are not negative");
  }
  Require(call.dy_strides[1] <= int64_t{1} << 29, "dy", call.dy_strides[1],
          "must have neighbours below 2^29 elements apart");
  t->dy = TokenStrides{call.dy_strides[0], call.dy_strides[1], call.dy_strides[2]};
  t->has_dfinal = call.has_dfinal != 0;
  t->token_columns = static_cast<int32_t>(CeilDiv(common.headdim16, kSlice));
  t->state_row_tiles = static_cast<int32_t>(CeilDiv(common.headdim16, kStateRows));
  t->state_elements = int64_t{common.headdim16} * common.dstate16;
}

// Of G, on one vector core: half of the rows, in rows of 64.
int64_t HalfState(const SsdBackwardTiling& t) { return SlicesOf(t) * kSlice * (t.common.headdim16 / 2) * 4; }

uint32_t LayOutVector(SsdBackwardTiling* t, uint32_t state_bytes) {
  constexpr int32_t kWorkTiles = 4;
  VectorLayout& ub = t->common.ub;
  uint32_t at = 0;
  const auto take = [&at](uint32_t bytes) {
    const uint32_t offset = at;
    at += bytes;
    return offset;
  };
  ub.state = take(state_bytes);
  ub.broadcast = take(2 * kTile);
  ub.in = take(kBackwardPool * kTile);
  ub.out = take(kBackwardPool * kTile);
  ub.cb = take(kTile);
  ub.mask = take(kTile);
  ub.work = take(kWorkTiles * kTile);
  ub.small = take(kSmallBytes);
  t->ub.decays = take(kInputSlots * kBackwardDecayBytes);
  t->ub.rows = take(kPairRows * kVectorFloats * 4);
  t->ub.sums = take(kSentBytes);
  t->ub.totals = take(kTotalBytes);
  t->ub.corner = take(kCornerBytes);
  ub.bytes = at;
  return at;
}

uint32_t LayOutCube(SsdBackwardTiling* t) {
  const uint32_t operand = static_cast<uint32_t>(OperandBytes(*t));
  SsdForwardTiling& common = t->common;
  const int32_t rows = std::max(kChunk, std::min(common.headdim16, kStateRows));
  t->l1_slot = static_cast<uint32_t>(common.heads_per_task * kChunk * common.headdim16) * operand;
  t->l1_x = 0;
  t->l1_dy = kTokenSlots * t->l1_slot;
  common.l1.stream = 2 * kTokenSlots * t->l1_slot;
  common.l1.stream_slot = static_cast<uint32_t>(rows * kSlice) * operand;
  common.l1.bytes = common.l1.stream + kStreamSlots * common.l1.stream_slot;
  return common.l1.bytes;
}

// The most heads that one task can hold on this chip, with G on chip or not; 0 when not even one fits.
int32_t MostHeads(SsdBackwardTiling* t, const ChipBudget& chip, bool on_chip) {
  SsdForwardTiling& common = t->common;
  const int64_t room = static_cast<int64_t>(chip.ub_bytes) - LayOutVector(t, 0);
  int64_t heads = std::min<int64_t>(kMaxHeads, common.heads_per_group);
  if (on_chip) {
    heads = std::min(heads, room / HalfState(*t));
  }
  for (; heads > 1; --heads) {
    common.heads_per_task = static_cast<int32_t>(heads);
    if (LayOutCube(t) <= chip.l1_bytes) {
      break;
    }
  }
  return static_cast<int32_t>(heads);
}

// One way to cut the work, and an estimate of the time that the busiest core needs for it.
struct Split {
  int64_t parts;
  bool on_chip;
  double cost;
};

Split Judge(const SsdForwardTiling& t, const ChipBudget& chip, int64_t parts, bool on_chip) {
  // In heads and in chunks: what a chunk costs beside its heads, a task beside its chunks, and a head whose G
  // passes through the workspace relative to one whose G does not. From the modelled timeline; only ratios matter.
  constexpr double kChunkCost = 1.0, kSpillCost = 1.1;
  constexpr int64_t kTaskCost = 4;
  const int64_t tasks = t.batch * t.ngroups * parts;
  const double heads = static_cast<double>(CeilDiv(t.heads_per_group, parts)) * (on_chip ? 1.0 : kSpillCost);
  const double walk = static_cast<double>(CeilDiv(tasks, chip.cube_cores) * (t.nchunks + kTaskCost));
  return Split{parts, on_chip, walk * (kChunkCost + heads)};
}

// Cuts the heads of a group into equal parts, at least as many as they need to fit, and more where that fills
// cores: B and C are then read, and their gradients written, once for each part, so it must gain a seventh.
void SplitWork(SsdBackwardTiling* t, const ChipBudget& chip) {
  constexpr double kGain = 0.85;
  SsdForwardTiling& common = t->common;
  Split best{};
  for (const bool on_chip : {true, false}) {
    const int32_t most = MostHeads(t, chip, on_chip);
    if (most == 0) {
      continue;
    }
    const int64_t fewest = CeilDiv(common.heads_per_group, most);
    for (int64_t parts = fewest; parts <= common.heads_per_group; ++parts) {
      const Split split = Judge(common, chip, parts, on_chip);
      const double enough = parts > best.parts ? kGain : 1.0;
      best = best.parts == 0 || split.cost < enough * best.cost ? split : best;
    }
  }
  common.state_on_chip = best.on_chip;
  common.heads_per_task = static_cast<int32_t>(CeilDiv(common.heads_per_group, best.parts));
  common.parts = static_cast<int32_t>(CeilDiv(common.heads_per_group, common.heads_per_task));
  common.segments = 1;
  common.chunks_per_segment = common.nchunks;
  common.ntasks = common.batch * common.ngroups * common.parts;
  common.blocks = static_cast<int32_t>(std::min<int64_t>(common.ntasks, chip.cube_cores));
}

void LayOutRings(SsdBackwardTiling* t) {
  const SsdForwardTiling& common = t->common;
  const int64_t operand = OperandBytes(*t), heads = common.heads_per_task;
  const int64_t shared = int64_t{kChunk} * common.dstate16, tokens = int64_t{kChunk} * common.headdim16;
  const int64_t pairs = int64_t{kChunk} * kChunk, states = t->state_elements;
  BackwardRings& ring = t->ring;
  int64_t at = 0;
  const auto take = [&at](int64_t bytes) {
    const int64_t offset = at;
    at += RoundUp(bytes, kGmAlignment);
    return offset;
  };
  const bool gate = common.has_z != 0;
  ring.c_raw = take(kInputSlots * shared * operand);
  ring.b_raw = take(kInputSlots * shared * operand);
  ring.c_scaled = take(kInputSlots * heads * shared * operand);
  ring.b_scaled = take(kInputSlots * heads * shared * operand);
  ring.x_cast = take(CastsX(*t) ? kInputSlots * heads * tokens * operand : 0);
  ring.dy = take(gate || CastsX(*t) ? kInputSlots * heads * tokens * operand : 0);
  ring.gate = take(gate ? kInputSlots * heads * t->token_columns * 2 * kTileElements * 4 : 0);
  ring.cb = take(kProductSlots * pairs * 4);
  ring.dw = take(kProductSlots * heads * pairs * 4);
  ring.dstates = take(kProductSlots * heads * states * 4);
  ring.chunk_states = take(kProductSlots * heads * states * 4);
  ring.weights = take(kWeightSlots * heads * pairs * operand);
  ring.dcb = take(kWeightSlots * pairs * operand);
  ring.flows = take(kWeightSlots * kFlowParts * heads * pairs * operand);
  ring.before = take(pairs * operand);
  ring.states = take(kStateSlots * heads * states * operand);
  ring.dleaving = take(kStateSlots * heads * states * operand);
  ring.c_gradient = take(kWeightSlots * heads * shared * 4);
  ring.b_gradient = take(kWeightSlots * heads * shared * 4);
  ring.c_within = take(kWeightSlots * shared * 4);
  ring.b_within = take(kWeightSlots * shared * 4);
  ring.flows_before = take(kWeightSlots * heads * pairs * 4);
  ring.y = take(gate ? kWeightSlots * heads * tokens * 4 : 0);
  ring.sums = take(int64_t{kSumSlots} * kSumBytes);
  ring.steps = take(int64_t{kStepSlots} * 2 * kVectorFloats * 4);
  ring.spill = take(common.state_on_chip ? 0 : heads * SlicesOf(*t) * kSlice * common.headdim16 * 4);
  ring.bytes = at;
  t->common.workspace_bytes = at * common.blocks;
}

}  // namespace

SsdBackwardTiling PlanSsdBackward(const SsdBackwardCall& call, const ChipBudget& chip) {
  SsdBackwardTiling tiling{};
  TakeCall(call, &tiling);
  SplitWork(&tiling, chip);
  SsdForwardTiling& common = tiling.common;
  const uint32_t on_chip =
      common.state_on_chip ? static_cast<uint32_t>(common.heads_per_task * HalfState(tiling)) : 0;
  Require(LayOutVector(&tiling, on_chip) <= chip.ub_bytes, "Unified Buffer bytes", common.ub.bytes,
          "exceed the chip's");
  Require(LayOutCube(&tiling) <= chip.l1_bytes, "L1 bytes", common.l1.bytes, "exceed the chip's");
  // Two results in L0C; so many heads of dx go out side by side.
  common.l0c_y_bytes = chip.l0c_bytes / 2;
  const int32_t widest = static_cast<int32_t>(common.l0c_y_bytes) / (kChunk * common.headdim16 * 4);
  common.heads_per_store = std::max(1, std::min(common.heads_per_task, widest));
  LayOutRings(&tiling);
  return tiling;
}

}  // namespace vmamba2
