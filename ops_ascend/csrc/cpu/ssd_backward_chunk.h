// ssd_backward_chunk.h -- a chunk of a walk of the Mamba-2 backward, and the walk over all of them.
#ifndef VMAMBA2_CPU_SSD_BACKWARD_CHUNK_H
#define VMAMBA2_CPU_SSD_BACKWARD_CHUNK_H

#include "ssd_backward_pairs.h"
#include "ssd_backward_states.h"
#include "ssd_backward_steps.h"

namespace vmamba2 {
namespace ssd_backward {

// dy of a token in front of the gate and of the mean over directions.
template <class Real>
inline void LoadOutputGradient(const TokenWalk<Real>& walk, const TokenRows& rows, int64_t l, Real* dy) {
  const int64_t columns = walk.heads.count * walk.sizes.padded;
  const Real share = walk.Share();
  LoadTileRow(walk.gradients.dy, rows, l, dy);
  if (walk.Gated()) {
    Real* z_row = walk.tiles.row + walk.sizes.wide;
    LoadTileRow(walk.call.z, rows, l, z_row);
    for (int64_t i = 0; i < columns; i += kLanes<Real>) {
      const Vector<Real> z = Load(z_row + i);
      Store(dy + i, Load(dy + i) * (z * Sigmoid<Real>(z) * share));
    }
  } else if (share != Real(1)) {
    for (int64_t i = 0; i < columns; i += kLanes<Real>) Store(dy + i, Load(dy + i) * share);
  }
}

// x, dy, and what is made of them token by token: entered, and the sums for dD.
template <class Real>
inline void LoadHeads(const TokenWalk<Real>& walk, const Chunk& chunk) {
  Tiles<Real>& tiles = walk.tiles;
  const int64_t wide = walk.sizes.wide, padded = walk.sizes.padded, columns = walk.heads.count * padded;
  const bool sums_skip = walk.call.d.data != nullptr;
  const TokenRows rows = walk.Heads(chunk.length);
  Real* skip = tiles.row;
  std::memset(skip, 0, static_cast<size_t>(columns) * sizeof(Real));
  for (int64_t l = 0; l < chunk.length; ++l) {
    Real *x = tiles.x + l * wide, *dy = tiles.dy + l * wide, *entered = tiles.entered + l * wide;
    LoadTileRow(walk.call.x, rows, l, x);
    if (!walk.HasDy()) continue;
    LoadOutputGradient(walk, rows, l, dy);
    if (sums_skip) {
      for (int64_t i = 0; i < columns; i += kLanes<Real>)
        Store(skip + i, Load(skip + i) + Load(dy + i) * Load(x + i));
    }
    for (int64_t h = 0; chunk.has_start && h < walk.heads.count; ++h) {
      const Real enter = tiles.decays.enter[h * tiles.decays.row + l];
      for (int64_t i = h * padded; i < (h + 1) * padded; i += kLanes<Real>)
        Store(entered + i, Load(dy + i) * enter);
    }
  }
  if (!walk.HasDy()) return;
  ClearRows(tiles.dy, wide, chunk.length, Padded<Real>(chunk.length), columns);
  for (int64_t i = 0; sums_skip && i < columns; ++i) tiles.dD[i] += static_cast<double>(skip[i]);
}

// dz of tokens whose y, before skip and gate, lies in rows of stride `wide`.
template <class Real>
inline void GateGradient(const TokenWalk<Real>& walk, const TokenRows& rows, const Real* y) {
  Tiles<Real>& tiles = walk.tiles;
  const int64_t wide = walk.sizes.wide, columns = walk.heads.count * walk.sizes.padded;
  const bool skips = walk.call.d.data != nullptr;
  Real *z_row = tiles.row, *x_row = tiles.row + wide, *dz_row = tiles.row;
  for (int64_t l = 0; l < rows.length; ++l) {
    Real* dy = tiles.du;
    LoadTileRow(walk.call.z, rows, l, z_row);
    if (skips) LoadTileRow(walk.call.x, rows, l, x_row);
    LoadTileRow(walk.gradients.dy, rows, l, dy);
    for (int64_t i = 0; i < columns; i += kLanes<Real>) {
      Vector<Real> before = Load(y + l * wide + i);
      if (skips) before += Load(x_row + i) * Load(tiles.D + i);
      const Vector<Real> z = Load(z_row + i), sigmoid = Sigmoid<Real>(z);
      Store(dz_row + i, Load(dy + i) * before * (sigmoid * (Real(1) + z * (Real(1) - sigmoid))));
    }
    StoreTileRow(dz_row, walk.gradients.dz, rows, l);
  }
}

template <class Real>
inline void CollectOutputs(const TokenWalk<Real>& walk, int64_t length) {
  const Tiles<Real>& tiles = walk.tiles;
  const int64_t wide = walk.sizes.wide, columns = walk.heads.count * walk.sizes.padded;
  if (!walk.y) return GateGradient(walk, walk.Heads(length), tiles.y);
  const Real share = walk.Share();
  for (int64_t l = 0; l < length; ++l) {
    Real* to = walk.y + tiles.tokens[l] * wide;
    for (int64_t i = 0; i < columns; i += kLanes<Real>) {
      const Vector<Real> part = Load(tiles.y + l * wide + i) * share;
      Store(to + i, walk.add_y ? Load(to + i) + part : part);
    }
  }
}

// C B^T of the group.
template <class Real>
inline void LoadGroup(const TokenWalk<Real>& walk, int64_t length) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  const int64_t padded_length = Padded<Real>(length);
  LoadTile(walk.call.b, walk.Group(length), tiles.b, sizes.deep);
  if (!walk.HasDy()) return;
  LoadTile(walk.call.c, walk.Group(length), tiles.c, sizes.deep);
  ClearRows(tiles.c, sizes.deep, length, padded_length, sizes.dstate);
  Transpose(tiles.c, sizes.deep, padded_length, sizes.dstate, tiles.c_transposed, sizes.across);
  // In pieces, for a sum of few terms errs less, and what errs here does so in all heads and their channels.
  constexpr int64_t kPiece = 32;
  for (int64_t n = 0; n < sizes.dstate; n += kPiece) {
    UpperProduct(length, std::min(kPiece, sizes.dstate - n), tiles.b + n, sizes.deep,
                 tiles.c_transposed + n * sizes.across, sizes.across, n > 0, tiles.cb, sizes.across);
  }
}

// What the states at both ends of a chunk give to a head. Returns the gradient of every token's log decay.
template <class Real>
inline Real StateGradients(const TokenWalk<Real>& walk, const Chunk& chunk, int64_t head, Prefetch& ahead) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  const int64_t first = head * sizes.padded, length = chunk.length, row = head * tiles.decays.row;
  const Real carry = tiles.decays.carry[head], *starts = walk.Starts(chunk.index) + first * sizes.deep;
  const bool has_dy = walk.HasDy();
  Real* dstates = tiles.dstates + first * sizes.deep;
  if (chunk.has_start && has_dy) {
    AddGroupGradient(sizes, length, tiles.dy + first, tiles.decays.enter + row, starts, tiles.c, tiles.dc,
                     head == 0, tiles.from_start, ahead);
  }
  if (chunk.has_end) {
    for (int64_t s = 0; s < length; s += kLanes<Real>)
      Store(tiles.scale + s, Load(tiles.decays.step + row + s) * Load(tiles.decays.leave + row + s));
    AddGroupGradient(sizes, length, tiles.x + first, tiles.scale, dstates, tiles.b, tiles.db, head == 0,
                     tiles.into_end, ahead);
  }
  if (!chunk.has_start) return 0;
  const Real through = chunk.has_end ? carry * StatesDot(sizes, starts, dstates) : Real(0);
  PassState(sizes, has_dy ? length : 0, carry, tiles.entered + first, tiles.c,
            chunk.has_end ? dstates : nullptr, dstates, ahead);
  return through;
}

// What the tokens of a chunk give to each other, and dx and ddt of a head.
template <class Real>
inline void HeadGradients(const TokenWalk<Real>& walk, const Chunk& chunk, int64_t head, Real through,
                          const ResultRows<Real>& dx, Prefetch& ahead) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  const int64_t first = head * sizes.padded, length = chunk.length;
  if (walk.HasDy()) {
    Transpose(tiles.dy + first, sizes.wide, Padded<Real>(length), sizes.headdim, tiles.dy_transposed,
              sizes.across);
    UpperProduct(length, sizes.headdim, tiles.x + first, sizes.wide, tiles.dy_transposed, sizes.across, false,
                 tiles.weights, sizes.across);
    if (head == 0) {
      WeighPairs<Real, true>(walk, head, length);
    } else {
      WeighPairs<Real, false>(walk, head, length);
    }
    // The transpose has served.
    if (walk.Gated()) TokenOutputs(walk, chunk, head, tiles.dy_transposed);
  }
  TokenGradients(walk, chunk, head, dx, ahead);
  StepGradients(walk, chunk, head, through);
}

template <class Real>
inline int64_t BlocksOfChunk(const TokenWalk<Real>& walk, const Chunk& chunk) {
  const Layout<Real>& sizes = walk.sizes;
  const int64_t groups = BlocksOf<Real>(chunk.length, sizes.dstate);
  const int64_t of_head = (chunk.has_start + chunk.has_end) * groups +
                          BlocksOf<Real>(chunk.length, sizes.headdim) +
                          chunk.has_start * BlocksOf<Real>(sizes.headdim, sizes.dstate);
  return 2 * groups + walk.heads.count * of_head;
}

// Gradients of the tokens of a chunk, and dstates from its end to its start. `ahead` is for the next chunk.
template <class Real>
inline void ChunkGradients(const TokenWalk<Real>& walk, const Chunk& chunk, Prefetch& ahead) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  LoadChunk(walk, chunk);
  LoadGroup(walk, chunk.length);
  LoadHeads(walk, chunk);
  if (walk.Gated() && chunk.has_start)
    ReadStates(walk, chunk.length, tiles.c, walk.Starts(chunk.index), tiles.y, ahead);
  if (chunk.has_end) ReadStates(walk, chunk.length, tiles.b, tiles.dstates, tiles.du, ahead);
  const TokenRows heads = walk.Heads(chunk.length), group = walk.Group(chunk.length);
  const ResultRows<Real> dx = RowsOf(walk.dx, heads, tiles.du, sizes.wide, true, tiles.dx_rows);
  const ResultRows<Real> db = RowsOf(walk.db, group, tiles.db, sizes.deep, walk.HasDy(), tiles.db_rows);
  const ResultRows<Real> dc = RowsOf(walk.dc, group, tiles.dc, sizes.deep, walk.HasDy(), tiles.dc_rows);
  for (int64_t h = 0; h < walk.heads.count; ++h)
    HeadGradients(walk, chunk, h, StateGradients(walk, chunk, h, ahead), dx, ahead);
  if (walk.HasDy()) {
    GroupGradients(walk, chunk, db, dc, ahead);
  } else {
    ClearRows(tiles.dc, sizes.deep, 0, chunk.length, sizes.dstate);
    if (!chunk.has_end) ClearRows(tiles.db, sizes.deep, 0, chunk.length, sizes.dstate);
  }
  FinishRows(dx, walk.dx, heads);
  FinishRows(db, walk.db, group);
  FinishRows(dc, walk.dc, group);
  if (walk.Gated()) CollectOutputs(walk, chunk.length);
}

template <class Real>
inline void WalkBackward(const TokenWalk<Real>& walk) {
  const VmTensor &dstates = walk.gradients.dstates, &initial = walk.call.initial_states;
  const VmTensor& dinitial = walk.gradients.dinitial_states;
  WalkStates(walk);
  if (dstates.data || initial.data || walk.chunks.count > 1) LoadStates(walk, dstates, walk.tiles.dstates);
  for (int64_t index = walk.chunks.count - 1; index >= 0; --index) {
    const int64_t begin = walk.chunks.Begin(index);
    const bool last = index == walk.chunks.count - 1;
    const Chunk chunk{index, begin, walk.chunks.Length(index, walk.call.seqlen), index > 0 || initial.data,
                      !last || dstates.data};
    const int64_t asks = BlocksOfChunk(walk, chunk);
    Prefetch ahead = index > 0
                         ? Ahead(walk, walk.heads, walk.order, index - 1, false, asks)
                         : Ahead(walk, walk.next_heads, walk.next_order, 0, walk.chunks.count > 1, asks);
    ChunkGradients(walk, chunk, ahead);
  }
  if (dinitial.data) StoreStates(walk, walk.tiles.dstates, dinitial);
}

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_CHUNK_H
