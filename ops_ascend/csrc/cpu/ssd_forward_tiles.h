// ssd_forward_tiles.h -- what a thread of the forward scan works on: how long its chunks are, its tiles, and what
// becomes of a block of y.
#ifndef VMAMBA2_CPU_SSD_FORWARD_TILES_H
#define VMAMBA2_CPU_SSD_FORWARD_TILES_H

#include "ssd_states.h"
#include "ssd_traffic.h"

namespace vmamba2 {

// The length of chunks, at most, that makes a scan of `heads` heads of a group cheapest. In multiply-adds of a token
// and head: half a chunk of tokens before it, each with its share of C B^T; its part in the states, which the first
// chunk does not read and the last writes only when asked to; and what is paid once for a chunk. The constants were
// fitted to times of chunks of 32 to 200 tokens.
inline int64_t ForwardChunkLength(const VmSsdCall& call, int64_t heads, bool final_states) {
  constexpr int64_t kLengths[] = {32, 48, 64, 104, 152, 208};
  const auto inner = static_cast<double>(call.headdim), states = inner * static_cast<double>(call.dstate);
  const double pair = inner + static_cast<double>(call.dstate) / static_cast<double>(heads);
  int64_t best = kLengths[0];
  double least = 0;
  for (const int64_t longest : kLengths) {
    const Chunks chunks(call.seqlen, longest);
    const double length = static_cast<double>(chunks.length);
    const double read = 1 - 1 / static_cast<double>(chunks.count);
    const double written = final_states ? 1 : read;
    const double cost = 0.6 * length * pair + 1.3 * states * (read + written) + (40000 + 7 * states) / length;
    if (longest != kLengths[0] && cost >= least) continue;
    best = longest;
    least = cost;
  }
  return best;
}

// Where the rows of y gather, and how far apart.
template <class Real>
struct OutputRows {
  Real* base;
  int64_t token, head;
  bool in_y;      // the caller's y itself
  bool by_token;  // a row for each token, not for each of a chunk
};

template <class Real>
struct ForwardTiles {
  Real *b, *bt, *c, *cb, *weights, *x, *left, *skip, *gate, *states, *gathered;
  int64_t *tokens, *next_tokens, *rows;
  ChunkDecays<Real> decays;

  ForwardTiles(Cutter& cutter, const VmSsdCall& call, int64_t heads, int64_t longest, int64_t gathered_rows)
      : decays(cutter, heads, longest) {
    const int64_t long_row = Padded<Real>(longest), state_row = Padded<Real>(call.dstate);
    const int64_t head_row = Padded<Real>(call.headdim);
    const int64_t of_tile =
        HeadsPerTile<Real>(call.headdim) < heads ? HeadsPerTile<Real>(call.headdim) : heads;
    b = cutter.Cut<Real>(long_row * state_row);
    bt = cutter.Cut<Real>(call.dstate * long_row);
    c = cutter.Cut<Real>(longest * state_row);
    cb = cutter.Cut<Real>(longest * long_row);
    weights = cutter.Cut<Real>(of_tile * longest * long_row);
    x = cutter.Cut<Real>(longest * of_tile * head_row);
    left = cutter.Cut<Real>(longest * of_tile * head_row);
    skip = cutter.Cut<Real>(heads * head_row);
    gate = cutter.Cut<Real>(head_row);
    states = cutter.Cut<Real>(heads * call.dstate * head_row);
    gathered = cutter.Cut<Real>(gathered_rows * heads * head_row);
    tokens = cutter.Cut<int64_t>(longest);
    next_tokens = cutter.Cut<int64_t>(longest);
    rows = cutter.Cut<int64_t>(longest);
  }
};

// What becomes of a block of y: added to that of earlier directions, scaled, D x added, stored.
template <class Real>
struct GatherOutput {
  Real* to;              // the first row's place for this tile
  const int64_t* rows;   // offsets of rows
  const Real *x, *skip;  // skip may be null
  int64_t columns, length;
  Real scale;
  bool add, past;
  Prefetch* ahead;

  template <int kHeight, int kWidth>
  inline __attribute__((always_inline)) void operator()(int64_t row, int64_t column,
                                                        Vector<Real> (&sums)[kHeight][kWidth]) const {
    Each(row, column, sums, [&](Real* at, int64_t, int64_t, Vector<Real>& sum) {
      if (add) sum += Load(at);
    });
    if (skip) {
      Each(row, column, sums, [&](Real*, int64_t l, int64_t c, Vector<Real>& sum) {
        sum = sum * scale + Load(skip + c) * Load(x + l * columns + c);
      });
    } else if (scale != Real(1)) {
      Each(row, column, sums, [&](Real*, int64_t, int64_t, Vector<Real>& sum) { sum *= scale; });
    }
    if (past) {
      Each(row, column, sums, [&](Real* at, int64_t, int64_t, Vector<Real>& sum) { StorePast(at, sum); });
    } else {
      Each(row, column, sums, [&](Real* at, int64_t, int64_t, Vector<Real>& sum) { Store(at, sum); });
    }
    ahead->Ask();
    if (!add) return;
    // The sums that the next block reads.
    for (int64_t l = row + kHeight; l < row + 2 * kHeight && l < length; ++l) {
      for (int v = 0; v < kWidth; ++v) {
        __builtin_prefetch(to + rows[l] + column + v * kLanes<Real>, 1, 3);
      }
    }
  }

  template <int kHeight, int kWidth, class Body>
  inline __attribute__((always_inline)) void Each(int64_t row, int64_t column,
                                                  Vector<Real> (&sums)[kHeight][kWidth], Body body) const {
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
      Real* at = to + rows[row + i] + column;
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        body(at + v * kLanes<Real>, row + i, column + v * kLanes<Real>, sums[i][v]);
      }
    }
  }
};

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_FORWARD_TILES_H
