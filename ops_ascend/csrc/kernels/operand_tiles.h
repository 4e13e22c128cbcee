// operand_tiles.h -- tiles of 32 rows that a vector core makes for the cube: rounding, fractal order, and
// where they go.
//
// In the Unified Buffer such a tile is [columns / C0][32][C0]. In the operand that it is half of, 64 rows, it
// lies in panels or in fractals (arch.h); the operand is in global memory or, on 950PR, in L1.
#ifndef VMAMBA2_OPERAND_TILES_H
#define VMAMBA2_OPERAND_TILES_H

#include "vector_tiles.h"

namespace vmamba2 {

// Rows of an outgoing tile that lie together in the operand.
constexpr int32_t kOperandRows = kPanels ? kFractalRows : kVectorRows;

template <typename Op>
class OperandTiles {
 public:
  __aicore__ inline void Init(int32_t sub, TilePool* out) {
    sub_ = sub;
    out_ = out;
  }

  // Outgoing tile <- rows of 64 float32, rounded and in fractal order.
  __aicore__ inline void RoundToFractals(int32_t out, const AscendC::LocalTensor<float>& rows,
                                         int32_t width) {
    AscendC::Cast(out_->template Tile<Op>(out), rows, AscendC::RoundMode::CAST_RINT,
                  static_cast<uint64_t>(width), kVectorRows,
                  AscendC::UnaryRepeatParams(kVectorRows, 1, 1, 8));
  }

  // The same in operand order: groups of kOperandRows rows, each in fractal order, as they lie in the operand.
  __aicore__ inline void RoundToOperand(int32_t out, const AscendC::LocalTensor<float>& rows, int32_t width) {
    const AscendC::LocalTensor<Op> tile = out_->template Tile<Op>(out);
    for (int32_t row = 0; row < kVectorRows; row += kOperandRows) {
      AscendC::Cast(tile[row * width], rows[row * kSlice], AscendC::RoundMode::CAST_RINT,
                    static_cast<uint64_t>(width), kOperandRows,
                    AscendC::UnaryRepeatParams(kOperandRows, 1, 1, 8));
    }
  }

  // Writes an outgoing tile in operand order into columns [first, first + width) of an operand of 64 rows and
  // `columns` columns.
  template <typename Tensor>
  __aicore__ inline void StoreOperand(const Tensor& dst, int32_t out, int32_t width, int32_t columns,
                                      int32_t first) {
    const AscendC::LocalTensor<Op> tile = out_->template Tile<Op>(out);
    if constexpr (kPanels) {
      const int32_t rows = width == columns ? kVectorRows : kOperandRows;
      for (int32_t row = 0; row < kVectorRows; row += rows) {
        AscendC::DataCopy(dst[(sub_ * kVectorRows + row) * columns + first * kOperandRows], tile[row * width],
                          AscendC::DataCopyParams(1, rows * width / kC0<Op>, 0, 0));
      }
    } else {
      AscendC::DataCopy(dst[first * kChunk + sub_ * kVectorRows * kC0<Op>], tile,
                        AscendC::DataCopyParams(width / kC0<Op>, kVectorRows, 0, kChunk - kVectorRows));
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  // Outgoing tile <- `rows` (at most kVectorRows) rows of 64 float32.
  __aicore__ inline void RowsToFractals(int32_t out, const AscendC::LocalTensor<float>& src, int32_t rows,
                                        int32_t width) {
    const AscendC::UnaryRepeatParams strides(kVectorRows, 1, 1, 8);
    if constexpr (sizeof(Op) == 4) {
      AscendC::Adds(out_->template Tile<float>(out), src, 0.0f, static_cast<uint64_t>(width), rows, strides);
    } else {
      AscendC::Cast(out_->template Tile<Op>(out), src, AscendC::RoundMode::CAST_RINT,
                    static_cast<uint64_t>(width), rows, strides);
    }
  }

  // Outgoing tile <- 64 columns of kVectorRows rows of float32 that lie in fractals of 8 columns already.
  __aicore__ inline void FractalsToOperand(int32_t out, const AscendC::LocalTensor<float>& src) {
    if constexpr (sizeof(Op) == 4) {
      AscendC::Adds(out_->template Tile<float>(out), src, 0.0f, kTileElements);
    } else {
      AscendC::Cast(out_->template Tile<Op>(out), src, AscendC::RoundMode::CAST_RINT,
                    static_cast<uint64_t>(kSlice), kVectorRows,
                    AscendC::UnaryRepeatParams(kVectorRows, kVectorRows, 1, 1));
    }
  }

  // The way back, of `width` columns.
  __aicore__ inline void OperandToFractals(const AscendC::LocalTensor<float>& dst,
                                           const AscendC::LocalTensor<Op>& src, int32_t width) {
    if constexpr (sizeof(Op) == 4) {
      AscendC::Adds(dst, src, 0.0f, width * kVectorRows);
    } else {
      AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, static_cast<uint64_t>(width), kVectorRows,
                    AscendC::UnaryRepeatParams(kVectorRows, kVectorRows, 1, 1));
    }
  }

  // Writes `rows` rows of an outgoing tile into rows [first, first + rows) of an operand of `height` rows and
  // `width` columns.
  __aicore__ inline void StoreRowsOf(const AscendC::GlobalTensor<Op>& dst, int32_t out, int32_t width,
                                     int32_t height, int32_t first, int32_t rows) {
    AscendC::LocalTensor<Op> tile = out_->template Tile<Op>(out);
    const int32_t blocks = width / kC0<Op>;
    const int32_t panel = kPanels ? kFractalRows : height;
    for (int32_t row = 0; row < rows;) {
      const int32_t inside = (first + row) % panel;
      const int32_t count = panel - inside < rows - row ? panel - inside : rows - row;
      const int32_t at = (first + row - inside) * width + inside * kC0<Op>;
      AscendC::DataCopy(dst[at], tile[row * kC0<Op>],
                        AscendC::DataCopyParams(blocks, count, kVectorRows - count, panel - count));
      row += count;
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  // Writes an outgoing tile into columns [first, first + width) of an operand of 64 rows and `columns`
  // columns.
  template <typename Tensor>
  __aicore__ inline void Store(const Tensor& dst, int32_t out, int32_t width, int32_t columns, int32_t first,
                               bool panels) {
    AscendC::LocalTensor<Op> tile = out_->template Tile<Op>(out);
    const int32_t blocks = width / kC0<Op>;
    if (panels) {
      constexpr int32_t kPanelsHere = kVectorRows / kFractalRows;
      for (int32_t panel = 0; panel < kPanelsHere; ++panel) {
        const int32_t at = (sub_ * kPanelsHere + panel) * kFractalRows * columns + first * kFractalRows;
        AscendC::DataCopy(dst[at], tile[panel * kFractal<Op>],
                          AscendC::DataCopyParams(blocks, kFractalRows, kVectorRows - kFractalRows, 0));
      }
    } else {
      AscendC::DataCopy(dst[first * kChunk + sub_ * kVectorRows * kC0<Op>], tile,
                        AscendC::DataCopyParams(blocks, kVectorRows, 0, kChunk - kVectorRows));
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

 private:
  int32_t sub_;
  TilePool* out_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_OPERAND_TILES_H
