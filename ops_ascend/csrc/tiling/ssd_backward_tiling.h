// ssd_backward_tiling.h -- everything the SSD backward kernel is told: one flat struct, made by the host, read
// by every core.
//
// `common` is the tiling of the forward as far as the two share it: sizes, strides, options, the places in the
// Unified Buffer of the pools, the decays and the work tiles, and the stream of operands in L1.
#ifndef VMAMBA2_SSD_BACKWARD_TILING_H
#define VMAMBA2_SSD_BACKWARD_TILING_H

#include "ssd_forward_tiling.h"

namespace vmamba2 {

constexpr int32_t kAhead = 2;         // chunks that are prepared ahead of the one that is weighed
constexpr int32_t kInputSlots = 4;    // of what is prepared: until the epilogue of its chunk
constexpr int32_t kProductSlots = 3;  // of the first products: until their chunk is weighed
constexpr int32_t kWeightSlots = 2;   // of what is weighed, and of the last products
constexpr int32_t kStateSlots = 3;    // of states and their gradients: a pair's are weighed together
constexpr int32_t kTokenSlots = 3;    // of x and dy in L1
constexpr int32_t kSumSlots = 8;      // of the sums that the two vector cores exchange
constexpr int32_t kStepSlots = 8;     // of the steps and their slopes: until the gradient of dt
constexpr int32_t kConcludeLag = 3;   // chunks between the one that is weighed and the one that is concluded
constexpr int32_t kFlowParts = 2;     // of the flows in 16-bit operands: rounded, and what is rounded off
constexpr int32_t kStateRows = 128;   // rows of one operand tile of a state
constexpr int32_t kStatePair = 2;     // chunks between two saved states
constexpr int32_t kVectorFloats = kChunk * kMaxHeads;  // one number for each token and head
constexpr int32_t kBlockOfFloats = 8;

// Byte offsets inside one core's part of the workspace. Tiles of tokens are operands of 64 rows
// (operand_tiles.h), tiles of states operands of at most kStateRows rows; float32 products are fractal,
// [columns / 8][rows][8].
struct BackwardRings {
  int64_t c_raw, b_raw;        // [kInputSlots][slice][64 x 64] Op
  int64_t c_scaled, b_scaled;  // [kInputSlots][head][slice][64 x 64] Op
  int64_t x_cast;              // [kInputSlots][head][64 x headdim16] Op, when x is not in the operands' dtype
  int64_t dy;                  // as x_cast, when there is a gate or dy is not in the operands' dtype
  int64_t gate;                // [kInputSlots][head][column of tiles][2 cores][32 x 64] float32, rows
  int64_t cb;                  // [kProductSlots][64 x 64] float32
  int64_t dw;                  // [kProductSlots][head][64 x 64] float32
  int64_t dstates;             // [kProductSlots][head][slice][headdim16 x 64] float32
  int64_t chunk_states;        // as dstates
  int64_t weights;             // [kWeightSlots][head][64 x 64] Op
  int64_t dcb;                 // [kWeightSlots][64 x 64] Op
  // [kWeightSlots][kFlowParts][head][64 x 64] Op: dW W strictly below the diagonal, without D
  int64_t flows;
  int64_t before;              // [64 x 64] Op: 1 below the diagonal
  int64_t states;              // [kStateSlots][head][slice][row tile][<= 128 x 64] Op
  int64_t dleaving;            // as states
  int64_t c_gradient;          // [kWeightSlots][head][slice][64 x 64] float32: dy S
  int64_t b_gradient;          // as c_gradient: x G
  int64_t c_within, b_within;  // [kWeightSlots][slice][64 x 64] float32
  int64_t flows_before;        // [kWeightSlots][head][64 x 64] float32: flows from before each token
  int64_t y;                   // [kWeightSlots][head][64 x headdim16] float32, with a gate
  int64_t sums;                // [kSumSlots] kSumBytes
  int64_t steps;               // [kStepSlots][2][kVectorFloats] float32: step and slope
  int64_t spill;               // [head][slice][headdim16][64] float32, rows, when G does not fit on chip
  int64_t bytes;
};

// Of one slot of the sums, in units of kVectorFloats float32: by head and token. What a core finds for its own
// tokens it writes among those of the other; of sums over its rows there are two.
constexpr int32_t kDiagonal = 0;    // of dW C B^T
constexpr int32_t kFromStart = 1;   // C~ . (dy S)
constexpr int32_t kIntoEnd = 2;     // exp(cum_last - cum_j) B . (x G)
constexpr int32_t kColumnSums = 3;  // of dW exp(cum_i - cum_j) C B^T below the diagonal; two of them
constexpr int32_t kCrossing = 5;  // of dW W over what tokens from this one on take from those before it; two
constexpr int32_t kThrough = 7;   // [2 cores][8 heads]: exp(cum_last) <S, G>
constexpr int32_t kSumBytes = (kThrough * kVectorFloats + 2 * kMaxHeads) * 4;

// Byte offsets in the Unified Buffer beside those of `common.ub`, whose `state` is G.
struct BackwardVectorLayout {
  uint32_t decays;  // [kInputSlots] kBackwardDecayBytes
  uint32_t rows;    // kPairRows vectors, by head and token
  uint32_t sums;    // what this core sends to the exchange
  uint32_t totals;  // of the task
  uint32_t corner;  // what concerns the diagonal
};

constexpr int32_t kBackwardPool = 3;  // tiles on their way into the Unified Buffer, and as many out of it
constexpr int32_t kBackwardDecayBytes =
    3 * kVectorFloats * 4 + kMaxHeads * 32;  // hi, lo, step, and the decay
constexpr int32_t kPairRows = 3;             // hi, exp(-lo) and step
constexpr int32_t kHalfVector = kVectorRows * kMaxHeads;
// [8][32] of the diagonal and of the two sums that the epilogue finds; [8][64] of column sums and of what crosses.
constexpr int32_t kSentBytes = (3 * kHalfVector + 2 * kVectorFloats) * 4;
// [64][8] of dA and of d(dt_bias), [8][32] of dD; and the block of A.
constexpr int32_t kTotalBytes = (2 * kVectorFloats + kHalfVector) * 4 + 32;
// The 8 x 8 identity, the diagonal of C B^T, room for the diagonals of four 8 x 8 squares.
constexpr int32_t kCornerBytes = (64 + kVectorRows + 4 * 64 + kVectorRows) * 4;

struct SsdBackwardTiling {
  SsdForwardTiling common;
  TokenStrides dy;
  int32_t has_dfinal;
  int32_t token_columns;    // columns of tiles of headdim: headdim16 / 64, rounded up
  int32_t state_row_tiles;  // of headdim16
  int64_t state_elements;   // of one head's operand, all slices
  BackwardRings ring;
  BackwardVectorLayout ub;
  uint32_t l1_x, l1_dy, l1_slot;  // byte offsets in L1, and the bytes of one slot of either
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_TILING_H
