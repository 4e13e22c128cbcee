// ssd_backward_tiles.h -- the tiles that a thread of the Mamba-2 backward works on, loaded and stored.
//
//   tokens     (Q, heads * Ppad)   x, left = leave dt x, dy, entered = enter dy, du, y    stride `wide`
//   groups     (Q, Npad)           B, C, dB, dC                                            stride `deep`
//   pairs      (Q, Qpad)           row s, column l >= s: C_l B_s, its gradient, weights    stride `across`
//   transposed (N, Qpad), (P, Qpad) of C and of a head's dy                                stride `across`
//   states     (heads * Ppad, N)   at the start of each chunk, and their gradient          stride `deep`
//   transposed (N, heads * Ppad)   of a state or a gradient of one                         stride `wide`
//
// P and N are padded with zeros to whole vectors; so are the tokens of dy and C, whose transposes need it.
#ifndef VMAMBA2_CPU_SSD_BACKWARD_TILES_H
#define VMAMBA2_CPU_SSD_BACKWARD_TILES_H

#include <algorithm>

#include "ssd_chunk.h"
#include "ssd_traffic.h"

namespace vmamba2 {
namespace ssd_backward {

// Elements of a row of a tile: whole cache lines, and an odd number of them where a row is wider than a panel
// of a product, for rows a power of two apart compete for a few sets of the L1 cache.
template <class Real>
constexpr int64_t RowStride(int64_t count) {
  constexpr int64_t kLine = kCacheLine / sizeof(Real);
  const int64_t lines = (count + kLine - 1) / kLine;
  return (lines > 4 && lines % 2 == 0 ? lines + 1 : lines) * kLine;
}

template <class Real>
struct Layout {
  int64_t headdim, padded, dstate;  // P, Ppad, N
  int64_t heads;                    // of a block at most
  int64_t longest, rows;            // tokens of a chunk at most, and rounded up to whole vectors
  int64_t wide, deep, across;       // strides, see above

  Layout(const VmSsdCall& call, int64_t heads_of_block, int64_t longest_chunk)
      : headdim(call.headdim),
        padded(Padded<Real>(call.headdim)),
        dstate(call.dstate),
        heads(heads_of_block),
        longest(longest_chunk),
        rows(Padded<Real>(longest_chunk)),
        wide(RowStride<Real>(heads * padded)),
        deep(RowStride<Real>(call.dstate)),
        across(RowStride<Real>(longest_chunk)) {}

  int64_t StateSize() const { return heads * padded * deep; }
};

// One number for each token, as a vector whose lanes are still to be added.
template <class Real>
struct LaneSums {
  Real* lanes;

  LaneSums(Cutter& cutter, int64_t rows) : lanes(cutter.Cut<Real>(rows * kLanes<Real>)) {}

  void Clear(int64_t rows) { std::memset(lanes, 0, static_cast<size_t>(rows * kLanes<Real>) * sizeof(Real)); }

  void Add(int64_t row, Vector<Real> value) {
    Real* to = lanes + row * kLanes<Real>;
    Store(to, Load(to) + value);
  }
};

template <class Real>
struct Tiles {
  ChunkDecays<Real> decays;
  int64_t *tokens, *next_tokens;  // of the chunk and of the one that comes next
  int32_t* end;                   // of the packed sequence of a token, the token after its last in this chunk
  Real *x, *left, *dy, *entered, *du, *y;
  Real *b, *c, *db, *dc;
  Real *cb, *dcb, *weights;
  Real *c_transposed, *dy_transposed;
  Real *starts, *dstates, *transposed;
  LaneSums<Real> from_start, into_end, across_token, dstep;
  Real *decay_from, *scale, *dlog_decay, *after, *before;  // (Qpad)
  Real* row;                                               // (2, heads * Ppad)
  Real **dx_rows, **db_rows, **dc_rows;                    // of the tokens of the chunk
  Real* D;
  double* raw;              // (Qpad)
  double *dD, *dA, *dbias;  // sums of a block of heads

  Tiles(Cutter& cutter, const Layout<Real>& sizes, int64_t nchunks, bool gated)
      : decays(cutter, sizes.heads, sizes.longest),
        tokens(cutter.Cut<int64_t>(sizes.longest)),
        next_tokens(cutter.Cut<int64_t>(sizes.longest)),
        end(cutter.Cut<int32_t>(sizes.longest)),
        x(cutter.Cut<Real>(sizes.rows * sizes.wide)),
        // Left is what the walk of states needs, dy what the one of gradients does.
        left(cutter.Cut<Real>(sizes.rows * sizes.wide)),
        dy(left),
        entered(cutter.Cut<Real>(sizes.rows * sizes.wide)),
        du(cutter.Cut<Real>(sizes.rows * sizes.wide)),
        y(cutter.Cut<Real>(gated ? sizes.rows * sizes.wide : 0)),
        b(cutter.Cut<Real>(sizes.rows * sizes.deep)),
        c(cutter.Cut<Real>(sizes.rows * sizes.deep)),
        db(cutter.Cut<Real>(sizes.rows * sizes.deep)),
        dc(cutter.Cut<Real>(sizes.rows * sizes.deep)),
        cb(cutter.Cut<Real>(sizes.rows * sizes.across)),
        dcb(cutter.Cut<Real>(sizes.rows * sizes.across)),
        weights(cutter.Cut<Real>(sizes.rows * sizes.across)),
        c_transposed(cutter.Cut<Real>(Padded<Real>(sizes.dstate) * sizes.across)),
        dy_transposed(cutter.Cut<Real>(sizes.padded * sizes.across)),
        starts(cutter.Cut<Real>(nchunks * sizes.StateSize())),
        dstates(cutter.Cut<Real>(sizes.StateSize())),
        transposed(cutter.Cut<Real>(sizes.dstate * sizes.wide)),
        from_start(cutter, sizes.rows),
        into_end(cutter, sizes.rows),
        across_token(cutter, sizes.rows),
        dstep(cutter, sizes.rows),
        decay_from(cutter.Cut<Real>(sizes.rows)),
        scale(cutter.Cut<Real>(sizes.rows)),
        dlog_decay(cutter.Cut<Real>(sizes.rows)),
        after(cutter.Cut<Real>(sizes.rows)),
        before(cutter.Cut<Real>(sizes.rows)),
        row(cutter.Cut<Real>(2 * sizes.wide)),
        dx_rows(cutter.Cut<Real*>(sizes.longest)),
        db_rows(cutter.Cut<Real*>(sizes.longest)),
        dc_rows(cutter.Cut<Real*>(sizes.longest)),
        D(cutter.Cut<Real>(sizes.wide)),
        raw(cutter.Cut<double>(sizes.rows)),
        dD(cutter.Cut<double>(sizes.wide)),
        dA(cutter.Cut<double>(sizes.heads)),
        dbias(cutter.Cut<double>(sizes.heads)) {}
};

// ---- Between the caller's tensors, (batch, L, heads or groups, inner), and tiles.

// Heads [first, first + count) of some tokens; `tokens` null for the first `length` of them.
struct TokenRows {
  int64_t batch;
  const int64_t* tokens;
  int64_t length, first, count, inner;

  int64_t Offset(const VmTensor& tensor, int64_t l) const {
    return batch * tensor.strides[0] + (tokens ? tokens[l] : l) * tensor.strides[1] +
           first * tensor.strides[2];
  }
};

template <class Element, class Real>
inline void WidenRow(const Element* from, int64_t count, int64_t stride, Real* to) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(Widen(from[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(Widen(from[i * stride]));
  }
}

// Row l of a tile, its padding zero.
template <class Real>
inline void LoadTileRow(const VmTensor& tensor, const TokenRows& rows, int64_t l, Real* to) {
  const int64_t padded = Padded<Real>(rows.inner);
  const bool dense = tensor.strides[3] == 1 && tensor.strides[2] == rows.inner && padded == rows.inner;
  WithElement(tensor.dtype, [&](auto* type) {
    const auto* from = static_cast<decltype(type)>(tensor.data) + rows.Offset(tensor, l);
    if (dense) return WidenRow(from, rows.count * rows.inner, 1, to);
    for (int64_t head = 0; head < rows.count; ++head) {
      WidenRow(from + head * tensor.strides[2], rows.inner, tensor.strides[3], to + head * padded);
      for (int64_t i = rows.inner; i < padded; ++i) to[head * padded + i] = 0;
    }
  });
}

template <class Real>
inline void LoadTile(const VmTensor& tensor, const TokenRows& rows, Real* tile, int64_t ld) {
  for (int64_t l = 0; l < rows.length; ++l) LoadTileRow(tensor, rows, l, tile + l * ld);
}

template <class Real>
inline void ClearRows(Real* tile, int64_t ld, int64_t begin, int64_t end, int64_t columns) {
  for (int64_t l = begin; l < end; ++l)
    std::memset(tile + l * ld, 0, static_cast<size_t>(Padded<Real>(columns)) * sizeof(Real));
}

template <class Real>
inline void StoreTileRow(const Real* from, const VmTensor& tensor, const TokenRows& rows, int64_t l) {
  const int64_t padded = Padded<Real>(rows.inner);
  const bool dense = tensor.strides[3] == 1 && tensor.strides[2] == rows.inner && padded == rows.inner;
  if (dense) return StoreRow(from, rows.count * rows.inner, tensor, rows.Offset(tensor, l), 1);
  for (int64_t head = 0; head < rows.count; ++head) {
    StoreRow(from + head * padded, rows.inner, tensor, rows.Offset(tensor, l) + head * tensor.strides[2],
             tensor.strides[3]);
  }
}

// Adds to what `tensor` has there, as Real.
template <class Real>
inline void AddTileRow(const Real* from, const VmTensor& tensor, const TokenRows& rows, int64_t l) {
  const int64_t padded = Padded<Real>(rows.inner), stride = tensor.strides[3];
  for (int64_t head = 0; head < rows.count; ++head, from += padded) {
    Real* to = static_cast<Real*>(tensor.data) + rows.Offset(tensor, l) + head * tensor.strides[2];
    if (stride == 1) {
      for (int64_t i = 0; i < rows.inner; ++i) to[i] += from[i];
    } else {
      for (int64_t i = 0; i < rows.inner; ++i) to[i * stride] += from[i];
    }
  }
}

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_TILES_H
