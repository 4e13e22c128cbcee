// ssd_forward_block.h -- the products that make y of a chunk, one register block at a time.
//
//   y(l, p) = enter_l sum_n C(l, n) states(n, p)  +  sum_{s <= l} weights(l, s) x(s, p)
//
// Both sums of a block of rows and a panel of columns are taken in the same registers, so that y meets memory
// once. A panel holds several narrow heads, each with its own weights, or a part of one wide head.
#ifndef VMAMBA2_CPU_SSD_FORWARD_BLOCK_H
#define VMAMBA2_CPU_SSD_FORWARD_BLOCK_H

#include "matmul.h"

namespace vmamba2 {

// The operands of a chunk and a tile of heads; `columns` is the width of states and x.
template <class Real>
struct TokenProducts {
  const Real* c;  // (length, ldc)
  int64_t ldc;
  const Real* states;   // (dstate, columns), or null: zero
  const Real* enter;    // (heads, enter_row)
  const Real* weights;  // (heads, weights_head), each (length, ldw): zero from column l + 1 to l + kBlock
  const Real* x;        // (length, columns)
  int64_t length, dstate, columns, enter_row, weights_head, ldw;
};

// kWidth vectors from `column` on; each kOfHead of them belong to one head.
template <class Real, int kHeight, int kWidth, int kOfHead, class Done>
inline __attribute__((always_inline)) void TokenBlock(const TokenProducts<Real>& p, int64_t row,
                                                      int64_t column, Done& done) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> sums[kHeight][kWidth] = {};
  if (p.states) {
    const Real* left = p.c + row * p.ldc;
    const Real* right = p.states + column;
    for (int64_t n = 0; n < p.dstate; ++n) {
      Vector<Real> factors[kWidth];
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) factors[v] = Load(right + n * p.columns + v * kStep);
#pragma GCC unroll 8
      for (int i = 0; i < kHeight; ++i) {
        const Vector<Real> factor = Splat(left[i * p.ldc + n]);
#pragma GCC unroll 4
        for (int v = 0; v < kWidth; ++v) sums[i][v] += factor * factors[v];
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) sums[i][v] *= p.enter[v / kOfHead * p.enter_row + row + i];
    }
  }
  const Real* left = p.weights + row * p.ldw;
  const Real* right = p.x + column;
  for (int64_t s = 0; s < row + kHeight; ++s) {
    Vector<Real> factors[kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) factors[v] = Load(right + s * p.columns + v * kStep);
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        sums[i][v] += Splat(left[v / kOfHead * p.weights_head + i * p.ldw + s]) * factors[v];
      }
    }
  }
  done(row, column, sums);
}

// All rows of a panel, in blocks as ProductPanel has them.
template <class Real, int kWidth, int kOfHead, class Done>
inline void TokenPanel(const TokenProducts<Real>& p, int64_t column, Done& done) {
  const int64_t blocks = (p.length + kBlock - 1) / kBlock, least = p.length / blocks;
  int64_t row = 0, higher = p.length % blocks;
  const auto block = [&](auto height) { TokenBlock<Real, height, kWidth, kOfHead>(p, row, column, done); };
  while (row < p.length) {
    const int64_t height = least + (higher-- > 0);
    WithHeight(height, block);
    row += height;
  }
}

// done(row, column, y) for every block, an array of vectors, of a tile of `heads` heads, each `columns / heads` wide.
template <class Real, class Done>
inline void MultiplyTokens(const TokenProducts<Real>& p, int64_t heads, Done done) {
  constexpr int64_t kStep = kLanes<Real>;
  const int64_t vectors = p.columns / kStep, of_head = vectors / heads;
  if (heads > 1) {  // fits a panel
    if constexpr (kPanel == 4) {
      if (of_head == 2) return TokenPanel<Real, 4, 2>(p, 0, done);
      if (heads == 4) return TokenPanel<Real, 4, 1>(p, 0, done);
      if (heads == 3) return TokenPanel<Real, 3, 1>(p, 0, done);
    }
    return TokenPanel<Real, 2, 1>(p, 0, done);
  }
  int64_t v = 0;
  for (; v + kPanel <= vectors; v += kPanel) TokenPanel<Real, kPanel, kPanel>(p, v * kStep, done);
  if constexpr (kPanel == 4) {
    if (vectors - v == 3) TokenPanel<Real, 3, 3>(p, v * kStep, done);
    if (vectors - v == 2) TokenPanel<Real, 2, 2>(p, v * kStep, done);
  }
  if (vectors - v == 1) TokenPanel<Real, 1, 1>(p, v * kStep, done);
}

// cb(l, s) = sum_n C(l, n) B(s, n) for s <= l and a few columns beyond; bt is (dstate, ldb), cb (length, ldb).
template <class Real>
inline void MultiplyLower(int64_t length, int64_t dstate, const Real* c, int64_t ldc, const Real* bt,
                          int64_t ldb, Real* cb) {
  constexpr int64_t kStep = kLanes<Real>;
  const auto start = [](int64_t, int64_t) { return Vector<Real>{}; };
  for (int64_t column = 0; column < length; column += kPanel * kStep) {
    // Rows whose last column seen lies in the panel need the vectors up to it, later rows all of them.
    const int64_t end = length - column < kPanel * kStep ? length : column + kPanel * kStep;
    int64_t row = column;
    for (int64_t width = 1; row < length; ++width) {
      const int64_t seen = column + width * kStep < end ? column + width * kStep : length;
      Product<Real, Walk::kRows>(
          seen - row, width * kStep, dstate, c + row * ldc, ldc, bt + column, ldb, start,
          [&](int64_t l, int64_t s, Vector<Real> sum) { Store(cb + (row + l) * ldb + column + s, sum); });
      row = seen;
    }
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_FORWARD_BLOCK_H
