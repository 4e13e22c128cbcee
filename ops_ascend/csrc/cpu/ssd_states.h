// ssd_states.h -- the states of the Mamba-2 scan: passed on over a chunk, loaded and stored.
//
//   states(n, p) = carry states(n, p) + sum_s B(s, n) left(s, p),   left(s, p) = leave_s step_s x(s, p)
//
// Heads lie in tiles of HeadsPerTile heads, as many as fill a panel of a product; the states of a tile are
// (dstate, columns) with the columns of its heads side by side, tile after tile. A head that fills a panel alone
// is a tile of its own: its 64 x 128 states then fit the L1 cache, where rows of all heads side by side would
// be a power of two apart and fight for the same lines.
#ifndef VMAMBA2_CPU_SSD_STATES_H
#define VMAMBA2_CPU_SSD_STATES_H

#include "ssd_chunk.h"
#include "ssd_traffic.h"

namespace vmamba2 {

template <class Real>
constexpr int64_t HeadsPerTile(int64_t headdim) {
  const int64_t fit = kPanel * kLanes<Real> / Padded<Real>(headdim);
  return fit > 1 ? fit : 1;
}

// Heads [first, first + count) of a task, whose columns lie side by side.
struct HeadTile {
  int64_t first, count;
};

// body(tile) for the tiles of a task.
template <class Real, class Body>
inline void ForEachTile(const HeadsOfGroup& heads, int64_t headdim, Body body) {
  const int64_t most = HeadsPerTile<Real>(headdim);
  for (int64_t first = 0; first < heads.count; first += most) {
    body(HeadTile{first, heads.count - first < most ? heads.count - first : most});
  }
}

// left(s, p) = leave_s step_s x(s, p); both (length, columns), and may be the same.
template <class Real>
inline void WeighForStates(const ChunkDecays<Real>& decays, const HeadTile& tile, int64_t headdim,
                           int64_t length, const Real* x, Real* left) {
  const int64_t padded = Padded<Real>(headdim), columns = tile.count * padded;
  for (int64_t h = 0; h < tile.count; ++h) {
    const Real* leave = decays.leave + (tile.first + h) * decays.row;
    const Real* step = decays.step + (tile.first + h) * decays.row;
    for (int64_t s = 0; s < length; ++s) {
      const Real factor = leave[s] * step[s];
      const int64_t row = s * columns + h * padded;
      for (int64_t p = row; p < row + padded; p += kLanes<Real>) Store(left + p, Load(x + p) * factor);
    }
  }
}

// Passes the states of a tile on over a chunk. b is (length, ldb). before_block() is called now and then.
template <class Real, class Hook>
inline void AdvanceTile(const ChunkDecays<Real>& decays, const HeadTile& tile, int64_t headdim,
                        int64_t dstate, int64_t length, const Real* b, int64_t ldb, const Real* left,
                        Real* states, Hook before_block) {
  constexpr int64_t kStep = kLanes<Real>;
  const int64_t padded = Padded<Real>(headdim), columns = tile.count * padded;
  // Several heads fill one panel at most, and a head that takes several has one carry.
  Vector<Real> carry[kPanel];
  for (int64_t v = 0; v < kPanel; ++v) {
    const int64_t head = tile.count > 1 && v * kStep < columns ? v * kStep / padded : 0;
    carry[v] = Splat(decays.carry[tile.first + head]);
  }
  // Tokens of an earlier packed sequence do not reach the end.
  const Range tokens{decays.first[length - 1], length};
  const auto range = [&](int64_t, int64_t) {
    before_block();
    return tokens;
  };
  ProductOf<Real, Walk::kColumns>(
      dstate, columns, range, b, ldb, left, columns,
      [&](int64_t n, int64_t c) { return carry[c / kStep % kPanel] * Load(states + n * columns + c); },
      [&](int64_t n, int64_t c, Vector<Real> sum) { Store(states + n * columns + c, sum); });
}

// Passes the states of all heads of a task, (tiles, dstate, columns), on over the chunk that `decays` was loaded
// for. b is (length, Padded(dstate)); `left` is room for (length, HeadsPerTile * Padded(headdim)).
template <class Real, class Order>
inline void AdvanceStates(const VmSsdCall& call, const HeadsOfGroup& heads, const Order& order, int64_t begin,
                          int64_t length, const ChunkDecays<Real>& decays, const Real* b, Real* left,
                          Real* states) {
  ForEachTile<Real>(heads, call.headdim, [&](const HeadTile& tile) {
    LoadTokens(call.x, heads.batch, order, begin, length, heads.first + tile.first, tile.count, call.headdim,
               left);
    WeighForStates(decays, tile, call.headdim, length, left, left);
    AdvanceTile(decays, tile, call.headdim, call.dstate, length, b, Padded<Real>(call.dstate), left,
                states + tile.first * call.dstate * Padded<Real>(call.headdim), [] {});
  });
}

// States of the caller, (batch, nheads, headdim, dstate), as those of a task; zeros where there are none.
template <class Real>
inline void LoadStates(const VmSsdCall& call, const VmTensor& tensor, const HeadsOfGroup& heads,
                       Real* states) {
  constexpr int64_t kStep = kLanes<Real>;
  const int64_t padded = Padded<Real>(call.headdim);
  if (!tensor.data) {
    std::memset(states, 0, static_cast<size_t>(heads.count * call.dstate * padded) * sizeof(Real));
    return;
  }
  ForEachTile<Real>(heads, call.headdim, [&](const HeadTile& tile) {
    const int64_t columns = tile.count * padded;
    for (int64_t h = 0; h < tile.count; ++h) {
      const int64_t from =
          heads.batch * tensor.strides[0] + (heads.first + tile.first + h) * tensor.strides[1];
      Real* to = states + tile.first * call.dstate * padded + h * padded;
      for (int64_t p = 0; p < padded; p += kStep) {
        for (int64_t n = 0; n < call.dstate; n += kStep) {
          const int64_t count = call.dstate - n < kStep ? call.dstate - n : kStep;
          Real rows[kStep * kStep] = {};
          for (int64_t r = 0; r < kStep && p + r < call.headdim; ++r) {
            LoadRow(tensor, from + (p + r) * tensor.strides[2] + n * tensor.strides[3], count,
                    tensor.strides[3], rows + r * kStep);
          }
          Vector<Real> block[kStep];
          for (int64_t r = 0; r < kStep; ++r) block[r] = Load(rows + r * kStep);
          TransposeBlock<Real>(block);
          for (int64_t r = 0; r < count; ++r) Store(to + (n + r) * columns + p, block[r]);
        }
      }
    }
  });
}

// Whether rows of `inner` are whole vectors of Real, to be stored as they are.
template <class Real>
inline bool AreRows(const VmTensor& tensor, int64_t inner) {
  return tensor.data && tensor.dtype == kDtypeOf<Real> && tensor.strides[3] == 1 && inner % kLanes<Real> == 0;
}

// The inverse of LoadStates.
template <class Real>
inline void StoreStates(const VmSsdCall& call, const Real* states, const VmTensor& tensor,
                        const HeadsOfGroup& heads) {
  constexpr int64_t kStep = kLanes<Real>;
  const int64_t padded = Padded<Real>(call.headdim);
  const int64_t elements = call.batch * call.nheads * call.headdim * call.dstate;
  const bool are_rows = AreRows<Real>(tensor, call.dstate);
  const bool past = GoesPast<Real>(tensor, call.dstate, elements);
  ForEachTile<Real>(heads, call.headdim, [&](const HeadTile& tile) {
    const int64_t columns = tile.count * padded;
    for (int64_t h = 0; h < tile.count; ++h) {
      const int64_t to = heads.batch * tensor.strides[0] + (heads.first + tile.first + h) * tensor.strides[1];
      const Real* from = states + tile.first * call.dstate * padded + h * padded;
      for (int64_t p = 0; p < padded; p += kStep) {
        for (int64_t n = 0; n < call.dstate; n += kStep) {
          const int64_t count = call.dstate - n < kStep ? call.dstate - n : kStep;
          Vector<Real> block[kStep] = {};
          for (int64_t r = 0; r < count; ++r) block[r] = Load(from + (n + r) * columns + p);
          TransposeBlock<Real>(block);
          for (int64_t r = 0; r < kStep && p + r < call.headdim; ++r) {
            const int64_t offset = to + (p + r) * tensor.strides[2] + n * tensor.strides[3];
            if (past) {
              StorePast(static_cast<Real*>(tensor.data) + offset, block[r]);
            } else if (are_rows) {
              Store(static_cast<Real*>(tensor.data) + offset, block[r]);
            } else {
              Real row[kStep];
              Store(row, block[r]);
              StoreRow(row, count, tensor, offset, tensor.strides[3]);
            }
          }
        }
      }
    }
  });
}

// The states of a tile after a chunk that begins with none, straight into the caller's rows (AreRows): with p and n
// exchanged in the product nothing is transposed. b is (length, Padded(dstate)).
template <class Real, class Hook>
inline void StoreStatesOfTile(const VmSsdCall& call, const ChunkDecays<Real>& decays,
                              const HeadsOfGroup& heads, const HeadTile& tile, int64_t length, const Real* b,
                              const Real* left, const VmTensor& tensor, Hook before_block) {
  const int64_t padded = Padded<Real>(call.headdim), columns = tile.count * padded;
  const int64_t elements = call.batch * call.nheads * call.headdim * call.dstate;
  const bool past = GoesPast<Real>(tensor, call.dstate, elements);
  const Range tokens{decays.first[length - 1], length};
  const auto range = [&](int64_t, int64_t) {
    before_block();
    return tokens;
  };
  for (int64_t h = 0; h < tile.count; ++h) {
    Real* to = static_cast<Real*>(tensor.data) + heads.batch * tensor.strides[0] +
               (heads.first + tile.first + h) * tensor.strides[1];
    ProductOf<Real, Walk::kColumns>(
        call.headdim, call.dstate, range, left + h * padded, columns, b, Padded<Real>(call.dstate),
        [](int64_t, int64_t) { return Vector<Real>{}; },
        [&](int64_t p, int64_t n, Vector<Real> sum) {
          if (past) {
            StorePast(to + p * tensor.strides[2] + n, sum);
          } else {
            Store(to + p * tensor.strides[2] + n, sum);
          }
        });
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_STATES_H
