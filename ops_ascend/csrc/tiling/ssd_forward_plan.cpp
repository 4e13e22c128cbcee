#include "ssd_forward_plan.h"

#include <algorithm>
#include <stdexcept>

namespace vmamba2 {
namespace {

constexpr int64_t kGmAlignment = 512;  // of every ring: bursts that start there are the fastest

int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

void Require(bool holds, const char* name, int64_t value, const char* rule) {
  if (!holds) {
    throw std::invalid_argument("ssd_forward: " + std::string(name) + " (" + std::to_string(value) + ") " +
                                rule);
  }
}

int64_t OperandBytes(const SsdForwardTiling& t) { return t.operand_dtype == 0 ? 4 : 2; }

TokenStrides Strides(const char* name, const int64_t* strides, int64_t farthest) {
  // DataCopyPad counts the bytes between rows in 32 bits on the 910B3, and a grid column steps over a whole
  // row of tokens.
  constexpr int64_t kLongest = int64_t{1} << 29;
  for (int i = 0; i < 3; ++i) {
    Require(strides[i] >= 0, name, strides[i], "must have strides that are not negative");
  }
  Require(strides[1] * farthest <= kLongest, name, strides[1],
          "must have neighbours below 2^29 elements apart");
  return TokenStrides{strides[0], strides[1], strides[2]};
}

void TakeSizes(const SsdForwardCall& call, SsdForwardTiling* t) {
  Require(call.batch > 0, "batch", call.batch, "must be positive");
  Require(call.seqlen > 0, "seqlen", call.seqlen, "must be positive");
  Require(call.headdim > 0 && call.headdim <= kMaxSize, "headdim", call.headdim, "must be 1 to 256");
  Require(call.dstate > 0 && call.dstate <= kMaxSize, "dstate", call.dstate, "must be 1 to 256");
  const std::string rule = "must be a positive multiple of ngroups (" + std::to_string(call.ngroups) + ")";
  Require(call.ngroups > 0 && call.nheads > 0 && call.nheads % call.ngroups == 0, "nheads", call.nheads,
          rule.c_str());
  Require(call.nheads <= 65536, "nheads", call.nheads, "must be at most 65536");
  t->batch = call.batch;
  t->seqlen = call.seqlen;
  t->nheads = static_cast<int32_t>(call.nheads);
  t->headdim = static_cast<int32_t>(call.headdim);
  t->ngroups = static_cast<int32_t>(call.ngroups);
  t->dstate = static_cast<int32_t>(call.dstate);
  t->headdim16 = static_cast<int32_t>(RoundUp(call.headdim, 16));
  t->dstate16 = static_cast<int32_t>(RoundUp(call.dstate, 16));
  t->nchunks = CeilDiv(call.seqlen, kChunk);
  t->heads_per_group = t->nheads / t->ngroups;
}

void TakeOptions(const SsdForwardCall& call, SsdForwardTiling* t) {
  Require(call.directions == 1 || call.directions == 2 || call.directions == 4, "directions", call.directions,
          "must be 1, 2 or 4");
  if (call.directions > 1) {
    Require(call.height * call.width == call.seqlen, "height times width", call.height * call.width,
            "must equal seqlen");
    Require(!call.has_initial && !call.has_resets && call.checkpoint_every == 0, "directions",
            call.directions, "must be 1 with initial states, resets or checkpoints");
  }
  t->dtype = static_cast<int32_t>(call.dtype);
  t->dt_dtype = static_cast<int32_t>(call.dt_dtype);
  t->operand_dtype = call.dtype == 0 && call.half_operands ? static_cast<int32_t>(DType::kFloat16) : t->dtype;
  t->skip = static_cast<int32_t>(call.skip);
  t->has_z = call.has_z != 0;
  t->has_bias = call.has_bias != 0;
  t->has_initial = call.has_initial != 0;
  t->has_resets = call.has_resets != 0;
  t->softplus = call.softplus != 0;
  t->dt_low = static_cast<float>(call.dt_low);
  t->dt_high = static_cast<float>(call.dt_high);
  t->directions = static_cast<int32_t>(call.directions);
  t->height = static_cast<int32_t>(call.height);
  t->width = static_cast<int32_t>(call.width);
  t->direction_weight = 1.0f / static_cast<float>(call.directions);
  t->checkpoint_every = static_cast<int32_t>(call.checkpoint_every);
  t->ncheckpoints = call.checkpoint_every > 0 ? CeilDiv(t->nchunks, call.checkpoint_every) : 0;
  t->epilogue =
      t->has_z || t->skip == static_cast<int32_t>(Skip::kPerChannel) || (t->directions > 1 && t->dtype != 0);
  // Tokens that follow each other in a column are a whole row apart.
  const int64_t farthest = t->directions > 2 ? call.width : 1;
  t->x = Strides("x", call.x_strides, farthest);
  t->dt = Strides("dt", call.dt_strides, farthest);
  Require(call.dt_strides[2] == 1 || call.nheads == 1, "dt", call.dt_strides[2],
          "must be dense along its heads");
  t->b = Strides("B", call.b_strides, farthest);
  t->c = Strides("C", call.c_strides, farthest);
  if (t->has_z) {
    t->z = Strides("z", call.z_strides, farthest);
  }
}

int64_t StateBytes(const SsdForwardTiling& t) { return int64_t{t.headdim16} * t.dstate16 * 4; }

// Everything in the Unified Buffer but the state.
uint32_t LayOutVector(SsdForwardTiling* t, uint32_t state_bytes) {
  constexpr uint32_t kTile = kTileElements * 4;
  VectorLayout& ub = t->ub;
  uint32_t at = 0;
  const auto take = [&at](uint32_t bytes) {
    const uint32_t offset = at;
    at += bytes;
    return offset;
  };
  ub.state = take(state_bytes);
  ub.decays = take(kRingSlots * kDecayBytes);
  ub.broadcast = take(2 * kTile);
  ub.in = take(kInSlots * kTile);
  ub.out = take(kOutSlots * kTile);
  ub.cb = take(t->direct ? kRingSlots * kTile : kTile);
  ub.mask = take(kTile);
  ub.identity = take(kTile);
  ub.work = take(2 * kTile);
  ub.small = take(kSmallBytes);
  ub.carried = take(kMaxHeads * 32);
  ub.bytes = at;
  return at;
}

uint32_t LayOutCube(SsdForwardTiling* t) {
  const uint32_t operand = static_cast<uint32_t>(OperandBytes(*t));
  t->l1.x = 0;
  t->l1.x_slot = static_cast<uint32_t>(t->heads_per_task * kChunk * t->headdim16) * operand;
  t->l1.stream = kRingSlots * t->l1.x_slot;
  t->l1.stream_slot = static_cast<uint32_t>(std::max(kChunk, t->headdim16) * kSlice) * operand;
  t->l1.weights = t->l1.stream + kStreamSlots * t->l1.stream_slot;
  const uint32_t slots = t->direct ? kRingSlots * static_cast<uint32_t>(t->heads_per_task) : 0;
  t->l1.states = t->l1.weights + slots * kChunk * kChunk * operand;
  t->l1.bytes = t->l1.states + slots * static_cast<uint32_t>(t->headdim16 * t->dstate16) * operand;
  return t->l1.bytes;
}

// The most heads that one task can hold on this chip, with the state on chip if at least one head's fits.
int32_t MostHeads(SsdForwardTiling* t, const ChipBudget& chip) {
  const uint32_t fixed = LayOutVector(t, 0);
  const int64_t room = static_cast<int64_t>(chip.ub_bytes) - fixed;
  const int64_t half_state = StateBytes(*t) / 2;
  t->state_on_chip = half_state <= room;
  int64_t heads = std::min<int64_t>(kMaxHeads, t->heads_per_group);
  if (t->state_on_chip) {
    heads = std::min(heads, room / half_state);
  }
  for (; heads > 1; --heads) {
    t->heads_per_task = static_cast<int32_t>(heads);
    if (LayOutCube(t) <= chip.l1_bytes) {
      break;
    }
  }
  return static_cast<int32_t>(heads);
}

// One way to cut the work, and an estimate of the time that the busiest core needs for it.
struct Split {
  int64_t parts, segments;
  double cost;
};

Split Judge(const SsdForwardTiling& t, const ChipBudget& chip, int64_t parts, int64_t segments) {
  // In heads and in chunks: what a chunk costs beside its heads (its decays, C B^T), what a task costs
  // beside its chunks (to fill the pipeline, to bring in the state), and what the first of two launches costs
  // relative to the second. From the modelled timeline at headdim 64, dstate 64 and 128; only ratios matter.
  constexpr double kChunkCost = 1.25;
  constexpr int64_t kTaskCost = 2;
  constexpr double kStatesCost = 0.5;
  const int64_t tasks = t.batch * t.ngroups * parts * segments;
  const double walk =
      static_cast<double>(CeilDiv(tasks, chip.cube_cores) * (CeilDiv(t.nchunks, segments) + kTaskCost));
  const double chunk = kChunkCost + static_cast<double>(CeilDiv(t.heads_per_group, parts));
  return Split{parts, segments, walk * chunk * (segments > 1 ? 1.0 + kStatesCost : 1.0)};
}

// Cuts the heads of a group into equal parts (at least as many as they need to fit), and sequences into
// segments, where that fills more cores than it costs. Segments read x and B twice: they must gain a seventh.
void SplitWork(SsdForwardTiling* t, const ChipBudget& chip) {
  constexpr int64_t kShortest = 2;  // chunks of a segment
  const int64_t fewest = CeilDiv(t->heads_per_group, MostHeads(t, chip));
  const int64_t most_segments =
      t->directions == 1 ? std::max<int64_t>(1, std::min<int64_t>(chip.cube_cores, t->nchunks / kShortest))
                         : 1;
  constexpr double kGain = 0.85;
  Split best = Judge(*t, chip, fewest, 1);
  for (int64_t heads = CeilDiv(t->heads_per_group, fewest); heads >= 1; --heads) {
    const Split split = Judge(*t, chip, CeilDiv(t->heads_per_group, heads), 1);
    best = split.cost < best.cost ? split : best;
  }
  const double whole = best.cost;
  for (int64_t heads = CeilDiv(t->heads_per_group, fewest); heads >= 1; --heads) {
    for (int64_t segments = 2; segments <= most_segments; ++segments) {
      const Split split = Judge(*t, chip, CeilDiv(t->heads_per_group, heads), segments);
      best = split.cost < std::min(best.cost, kGain * whole) ? split : best;
    }
  }
  t->heads_per_task = static_cast<int32_t>(CeilDiv(t->heads_per_group, best.parts));
  t->parts = static_cast<int32_t>(CeilDiv(t->heads_per_group, t->heads_per_task));
  t->chunks_per_segment = CeilDiv(t->nchunks, best.segments);
  t->segments = static_cast<int32_t>(CeilDiv(t->nchunks, t->chunks_per_segment));
  t->ntasks = t->batch * t->ngroups * t->parts * t->segments;
  t->blocks = static_cast<int32_t>(std::min<int64_t>(t->ntasks, chip.cube_cores));
}

void LayOutRings(SsdForwardTiling* t) {
  const int64_t operand = OperandBytes(*t);
  const int64_t heads = t->heads_per_task;
  RingLayout& ring = t->ring;
  int64_t at = 0;
  const auto take = [&at](int64_t bytes) {
    const int64_t offset = at;
    at += RoundUp(bytes, kGmAlignment);
    return offset;
  };
  ring.c_raw = take(kRingSlots * kChunk * t->dstate16 * operand);
  ring.b_raw = take(kRingSlots * kChunk * t->dstate16 * operand);
  ring.c_scaled = take(kDeepSlots * heads * kChunk * t->dstate16 * operand);
  ring.b_scaled = take(kRingSlots * heads * kChunk * t->dstate16 * operand);
  ring.x_cast = take(t->operand_dtype == t->dtype ? 0 : kRingSlots * heads * kChunk * t->headdim16 * operand);
  const int64_t through_ring = t->direct ? 0 : kRingSlots;
  ring.weights = take(through_ring * heads * kChunk * kChunk * operand);
  ring.states = take(through_ring * heads * t->headdim16 * t->dstate16 * operand);
  ring.cb = take(through_ring * kChunk * kChunk * 4);
  ring.chunk_states = take(kRingSlots * heads * StateBytes(*t));
  const int64_t rows = t->directions > 1 ? t->seqlen : kChunk;
  ring.y_slot = t->epilogue ? RoundUp(rows * heads * t->headdim16 * 4, kGmAlignment) : 0;
  ring.y = take((t->directions > 1 ? kRingSlots : kDeepSlots) * ring.y_slot);
  ring.spill = take(t->state_on_chip ? 0 : heads * StateBytes(*t));
  ring.bytes = at;
  const int64_t rings = at * t->blocks;
  const int64_t pieces = t->segments > 1 ? t->batch * t->ngroups * t->parts * t->segments : 0;
  ring.segment_states = rings;
  ring.segment_decays = rings + pieces * heads * StateBytes(*t);
  t->workspace_bytes = ring.segment_decays + pieces * kMaxHeads * 32;
}

}  // namespace

SsdForwardTiling TakeSsdCall(const SsdForwardCall& call) {
  SsdForwardTiling tiling{};
  TakeSizes(call, &tiling);
  TakeOptions(call, &tiling);
  return tiling;
}

SsdForwardTiling StatesOnly(const SsdForwardTiling& tiling) {
  SsdForwardTiling first = tiling;
  first.states_only = 1;
  first.ntasks = tiling.ntasks / tiling.segments * (tiling.segments - 1);
  first.blocks = static_cast<int32_t>(std::min<int64_t>(first.ntasks, tiling.blocks));
  return first;
}

ChipBudget BudgetOf(int32_t arch) {
  // The Unified Buffer less what the chip and, on 3510, the calls that the kernels use keep for themselves;
  // see ops_ascend/README.md.
  if (arch == 2201) {
    return ChipBudget{2201, 20, 191 * 1024, 512 * 1024, 128 * 1024};
  }
  if (arch == 3510) {
    return ChipBudget{3510, 32, 247 * 1024, 512 * 1024, 256 * 1024};
  }
  throw std::invalid_argument("arch (" + std::to_string(arch) + ") must be 2201 (910B3) or 3510 (950PR)");
}

SsdForwardTiling PlanSsdForward(const SsdForwardCall& call, const ChipBudget& chip) {
  SsdForwardTiling tiling = TakeSsdCall(call);
  // The direct paths cost no heads: where their tiles do not fit beside them, the rings serve.
  SplitWork(&tiling, chip);
  const int32_t parts = tiling.parts;
  tiling.direct = chip.arch == 3510;
  SplitWork(&tiling, chip);
  if (tiling.direct && (tiling.parts > parts || LayOutCube(&tiling) > chip.l1_bytes)) {
    tiling.direct = 0;
    SplitWork(&tiling, chip);
  }
  const uint32_t on_chip =
      tiling.state_on_chip ? static_cast<uint32_t>(tiling.heads_per_task * StateBytes(tiling) / 2) : 0;
  Require(LayOutVector(&tiling, on_chip) <= chip.ub_bytes, "Unified Buffer bytes", tiling.ub.bytes,
          "exceed the chip's");
  Require(LayOutCube(&tiling) <= chip.l1_bytes, "L1 bytes", tiling.l1.bytes, "exceed the chip's");
  // Half of L0C holds y, twice when one head leaves room for it; so many heads go out side by side.
  tiling.l0c_y_bytes = chip.l0c_bytes / 2;
  const int32_t widest = static_cast<int32_t>(tiling.l0c_y_bytes / 2) / (kChunk * tiling.headdim16 * 4);
  tiling.heads_per_store = std::max(1, std::min(tiling.heads_per_task, widest));
  LayOutRings(&tiling);
  return tiling;
}

}  // namespace vmamba2
