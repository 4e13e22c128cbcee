// selective_scan_tiling.h -- everything the selective scan kernels are told: one flat struct, made by the
// host, read by every core.
//
// Sizes, strides and offsets only; no pointers and no library types, so that device code can take it by
// value. The plan that fills it is selective_scan_plan.cpp. Strides count elements.
#ifndef VMAMBA2_SELECTIVE_SCAN_TILING_H
#define VMAMBA2_SELECTIVE_SCAN_TILING_H

#include <cstdint>

#include "ssd_forward_tiling.h"

namespace vmamba2 {

constexpr int32_t kBlockChannels = 64;  // channels of one block: the lanes of a float32 instruction
constexpr int32_t kChunkStates = 8;     // states worked on together: one 32-byte block of float32
// Tokens between two saved states: 196 and 49 tokens are 7 and 1.75 segments, and the states add less than a
// tenth to what the forward moves at 8 states in float32.
constexpr int32_t kSaveEvery = 28;
// Tokens of a tile: a repeat stride is 8 blocks a token and at most 255, and the backward keeps one token more.
constexpr int32_t kMaxTile = 30;
static_assert(kSaveEvery <= kMaxTile, "a forward tile may be a whole segment");

struct ChannelStrides {
  int64_t batch, channel;
};

struct StateStrides {
  int64_t batch, group, state;
};

// One way to cut (batch, group) pairs [first_pair, first_pair + pairs) into tasks of a few channel blocks.
struct SelectiveCut {
  int64_t first_pair, pairs;
  int64_t first_task, tasks;
  int32_t parts, blocks_per_part;
};

// How one of the two kernels cuts its work. A task is (batch, group, part of its channel blocks) over all
// tokens; it walks stretches of time, in each its channel blocks, in each the chunks of states.
struct SelectiveNest {
  SelectiveCut whole;  // full rounds of all cores, with as many blocks together as fit
  SelectiveCut rest;   // the pairs that are left, in smaller parts; none in the backward, whose parts show
  int64_t stretches;
  int32_t cores;        // that have tasks
  int32_t stretch;      // tokens
  int32_t per_segment;  // stretches
  int32_t tile;         // tokens that are on chip with all their states; the forward's stretch
  int32_t backward;     // stretches from the last to the first
};

// Byte offsets in the Unified Buffer. "Rows" are one channel's tokens side by side, "lanes" one token's
// channels. The capacity in tokens is the stretch (rows, lanes) or the tile (states). A slot is a block of the
// part, or a chunk of states when there are several: then a part has one block.
struct SelectiveForwardLayout {
  uint32_t decay;      // [states][tokens][64]; between stretches rows of y on their way out
  uint32_t state;      // [states][tokens][64]; between stretches scratch
  uint32_t raw_u;      // rows
  uint32_t raw_delta;  // rows
  uint32_t raw_z;      // rows
  uint32_t raw_bc;     // rows of B's states, then of C's
  uint32_t step;       // lanes
  uint32_t input;      // lanes: u, then step u
  uint32_t sum;        // lanes: y
  uint32_t gate;       // lanes: z
  uint32_t spread;     // [states][tokens][8], B or C
  uint32_t stage;      // [states][64], on its way out or in
  uint32_t vectors;    // [block]: D, delta_bias
  uint32_t a;          // [slot][states][64]
  uint32_t carry;      // [slot][states][64]: the state before the next token
  uint32_t bytes;
};

struct SelectiveBackwardLayout {
  uint32_t state;      // [64] in front of [states][tokens][64]; between stretches scratch
  uint32_t decay;      // [states][tokens][64]; between stretches `out` or rows on their way in
  uint32_t gradient;   // [states][tokens][64]; between stretches rows on their way in
  uint32_t raw_u;      // rows
  uint32_t raw_delta;  // rows
  uint32_t raw_z;      // rows
  uint32_t raw_dy;     // rows
  uint32_t out;        // rows on their way out, over `decay` or `kept`
  uint32_t raw_start;  // [states][64]: the state before the stretch
  uint32_t raw_bc;     // rows of B's states, then of C's
  uint32_t step;       // lanes; in the end ddelta
  uint32_t u;          // lanes; in the end du
  uint32_t dout;       // lanes: the gradient of y before the gate
  uint32_t sigmoid;    // lanes: of the biased delta, the slope of softplus
  uint32_t slope;      // lanes: dy times the slope of silu(z); in the end dz
  uint32_t kept;       // lanes: dproduct, dstep and y summed over the states so far, with several chunks
  uint32_t spread;     // [states][tokens of the stretch][8], B, then C
  uint32_t partial;    // [dB, dC][states][tokens][8]: sums over eight of the lanes
  uint32_t totals;     // [dB, dC][states][tokens]
  uint32_t sums;       // [tile] of the stretch, as `totals`, over the blocks so far
  uint32_t work;       // kWorkLanes lanes of a tile, one less without z
  uint32_t starts;     // [tile][states][64]
  uint32_t stage;      // [states][64], on its way in; over `partial`
  uint32_t leaving;    // `sums`, or [states][64] of dA, on its way out
  uint32_t vectors;    // [block]: D, delta_bias, dD, ddelta_bias
  uint32_t a;          // [slot][states][64]
  uint32_t da;         // [slot][states][64]
  uint32_t carry;      // [slot][states][64]: the gradient of the state before the next token
  uint32_t bytes;
};

constexpr int32_t kWorkLanes = 4;     // step u, two products, y
constexpr int32_t kScratchLanes = 3;  // of a stretch, that fit `state`

struct SelectiveTiling {
  int64_t batch, seqlen;
  int32_t dim, ngroups, dstate;
  int32_t group_channels, group_blocks;
  int32_t chunks;              // of states
  int32_t dtype, delta_dtype;  // DType
  int32_t has_d, has_z, has_bias, softplus, save, has_dy, has_dlast;
  int64_t ncheckpoints;
  ChannelStrides u, delta, z, dy;
  StateStrides b, c;
  SelectiveNest forward, backward;
  int32_t resident;  // backward: dA and what is carried stay on chip; otherwise they go through the workspace
  int64_t rows;      // backward: of dA, dD and ddelta_bias; a core adds up what it can
  int64_t workspace_bytes;
  SelectiveForwardLayout ub_forward;
  SelectiveBackwardLayout ub_backward;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_SCAN_TILING_H
