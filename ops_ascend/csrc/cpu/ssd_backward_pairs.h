// ssd_backward_pairs.h -- the Mamba-2 backward among tokens of a chunk: pairs of a token s and one l >= s.
//
//   W_sl = decay_ls C_l . B_s      du_s += sum_l W_sl dy_l                          dC_l += sum_s dCB_sl B_s
//   dW_sl = dt_s x_s . dy_l        dCB_sl = sum of decay_ls dW_sl over heads        dB_s += sum_l dCB_sl C_l
//
// The log decay of token t lies between all pairs s < t <= l; its gradient is the sum of W_sl dW_sl there.
// It is summed as that, row by row: row sums less column sums, of which it is the suffix sum, would cancel.
//
// Sums start from zero and meet what the states gave at the end: one rounding of the total, not one for each
// term.
//
// Rows are s and columns l, so that products with a transposed operand skip what lies left of the diagonal.
#ifndef VMAMBA2_CPU_SSD_BACKWARD_PAIRS_H
#define VMAMBA2_CPU_SSD_BACKWARD_PAIRS_H

#include "ssd_backward_walk.h"

namespace vmamba2 {
namespace ssd_backward {

// out(s, l) = sum_k a(s, k) b(k, l), or `add`ed to, where the vector of l reaches s or beyond.
template <class Real>
inline void UpperProduct(int64_t size, int64_t depth, const Real* a, int64_t lda, const Real* b, int64_t ldb,
                         bool add, Real* out, int64_t ld) {
  constexpr int64_t kStep = kLanes<Real>;
  const auto start = [](int64_t, int64_t) { return Vector<Real>{}; };
  const auto done = [&](int64_t s, int64_t l, Vector<Real> sum) {
    Real* to = out + s * ld + l;
    Store(to, add ? Load(to) + sum : sum);
  };
  const int64_t end = Padded<Real>(size), blocks = (size + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t row = size * block / blocks, height = size * (block + 1) / blocks - row;
    const auto row_block = [&](auto rows) {
      int64_t column = row / kStep * kStep;
      const auto product = [&](auto width) {
        ProductBlock<Real, Walk::kRows, rows, width>(row, column, Range{0, depth}, a, lda, b, ldb, start,
                                                     done);
      };
      for (; column + kPanel * kStep <= end; column += kPanel * kStep)
        product(std::integral_constant<int, kPanel>{});
      const int64_t left = (end - column) / kStep;
      if constexpr (kPanel > 2) {
        if (left == 3) product(std::integral_constant<int, 3>{});
        if (left == 2) product(std::integral_constant<int, 2>{});
      }
      if (left == 1) product(std::integral_constant<int, 1>{});
    };
    WithHeight(height, row_block);
  }
}

// The pairs of a head, a vector of columns l of a row s at a time.
template <class Real, bool kFirstHead>
struct PairTiles {
  const Real* cb;
  Real *weights, *dcb;  // weights come in as x_s . dy_l
  int64_t ld;
  LaneSums<Real> across_token;

  void AddToDcb(int64_t at, Vector<Real> part) { Store(dcb + at, kFirstHead ? part : Load(dcb + at) + part); }

  // `across` is the sum of W dW over the rows above, in these columns. Returns that with this row.
  Vector<Real> Weigh(int64_t s, int64_t l, Vector<Real> decay, Real step, Vector<Real> across) {
    const int64_t at = s * ld + l;
    across_token.Add(s, across);
    const Vector<Real> cb_here = Load(cb + at), part = Load(weights + at) * (decay * step);
    Store(weights + at, cb_here * decay);
    AddToDcb(at, part);
    return across + part * cb_here;
  }

  // The same of columns that may lie left of s, or in another sequence: only those in [s, end) are seen.
  Vector<Real> WeighMasked(int64_t s, int64_t l, int64_t end, Vector<Real> exponent, Real step,
                           Vector<Real> across, Vector<Real> lane) {
    const Vector<Real> zero = {};
    const Real from = static_cast<Real>(s - l), to = static_cast<Real>(end - l);
    const auto seen = (lane >= from) & (lane < to);
    const auto later = lane > from;
    const int64_t at = s * ld + l;
    // A column before s does not lie across it.
    across_token.Add(s, lane >= from ? across : zero);
    // Masked before exp, which overflows beyond the diagonal.
    const Vector<Real> decay = Exp<Real>(seen ? exponent : zero);
    const Vector<Real> cb_here = Load(cb + at), part = seen ? Load(weights + at) * (decay * step) : zero;
    Store(weights + at, seen ? cb_here * decay : zero);
    AddToDcb(at, part);
    // A token's decay to itself is exp(0) whatever the steps are.
    return across + (later ? part * cb_here : zero);
  }

  // A block of rows of a product begins at its first row's diagonal, left of that of the others.
  void Clear(int64_t s, int64_t l) {
    Store(weights + s * ld + l, Vector<Real>{});
    if (kFirstHead) Store(dcb + s * ld + l, Vector<Real>{});
  }
};

// Turns x_s . dy_l of a head into W, adds to dCB, and leaves in across_token the gradient of the log decays.
template <class Real, bool kFirstHead>
inline void WeighPairs(const TokenWalk<Real>& walk, int64_t head, int64_t length) {
  constexpr int64_t kStep = kLanes<Real>;
  Tiles<Real>& tiles = walk.tiles;
  PairTiles<Real, kFirstHead> pairs{tiles.cb, tiles.weights, tiles.dcb, walk.sizes.across,
                                    tiles.across_token};
  const Real* high = tiles.decays.high + head * tiles.decays.row;
  const Real* low = tiles.decays.low + head * tiles.decays.row;
  const Real* step = tiles.decays.step + head * tiles.decays.row;
  Real lanes[kStep];
  for (int64_t i = 0; i < kStep; ++i) lanes[i] = static_cast<Real>(i);
  const Vector<Real> lane = Load(lanes);
  pairs.across_token.Clear(length);
  const bool splits = tiles.decays.falls[head] && !walk.call.seq_idx.data;
  for (int64_t l = 0; l < length; l += kStep) {
    const Vector<Real> high_here = Load(high + l), low_here = Load(low + l);
    Vector<Real> across = {};
    int64_t s = 0;
    if (splits) {
      // All of these columns see all rows above: exp(cs_l - cs_s) in two factors, both at most 1.
      const Real high_first = high[l], low_first = low[l];
      for (int64_t above = 0; above < l; above += kStep) {
        Store(tiles.decay_from + above,
              Exp<Real>((high_first - Load(high + above)) + (low_first - Load(low + above))));
      }
      const Vector<Real> decay_to = Exp<Real>((high_here - high_first) + (low_here - low_first));
      for (; s < l; ++s) across = pairs.Weigh(s, l, decay_to * tiles.decay_from[s], step[s], across);
    }
    for (const int64_t last = std::min(l + kStep, length); s < last; ++s) {
      const Vector<Real> exponent = (high_here - high[s]) + (low_here - low[s]);
      across = pairs.WeighMasked(s, l, tiles.end[s], exponent, step[s], across, lane);
    }
    for (const int64_t last = std::min(s + kBlock, length); s < last; ++s) pairs.Clear(s, l);
  }
}

// du of a head with what came from the chunk's end, then dx and the dot products of du and x.
template <class Real>
inline void TokenGradients(const TokenWalk<Real>& walk, const Chunk& chunk, int64_t head,
                           const ResultRows<Real>& dx, Prefetch& ahead) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  const int64_t wide = sizes.wide, first = head * sizes.padded, length = chunk.length;
  const Real* leave = tiles.decays.leave + head * tiles.decays.row;
  const Real* step = tiles.decays.step + head * tiles.decays.row;
  const Real *x = tiles.x + first, *dy = tiles.dy + first, *D = tiles.D + first;
  const Real* du = tiles.du + first;
  const bool skips = walk.call.d.data && walk.HasDy(), has_dy = walk.HasDy(), has_end = chunk.has_end;
  const auto later = [=, &ahead](int64_t row, int64_t) {
    ahead.Ask();
    return has_dy ? Range{row, length} : Range{0, 0};
  };
  LaneSums<Real> dstep = tiles.dstep;
  dstep.Clear(length);
  ProductOf<Real, Walk::kRows>(
      length, sizes.headdim, later, tiles.weights, sizes.across, dy, wide,
      [](int64_t, int64_t) { return Vector<Real>{}; },
      [&](int64_t s, int64_t p, Vector<Real> sum) {
        const int64_t at = s * wide + p;
        if (has_end) sum += leave[s] * Load(du + at);
        dstep.Add(s, sum * Load(x + at));
        const Vector<Real> scaled = sum * step[s];
        dx.Put(s, first + p, skips ? scaled + Load(dy + at) * Load(D + p) : scaled);
      });
}

// y(l, p) = enter_l y(l, p) + sum_s W_sl dt_s x(s, p) of a head, whose u = dt x goes to `u`.
template <class Real>
inline void TokenOutputs(const TokenWalk<Real>& walk, const Chunk& chunk, int64_t head, Real* u) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  const int64_t wide = sizes.wide, padded = sizes.padded, first = head * padded;
  const Real* enter = tiles.decays.enter + head * tiles.decays.row;
  const Real* step = tiles.decays.step + head * tiles.decays.row;
  for (int64_t s = 0; s < chunk.length; ++s) {
    for (int64_t p = 0; p < padded; p += kLanes<Real>)
      Store(u + s * padded + p, Load(tiles.x + s * wide + first + p) * step[s]);
  }
  Real* y = tiles.y + first;
  const bool has_start = chunk.has_start;
  ProductOf<Real, Walk::kColumns>(
      chunk.length, sizes.headdim, [](int64_t, int64_t end) { return Range{0, end}; }, tiles.weights,
      sizes.across, u, padded, [](int64_t, int64_t) { return Vector<Real>{}; },
      [=](int64_t l, int64_t p, Vector<Real> sum) {
        Real* to = y + l * wide + p;
        Store(to, has_start ? enter[l] * Load(to) + sum : sum);
      });
}

// dC and dB of the group from the gradient of C B^T, summed over heads, and what the states gave.
template <class Real>
inline void GroupGradients(const TokenWalk<Real>& walk, const Chunk& chunk, const ResultRows<Real>& db,
                           const ResultRows<Real>& dc, Prefetch& ahead) {
  const Tiles<Real>& tiles = walk.tiles;
  const int64_t deep = walk.sizes.deep, across = walk.sizes.across, dstate = walk.sizes.dstate;
  const int64_t length = chunk.length;
  const bool has_start = chunk.has_start, has_end = chunk.has_end;
  const auto earlier = [&ahead](int64_t, int64_t end) {
    ahead.Ask();
    return Range{0, end};
  };
  const auto later = [&ahead, length](int64_t row, int64_t) {
    ahead.Ask();
    return Range{row, length};
  };
  ProductOf<Real, Walk::kColumns>(
      length, dstate, earlier, tiles.dcb, across, tiles.b, deep,
      [](int64_t, int64_t) { return Vector<Real>{}; },
      [&](int64_t l, int64_t n, Vector<Real> sum) {
        dc.Put(l, n, has_start ? Load(tiles.dc + l * deep + n) + sum : sum);
      });
  ProductOf<Real, Walk::kRows>(
      length, dstate, later, tiles.dcb, across, tiles.c, deep,
      [](int64_t, int64_t) { return Vector<Real>{}; },
      [&](int64_t s, int64_t n, Vector<Real> sum) {
        db.Put(s, n, has_end ? Load(tiles.db + s * deep + n) + sum : sum);
      });
}

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_PAIRS_H
