// ssd_backward_walk.h -- one walk of the Mamba-2 backward: some heads of a group, in one order of the tokens.
#ifndef VMAMBA2_CPU_SSD_BACKWARD_WALK_H
#define VMAMBA2_CPU_SSD_BACKWARD_WALK_H

#include "ssd_backward_tiles.h"

namespace vmamba2 {
namespace ssd_backward {

// Where gradients of tokens go: the caller's tensor or a buffer of Real, (batch, L, heads or groups, inner).
struct Target {
  VmTensor tensor;
  int64_t batch, first;  // of the walk's heads or group in it
  bool add;              // an earlier walk of the task wrote it
  bool past;             // past the caches
};

template <class Real>
struct TokenWalk {
  const VmSsdCall& call;
  const VmSsdGradients& gradients;
  const Layout<Real>& sizes;
  const Chunks& chunks;
  Tiles<Real>& tiles;
  HeadsOfGroup heads;
  TokenOrder order;
  HeadsOfGroup next_heads;  // of the walk that comes next
  TokenOrder next_order;
  Target dx, ddt, db, dc;
  Real* y;     // (L, wide), the mean of y over directions where a gate needs it, else null
  bool add_y;  // an earlier walk wrote it

  bool HasDy() const { return gradients.dy.data != nullptr; }
  bool Gated() const { return call.z.data != nullptr && HasDy(); }
  // y is the mean of the walks.
  Real Share() const { return Real(1) / static_cast<Real>(Walks(call)); }
  Real* Starts(int64_t chunk) const { return tiles.starts + chunk * sizes.StateSize(); }

  TokenRows Heads(int64_t length) const {
    return {heads.batch, tiles.tokens, length, heads.first, heads.count, call.headdim};
  }
  TokenRows Group(int64_t length) const {
    return {heads.batch, tiles.tokens, length, heads.group, 1, call.dstate};
  }
};

// Rows of a result that a product gives vector by vector: in the target where it holds whole vectors of Real,
// else in a tile that is stored afterwards.
template <class Real>
struct ResultRows {
  Real* const* rows;
  bool direct, add, past;

  void Put(int64_t l, int64_t column, Vector<Real> value) const {
    Real* to = rows[l] + column;
    if (past) {
      StorePast(to, value);
    } else {
      Store(to, add ? Load(to) + value : value);
    }
  }
};

template <class Real>
inline ResultRows<Real> RowsOf(const Target& target, TokenRows rows, Real* tile, int64_t ld, bool may_direct,
                               Real** pointers) {
  const VmTensor& tensor = target.tensor;
  rows.batch = target.batch;
  rows.first = target.first;
  const bool direct = may_direct && tensor.dtype == kDtypeOf<Real> && tensor.strides[3] == 1 &&
                      Padded<Real>(rows.inner) == rows.inner &&
                      (rows.count == 1 || tensor.strides[2] == rows.inner);
  for (int64_t l = 0; l < rows.length; ++l)
    pointers[l] = direct ? static_cast<Real*>(tensor.data) + rows.Offset(tensor, l) : tile + l * ld;
  return {pointers, direct, direct && target.add, direct && target.past};
}

// Stores what is in a tile still.
template <class Real>
inline void FinishRows(const ResultRows<Real>& result, const Target& target, TokenRows rows) {
  if (result.direct) return;
  rows.batch = target.batch;
  rows.first = target.first;
  for (int64_t l = 0; l < rows.length; ++l) {
    if (target.add) {
      AddTileRow(result.rows[l], target.tensor, rows, l);
    } else {
      StoreTileRow(result.rows[l], target.tensor, rows, l);
    }
  }
}

struct Chunk {
  int64_t index, begin, length;
  bool has_start, has_end;  // whether the state before it, and the gradient of the one after, may not be zero
};

// Tokens and decays of a chunk.
template <class Real>
inline void LoadChunk(const TokenWalk<Real>& walk, const Chunk& chunk) {
  Tiles<Real>& tiles = walk.tiles;
  const ChunkTokens order(walk.order, chunk.begin, chunk.length, tiles.tokens);
  LoadDecays(walk.call, walk.heads, order, chunk.begin, chunk.length, tiles.decays);
  const int32_t* first = tiles.decays.first;
  for (int64_t l = chunk.length - 1; l >= 0; --l) {
    const bool last = l == chunk.length - 1 || first[l + 1] != first[l];
    tiles.end[l] = last ? static_cast<int32_t>(l + 1) : tiles.end[l + 1];
  }
}

// Blocks of a product, each of which may ask for rows that are needed soon.
template <class Real>
inline int64_t BlocksOf(int64_t rows, int64_t columns) {
  constexpr int64_t kColumns = kPanel * kLanes<Real>;
  return ((rows + kBlock - 1) / kBlock) * ((columns + kColumns - 1) / kColumns);
}

// Rows of the chunk that comes next: of x and B for a walk of states (`states`), else of dy and C too.
// `asks` is the least number of blocks in which to ask for them.
template <class Real>
inline Prefetch Ahead(const TokenWalk<Real>& walk, const HeadsOfGroup& heads, const TokenOrder& order,
                      int64_t chunk, bool states, int64_t asks) {
  const VmSsdCall& call = walk.call;
  const int64_t begin = walk.chunks.Begin(chunk), length = walk.chunks.Length(chunk, call.seqlen);
  ChunkTokens(order, begin, length, walk.tiles.next_tokens);
  Prefetch ahead(walk.tiles.next_tokens, length);
  ahead.Add(call.b, heads.batch, heads.group, 1, call.dstate);
  ahead.Add(call.x, heads.batch, heads.first, heads.count, call.headdim);
  if (!states && walk.HasDy()) {
    ahead.Add(walk.gradients.dy, heads.batch, heads.first, heads.count, call.headdim);
    ahead.Add(call.c, heads.batch, heads.group, 1, call.dstate);
  }
  ahead.Spread(asks > 0 ? asks : 1);
  return ahead;
}

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_WALK_H
