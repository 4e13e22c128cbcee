// ssd_forward_tiling.h -- everything the SSD forward kernel is told: one flat struct, made by the host, read
// by every core.
//
// Sizes, strides and offsets only; no pointers and no library types, so that device code can take it by
// value. The plan that fills it is ssd_forward_plan.cpp. Strides and GM offsets are 64-bit and count elements
// unless the name says bytes.
#ifndef VMAMBA2_SSD_FORWARD_TILING_H
#define VMAMBA2_SSD_FORWARD_TILING_H

#include <cstdint>

namespace vmamba2 {

constexpr int32_t kChunk = 64;       // tokens of one kernel chunk, whatever the caller's chunk_size
constexpr int32_t kVectorRows = 32;  // rows of a chunk that one of the two vector cores works on
constexpr int32_t kSlice = 64;       // columns of dstate or headdim that one tile holds
constexpr int32_t kMaxHeads = 8;     // heads of one task: one 32-byte block of float32
constexpr int32_t kMaxSize = 256;    // largest headdim and dstate
constexpr int32_t kRingSlots = 2;    // chunks in flight between the cube core and its vector cores
constexpr int32_t kDeepSlots = 3;    // of the tiles that live longest: C~, from stage 1 to stage 2, and y
constexpr int32_t kDecayBytes = kChunk * 16 * 4 + 2 * kMaxHeads * kChunk * 4 + kMaxHeads * 32;
// A's, bias's and a constant's block, and the offsets of a transposing gather.
constexpr int32_t kSmallBytes = 3 * 32 + kMaxHeads * kChunk * 4;
constexpr int32_t kTileElements = kVectorRows * kSlice;
constexpr int32_t kInSlots = 4;      // tiles on their way into the Unified Buffer
constexpr int32_t kOutSlots = 4;     // tiles on their way out of it
constexpr int32_t kStreamSlots = 4;  // operand tiles in L1 on their way to the cube

enum class DType : int32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };
enum class Skip : int32_t { kNone = 0, kPerHead = 1, kPerChannel = 2 };

struct TokenStrides {
  int64_t batch;
  int64_t token;
  int64_t head;  // or group
};

// Byte offsets inside one core's part of the workspace; a ring has kRingSlots slots one after another, or
// kDeepSlots where it says [deep].
struct RingLayout {
  int64_t c_raw;         // [slot][slice][64 x 64] Op, left operand
  int64_t b_raw;         // [slot][slice][64 x 64] Op, right operand, not transposed
  int64_t c_scaled;      // [deep][head][slice] as c_raw
  int64_t b_scaled;      // [slot][head][slice][64 x 64] Op, right operand, transposed on load
  int64_t x_cast;        // [slot][head][64 x headdim] Op, only when x is not in the operands' dtype
  int64_t weights;       // [slot][head][64 x 64] Op, left operand
  int64_t states;        // [slot][head][headdim x dstate] Op, fractal
  int64_t cb;            // [slot][64 x 64] float32, fractal
  int64_t chunk_states;  // [slot][head][headdim x dstate] float32, fractal
  int64_t y;             // [deep, or task parity][rows][heads x headdim] float32, rows of tokens
  int64_t spill;         // [head][headdim x dstate] float32, the state when it does not fit on chip
  int64_t bytes;         // of one core
  // Behind all cores' rings: [unit][segment][head][headdim x dstate] float32, fractal
  int64_t segment_states;
  int64_t segment_decays;  // [unit][segment][heads][8] float32
  int64_t y_slot;          // bytes of one slot of y
};

// Byte offsets in the Unified Buffer of a vector core.
struct VectorLayout {
  uint32_t state;      // [head][half of headdim x dstate] float32
  uint32_t decays;     // [slot] kDecayBytes
  uint32_t broadcast;  // 2 x [32 rows][8 heads][8] float32
  uint32_t in;         // kInSlots tiles
  uint32_t out;        // kOutSlots tiles
  uint32_t cb;         // one tile; with direct paths one of each slot
  uint32_t mask;       // one tile
  uint32_t identity;   // one tile
  uint32_t work;       // two tiles; also the vectors of a chunk while its decays are computed
  uint32_t small;      // per-task vectors
  uint32_t carried;    // exp of the sum of a of a segment, one block for each head
  uint32_t bytes;
};

// Byte offsets in L1.
struct CubeLayout {
  uint32_t x;  // [slot][head][64 x headdim] Op
  uint32_t x_slot;
  uint32_t stream;  // kStreamSlots operand tiles
  uint32_t stream_slot;
  uint32_t weights;  // [slot][head][64 x 64] Op, with direct paths
  uint32_t states;   // [slot][head][headdim x dstate] Op, with direct paths
  uint32_t bytes;
};

struct SsdForwardTiling {
  int64_t batch, seqlen;
  int32_t nheads, headdim, ngroups, dstate;
  int32_t headdim16, dstate16;             // rounded up to fractals
  int32_t dtype, operand_dtype, dt_dtype;  // DType
  int32_t skip;                            // Skip
  int32_t has_z, has_bias, has_initial, has_resets, softplus;
  float dt_low, dt_high;
  int32_t directions, height, width;  // directions 1 and height 1: a plain sequence
  float direction_weight;             // 1 / directions
  int32_t checkpoint_every;           // chunks between two saved states; 0 saves none
  int64_t nchunks, ncheckpoints;
  TokenStrides x, dt, b, c, z;
  int32_t heads_per_group, heads_per_task, parts;
  int32_t segments;     // of a sequence, when (batch, head) cannot fill the cores
  int32_t states_only;  // first of two launches: only the state that each segment adds
  int64_t chunks_per_segment;
  int64_t ntasks;
  int32_t blocks;
  int32_t epilogue;  // the vector cores finish y (gate, per-channel skip, or a sum to round)
  int32_t state_on_chip;
  int32_t direct;           // 950PR: W and the states go from UB to L1, cb from L0C to UB, not through rings
  int32_t heads_per_store;  // heads side by side in L0C
  uint32_t l0c_y_bytes;     // of L0C for y, behind the other products
  RingLayout ring;
  VectorLayout ub;
  CubeLayout l1;
  int64_t workspace_bytes;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_TILING_H
