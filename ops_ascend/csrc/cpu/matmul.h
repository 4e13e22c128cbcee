// matmul.h -- register-blocked products of small matrices that lie in cache, and transposes.
//
//   Product<Real, kRows or kColumns>(rows, columns, depth, a, lda, b, ldb, start, done)
//
//   c(i, j) = start(i, j) + sum_k a(i, k) b(k, j);  done(i, j, c)          i < rows, j in vectors of columns
//
// b is row-major, its rows padded to whole vectors; a is read one element at a time, from rows (a(i, k) at
// a[i * lda + k]) or from columns (a(i, k) at a[k * lda + i]): no operand is packed. start and done are called
// with a row and the first column of a vector, and are inlined: they load, scale, add and store as they like.
// What depends on the block of rows, for products of triangular matrices, is the range of k: `range(first, last)`
// of rows [first, last), kBlock at most, gives {begin, end}.
//
// A panel of kPanel vectors of b stays in L1 while the rows of a pass by. A block of kBlock rows, the most, and a
// panel fill the registers with sums: 6 x 4 of 32 registers with AVX-512 and NEON, 6 x 2 of 16 with AVX2 and SSE.
#ifndef VMAMBA2_CPU_MATMUL_H
#define VMAMBA2_CPU_MATMUL_H

#include <type_traits>

#include "vector.h"

namespace vmamba2 {

enum class Walk { kRows, kColumns };

#if VM_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int kPanel = 4;
#else
constexpr int kPanel = 2;
#endif
constexpr int kBlock = 6;

struct Range {
  int64_t begin, end;
};

// Calls body with `height`, 1 to kBlock, as a constant.
template <class Body>
inline __attribute__((always_inline)) void WithHeight(int64_t height, Body& body) {
  static_assert(kBlock == 6, "a case for each height");
  switch (height) {
    case 1:
      return body(std::integral_constant<int, 1>{});
    case 2:
      return body(std::integral_constant<int, 2>{});
    case 3:
      return body(std::integral_constant<int, 3>{});
    case 4:
      return body(std::integral_constant<int, 4>{});
    case 5:
      return body(std::integral_constant<int, 5>{});
    default:
      return body(std::integral_constant<int, 6>{});
  }
}

template <class Real, Walk kWalk, int kHeight, int kWidth, class Start, class Done>
inline __attribute__((always_inline)) void ProductBlock(int64_t row, int64_t column, Range depth,
                                                        const Real* a, int64_t lda, const Real* b,
                                                        int64_t ldb, Start& start, Done& done) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> sums[kHeight][kWidth];
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) sums[i][v] = start(row + i, column + v * kStep);
  }
  const Real* left = kWalk == Walk::kRows ? a + row * lda : a + row;
  const Real* right = b + column;
  for (int64_t k = depth.begin; k < depth.end; ++k) {
    Vector<Real> factors[kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) factors[v] = Load(right + k * ldb + v * kStep);
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
      const Vector<Real> factor = Splat(kWalk == Walk::kRows ? left[i * lda + k] : left[k * lda + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) sums[i][v] += factor * factors[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) done(row + i, column + v * kStep, sums[i][v]);
  }
}

// Blocks of nearly equal height: one of one or two rows has too few sums in flight to hide their latency.
template <class Real, Walk kWalk, int kWidth, class RangeOf, class Start, class Done>
inline void ProductPanel(int64_t rows, int64_t column, RangeOf& range, const Real* a, int64_t lda,
                         const Real* b, int64_t ldb, Start& start, Done& done) {
  if (rows == 0) return;
  const int64_t blocks = (rows + kBlock - 1) / kBlock, least = rows / blocks;
  int64_t row = 0, higher = rows % blocks;
  const auto block = [&](auto height) {
    ProductBlock<Real, kWalk, height, kWidth>(row, column, range(row, row + height), a, lda, b, ldb, start,
                                              done);
  };
  while (row < rows) {
    const int64_t height = least + (higher-- > 0);
    WithHeight(height, block);
    row += height;
  }
}

template <class Real, Walk kWalk, class RangeOf, class Start, class Done>
inline void ProductOf(int64_t rows, int64_t columns, RangeOf range, const Real* a, int64_t lda, const Real* b,
                      int64_t ldb, Start start, Done done) {
  constexpr int64_t kStep = kLanes<Real>;
  const int64_t end = Padded<Real>(columns);
  int64_t column = 0;
  for (; column + kPanel * kStep <= end; column += kPanel * kStep) {
    ProductPanel<Real, kWalk, kPanel>(rows, column, range, a, lda, b, ldb, start, done);
  }
  const int64_t left = (end - column) / kStep;
  if constexpr (kPanel > 2) {
    if (left == 3) ProductPanel<Real, kWalk, 3>(rows, column, range, a, lda, b, ldb, start, done);
    if (left == 2) ProductPanel<Real, kWalk, 2>(rows, column, range, a, lda, b, ldb, start, done);
  }
  if (left == 1) ProductPanel<Real, kWalk, 1>(rows, column, range, a, lda, b, ldb, start, done);
}

template <class Real, Walk kWalk, class Start, class Done>
inline void Product(int64_t rows, int64_t columns, int64_t depth, const Real* a, int64_t lda, const Real* b,
                    int64_t ldb, Start start, Done done) {
  const auto whole = [depth](int64_t, int64_t) { return Range{0, depth}; };
  ProductOf<Real, kWalk>(rows, columns, whole, a, lda, b, ldb, start, done);
}

// ---- Transposes.

template <class Real, int... kIndex>
inline Vector<Real> Interleave(Vector<Real> low, Vector<Real> high, std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(low, high, kIndex...);
}

template <class Real, int kStride, bool kHigh, int... kLane>
constexpr auto InterleaveIndex(std::integer_sequence<int, kLane...>) {
  // Blocks of kStride lanes: the even ones of both (or the odd ones), alternating.
  return std::integer_sequence<int, ((kLane / kStride) % 2 == 0 ? kLane + (kHigh ? kStride : 0)
                                                                : static_cast<int>(kLanes<Real>) + kLane -
                                                                      (kHigh ? 0 : kStride))...>{};
}

template <class Real, int kStride>
inline void TransposeStage(Vector<Real> (&rows)[kLanes<Real>]) {
  constexpr int kCount = static_cast<int>(kLanes<Real>);
  using Lanes = std::make_integer_sequence<int, kCount>;
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) {
    if (i & kStride) continue;
    const Vector<Real> low = rows[i], high = rows[i + kStride];
    rows[i] = Interleave<Real>(low, high, InterleaveIndex<Real, kStride, false>(Lanes{}));
    rows[i + kStride] = Interleave<Real>(low, high, InterleaveIndex<Real, kStride, true>(Lanes{}));
  }
  if constexpr (kStride * 2 < kCount) TransposeStage<Real, kStride * 2>(rows);
}

// Transposes a square block of vectors in registers.
template <class Real>
inline void TransposeBlock(Vector<Real> (&rows)[kLanes<Real>]) {
  if constexpr (kLanes<Real> > 1) TransposeStage<Real, 1>(rows);
}

// to(j, i) = from(i, j). Rows of both are padded to whole vectors; the padding of `to` holds what lies beyond the
// last row of `from`, which has room for whole blocks of rows too.
template <class Real>
inline void Transpose(const Real* from, int64_t ld_from, int64_t rows, int64_t columns, Real* to,
                      int64_t ld_to) {
  constexpr int64_t kStep = kLanes<Real>;
  for (int64_t i = 0; i < rows; i += kStep) {
    for (int64_t j = 0; j < columns; j += kStep) {
      Vector<Real> block[kStep];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kStep; ++r) block[r] = Load(from + (i + r) * ld_from + j);
      TransposeBlock<Real>(block);
      const int64_t count = columns - j < kStep ? columns - j : kStep;
      if (count == kStep) {
#pragma GCC unroll 16
        for (int64_t r = 0; r < kStep; ++r) Store(to + (j + r) * ld_to + i, block[r]);
      } else {
        for (int64_t r = 0; r < count; ++r) Store(to + (j + r) * ld_to + i, block[r]);
      }
    }
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_MATMUL_H
