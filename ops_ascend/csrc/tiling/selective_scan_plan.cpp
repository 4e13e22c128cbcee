#include "selective_scan_plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace vmamba2 {
namespace {

constexpr uint32_t kLaneBytes = kBlockChannels * 4;
constexpr uint32_t kSlotBytes = kChunkStates * kLaneBytes;

int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

void Require(bool holds, const char* name, int64_t value, const std::string& rule) {
  if (!holds) {
    throw std::invalid_argument("selective_scan: " + std::string(name) + " (" + std::to_string(value) + ") " +
                                rule);
  }
}

void TakeSizes(const SelectiveScanCall& call, SelectiveTiling* t) {
  constexpr int64_t kMostChannels = int64_t{1} << 30;
  Require(call.batch > 0, "batch", call.batch, "must be positive");
  Require(call.seqlen > 0, "seqlen", call.seqlen, "must be positive");
  Require(call.dstate > 0 && call.dstate <= kMaxSize, "dstate", call.dstate, "must be 1 to 256");
  Require(call.ngroups > 0 && call.dim > 0 && call.dim % call.ngroups == 0, "dim", call.dim,
          "must be a positive multiple of ngroups (" + std::to_string(call.ngroups) + ")");
  Require(call.dim <= kMostChannels, "dim", call.dim, "must be at most 2^30");
  Require(call.dtype >= 0 && call.dtype <= 2, "dtype", call.dtype, "must be 0, 1 or 2");
  Require(call.delta_dtype == 0 || call.delta_dtype == call.dtype, "delta_dtype", call.delta_dtype,
          "must be float32 or the dtype of u");
  t->batch = call.batch;
  t->seqlen = call.seqlen;
  t->dim = static_cast<int32_t>(call.dim);
  t->ngroups = static_cast<int32_t>(call.ngroups);
  t->dstate = static_cast<int32_t>(call.dstate);
  t->chunks = static_cast<int32_t>(CeilDiv(call.dstate, kChunkStates));
  t->group_channels = t->dim / t->ngroups;
  t->group_blocks = static_cast<int32_t>(CeilDiv(t->group_channels, kBlockChannels));
  t->ncheckpoints = CeilDiv(t->seqlen, kSaveEvery) - 1;
}

void TakeOptions(const SelectiveScanCall& call, SelectiveTiling* t) {
  t->dtype = static_cast<int32_t>(call.dtype);
  t->delta_dtype = static_cast<int32_t>(call.delta_dtype);
  t->has_d = call.has_d != 0;
  t->has_z = call.has_z != 0;
  t->has_bias = call.has_bias != 0;
  t->softplus = call.softplus != 0;
  t->save = call.save != 0;
  t->has_dy = call.has_dy != 0;
  t->has_dlast = call.has_dlast != 0;
  t->u = ChannelStrides{call.u_strides[0], call.u_strides[1]};
  t->delta = ChannelStrides{call.delta_strides[0], call.delta_strides[1]};
  t->z = ChannelStrides{call.z_strides[0], call.z_strides[1]};
  t->dy = ChannelStrides{call.dy_strides[0], call.dy_strides[1]};
  t->b = StateStrides{call.b_strides[0], call.b_strides[1], call.b_strides[2]};
  t->c = StateStrides{call.c_strides[0], call.c_strides[1], call.c_strides[2]};
}

// Hands out the Unified Buffer from its start.
class Shelf {
 public:
  uint32_t Take(int64_t bytes) {
    const uint32_t at = next_;
    next_ += static_cast<uint32_t>(RoundUp(bytes, 32));
    return at;
  }
  uint32_t bytes() const { return next_; }

 private:
  uint32_t next_ = 0;
};

// Bytes of a block's rows, and of lanes, for so many tokens. Lanes are rounded up because what goes back to
// 16-bit rows does so 16 tokens at a time.
int64_t RowBytes(int64_t tokens, int32_t dtype) {
  return kBlockChannels * (dtype == 0 ? RoundUp(tokens, 8) * 4 : RoundUp(tokens, 16) * 2);
}
int64_t LanesBytes(const SelectiveTiling& t, int64_t tokens) {
  return RoundUp(tokens, t.dtype == 0 && t.delta_dtype == 0 ? 8 : 16) * kLaneBytes;
}
// Scratch that holds a block's rows in float32.
int64_t WideBytes(int64_t tokens) { return RoundUp(tokens, 16) * kLaneBytes; }
int64_t StateRowBytes(const SelectiveTiling& t, int64_t tokens) {
  return 2 * RowBytes(tokens, t.dtype) / kBlockChannels * kChunkStates;
}
int64_t SpreadBytes(const SelectiveTiling& t, int64_t tokens) {
  return kChunkStates * RoundUp(tokens, t.dtype == 0 ? 8 : 16) * 32;
}

int64_t Slots(const SelectiveTiling& t, const SelectiveNest& nest) {
  return t.chunks == 1 ? nest.whole.blocks_per_part : t.chunks;
}

uint32_t LayOutForward(SelectiveTiling* t) {
  SelectiveForwardLayout& ub = t->ub_forward;
  const int64_t tile = t->forward.tile;
  Shelf shelf;
  ub.decay = shelf.Take(std::max(kChunkStates * tile * kLaneBytes, WideBytes(tile)));
  ub.state = shelf.Take(std::max(kChunkStates * tile * kLaneBytes, WideBytes(tile)));
  ub.raw_u = shelf.Take(RowBytes(tile, t->dtype));
  ub.raw_delta = shelf.Take(RowBytes(tile, t->delta_dtype));
  ub.raw_z = shelf.Take(t->has_z ? RowBytes(tile, t->dtype) : 0);
  ub.raw_bc = shelf.Take(StateRowBytes(*t, tile));
  ub.step = shelf.Take(LanesBytes(*t, tile));
  ub.input = shelf.Take(LanesBytes(*t, tile));
  ub.sum = shelf.Take(LanesBytes(*t, tile));
  ub.gate = shelf.Take(t->has_z ? LanesBytes(*t, tile) : 0);
  ub.spread = shelf.Take(SpreadBytes(*t, tile));
  ub.stage = shelf.Take(kSlotBytes);
  ub.vectors = shelf.Take(t->forward.whole.blocks_per_part * 2 * kLaneBytes);
  ub.a = shelf.Take(Slots(*t, t->forward) * kSlotBytes);
  ub.carry = shelf.Take(Slots(*t, t->forward) * kSlotBytes);
  ub.bytes = shelf.bytes();
  return ub.bytes;
}

uint32_t LayOutBackward(SelectiveTiling* t) {
  SelectiveBackwardLayout& ub = t->ub_backward;
  const int64_t stretch = t->backward.stretch, tile = t->backward.tile;
  const int64_t slots = t->resident ? Slots(*t, t->backward) : 1;
  const int64_t rows = RowBytes(stretch, t->dtype), delta_rows = RowBytes(stretch, t->delta_dtype);
  const int64_t lanes = LanesBytes(*t, stretch), states = kChunkStates * tile * kLaneBytes;
  const int64_t tiles = CeilDiv(stretch, tile), sums = 2 * kChunkStates * RoundUp(tile, 16) * 4;
  Shelf shelf;
  // Rows go out where `kept` is when there is one, and then come in over `decay` too; otherwise both at once.
  const bool keeps = t->chunks > 1;
  const int64_t in = rows * (t->has_z ? 3 : 2) + delta_rows, out = rows * (t->has_z ? 2 : 1) + delta_rows;
  ub.state =
      shelf.Take(std::max({states + kLaneBytes, WideBytes(stretch), kScratchLanes * stretch * kLaneBytes}));
  ub.decay = shelf.Take(keeps ? states : std::max(states, out));
  ub.gradient = shelf.Take(std::max(states, keeps ? in - states : in));
  ub.raw_u = keeps ? ub.decay : ub.gradient;
  ub.raw_delta = ub.raw_u + static_cast<uint32_t>(rows);
  ub.raw_dy = ub.raw_delta + static_cast<uint32_t>(delta_rows);
  ub.raw_z = ub.raw_dy + static_cast<uint32_t>(rows);
  const int64_t kept = (t->has_z ? 3 : 2) * RoundUp(stretch, 16) * kLaneBytes;
  ub.kept = shelf.Take(keeps ? std::max(kept, out) : 0);
  ub.out = keeps ? ub.kept : ub.decay;
  ub.raw_start = shelf.Take(t->ncheckpoints > 0 ? kSlotBytes : 0);
  ub.raw_bc = shelf.Take(StateRowBytes(*t, stretch));
  ub.step = shelf.Take(lanes);
  ub.u = shelf.Take(lanes);
  ub.dout = shelf.Take(lanes);
  ub.sigmoid = shelf.Take(t->softplus ? lanes : 0);
  ub.slope = shelf.Take(t->has_z ? lanes : 0);
  ub.spread = shelf.Take(2 * SpreadBytes(*t, stretch));
  ub.partial = shelf.Take(sums * 8);
  ub.stage = ub.partial;
  ub.totals = shelf.Take(sums);
  ub.sums = shelf.Take(sums * tiles);
  ub.work = shelf.Take((kWorkLanes - (t->has_z ? 0 : 1)) * tile * kLaneBytes);
  ub.starts = shelf.Take(tiles * kSlotBytes);
  ub.leaving = shelf.Take(std::max<int64_t>(kSlotBytes, sums * tiles));
  ub.vectors = shelf.Take(t->backward.whole.blocks_per_part * 4 * kLaneBytes);
  ub.a = shelf.Take(slots * kSlotBytes);
  ub.da = shelf.Take(slots * kSlotBytes);
  ub.carry = shelf.Take(slots * kSlotBytes);
  ub.bytes = shelf.bytes();
  return ub.bytes;
}

// The time of the busiest core, in blocks of channels, when tasks are dealt in order, full ones first. `kShared`
// is what a task costs beside its blocks.
double Busiest(const SelectiveTiling& t, int64_t pairs, int32_t blocks_per_part, int32_t cores) {
  constexpr double kShared = 0.1;
  const int64_t full = t.group_blocks / blocks_per_part * pairs;
  const int32_t rest = t.group_blocks % blocks_per_part;
  const int64_t most = CeilDiv(full + (rest > 0 ? pairs : 0), cores), most_full = CeilDiv(full, cores);
  return static_cast<double>(most_full) * (blocks_per_part + kShared) +
         static_cast<double>(most - most_full) * (rest + kShared);
}

// Bytes that move for a token of a group, relative to its inputs and outputs.
double Traffic(const SelectiveTiling& t, bool backward, int32_t cores, int32_t blocks_per_part) {
  const double element = t.dtype == 0 ? 4 : 2, delta = t.delta_dtype == 0 ? 4 : 2;
  const double channel =
      backward ? (t.has_z ? 5 : 3) * element + 2 * delta : (t.has_z ? 3 : 2) * element + delta;
  // Saved states, and A and dA, of which every core has its own.
  const double per_token = 4.0 * t.dstate / static_cast<double>(t.seqlen);
  const double own = static_cast<double>(std::min<int64_t>(cores, t.batch)) / static_cast<double>(t.batch);
  const double saved = per_token * (static_cast<double>(t.ncheckpoints) + own * (backward ? 2 : 1));
  const double states = 2 * t.dstate * element;
  const double parts = static_cast<double>(CeilDiv(t.group_blocks, blocks_per_part));
  const double sums = backward ? (parts > 1 ? parts * 8.0 * t.dstate : states) : 0;
  const double least = t.group_channels * channel + states * (backward ? 2 : 1);
  return (t.group_channels * (channel + saved) + parts * states + sums) / least;
}

// How many of at most `most` blocks a task of these pairs takes: what balances the cores, but once all of them
// have work, not at the price of much traffic.
int32_t BlocksPerPart(const SelectiveTiling& t, bool backward, int64_t pairs, int32_t cores, int32_t most) {
  constexpr double kMuch = 1.098, kSlightly = 0.03;
  int32_t best = std::min(most, t.group_blocks);
  const double least = Traffic(t, backward, cores, best);
  const double allowed = least > kMuch ? least + kSlightly : kMuch;
  for (int32_t blocks = best; blocks >= 1; --blocks) {
    const bool few = pairs * CeilDiv(t.group_blocks, blocks) < 2 * cores;
    if ((few || Traffic(t, backward, cores, blocks) <= allowed) &&
        Busiest(t, pairs, blocks, cores) < Busiest(t, pairs, best, cores)) {
      best = blocks;
    }
  }
  return best;
}

SelectiveCut CutPairs(const SelectiveTiling& t, int64_t first_pair, int64_t pairs, int64_t first_task,
                      int32_t blocks_per_part) {
  const int32_t parts = static_cast<int32_t>(CeilDiv(t.group_blocks, blocks_per_part));
  return SelectiveCut{first_pair, pairs, first_task, pairs * parts, parts, blocks_per_part};
}

// Tasks and stretches; the pairs that do not fill a round of all cores may be cut finer.
void CutWork(const SelectiveTiling& t, int32_t cores, int32_t most, SelectiveNest* nest) {
  const bool backward = nest->backward != 0;
  const int64_t pairs = t.batch * t.ngroups;
  const int64_t parts = CeilDiv(t.group_blocks, most);
  int64_t whole = backward ? pairs : pairs * parts / cores * cores / parts;
  const int32_t rest_blocks = BlocksPerPart(t, backward, pairs - whole, cores, most);
  const int32_t even = BlocksPerPart(t, backward, pairs, cores, most);
  if (backward || Busiest(t, pairs, even, cores) <=
                      Busiest(t, whole, most, cores) + Busiest(t, pairs - whole, rest_blocks, cores)) {
    whole = pairs;
    nest->whole = CutPairs(t, 0, pairs, 0, even);
  } else {
    nest->whole = CutPairs(t, 0, whole, 0, most);
  }
  nest->rest = CutPairs(t, whole, pairs - whole, nest->whole.tasks, rest_blocks);
  nest->cores = static_cast<int32_t>(std::min<int64_t>(nest->whole.tasks + nest->rest.tasks, cores));
  const int64_t segments = t.ncheckpoints + 1;
  const int64_t last = t.seqlen - (segments - 1) * kSaveEvery;
  nest->per_segment = static_cast<int32_t>(CeilDiv(std::min<int64_t>(kSaveEvery, t.seqlen), nest->stretch));
  nest->stretches = (segments - 1) * nest->per_segment + CeilDiv(last, nest->stretch);
}

// The longest tile that fits, cut evenly from a segment.
void PlanForward(const ChipBudget& chip, int32_t cores, SelectiveTiling* t) {
  const int64_t longest = std::min<int64_t>(kSaveEvery, t->seqlen);
  SelectiveNest& nest = t->forward;
  for (int64_t tiles = 1;; ++tiles) {
    Require(tiles <= longest, "Unified Buffer bytes", t->ub_forward.bytes, "exceed the chip's");
    nest.tile = nest.stretch = static_cast<int32_t>(CeilDiv(longest, tiles));
    int32_t most = 0;
    do {
      nest.whole.blocks_per_part = most + 1;
    } while (LayOutForward(t) <= chip.ub_bytes && ++most < t->group_blocks && t->chunks == 1);
    if (most > 0) {
      nest.whole.blocks_per_part = most;
      LayOutForward(t);
      CutWork(*t, cores, most, &nest);
      return;
    }
  }
}

// The most blocks of a part that fit, 0 for none.
int32_t MostBlocks(const ChipBudget& chip, SelectiveTiling* t) {
  int32_t most = 0;
  do {
    t->backward.whole.blocks_per_part = most + 1;
  } while (LayOutBackward(t) <= chip.ub_bytes && ++most < t->group_blocks && t->chunks == 1);
  return most;
}

// The longest tile that leaves room for two blocks, which then share B, C and their gradients; what is carried
// leaves the chip only when no tile of a useful length fits beside it.
void PlanBackward(const ChipBudget& chip, int32_t cores, SelectiveTiling* t) {
  constexpr int64_t kUseful = 7;
  SelectiveNest& nest = t->backward;
  nest.backward = 1;
  nest.stretch = static_cast<int32_t>(std::min<int64_t>(kSaveEvery, t->seqlen));
  for (t->resident = 1;; t->resident = 0) {
    for (int64_t tiles = 1; tiles <= nest.stretch; ++tiles) {
      nest.tile = static_cast<int32_t>(CeilDiv(nest.stretch, tiles));
      if (t->resident && nest.tile < std::min<int64_t>(kUseful, nest.stretch)) {
        break;
      }
      const int32_t most = MostBlocks(chip, t);
      const int32_t wanted = t->chunks == 1 && nest.tile > kUseful ? std::min(2, t->group_blocks) : 1;
      if (most >= wanted) {
        nest.whole.blocks_per_part = most;
        LayOutBackward(t);
        CutWork(*t, cores, most, &nest);
        t->rows = std::min<int64_t>(nest.cores, t->batch);
        t->workspace_bytes = t->resident ? 0 : int64_t{2} * nest.cores * t->chunks * kSlotBytes;
        return;
      }
    }
    Require(t->resident, "Unified Buffer bytes", t->ub_backward.bytes, "exceed the chip's");
  }
}

}  // namespace

SelectiveTiling PlanSelectiveScan(const SelectiveScanCall& call, const ChipBudget& chip) {
  SelectiveTiling tiling{};
  TakeSizes(call, &tiling);
  TakeOptions(call, &tiling);
  const int32_t cores = 2 * chip.cube_cores;
  PlanForward(chip, cores, &tiling);
  PlanBackward(chip, cores, &tiling);
  return tiling;
}

}  // namespace vmamba2
