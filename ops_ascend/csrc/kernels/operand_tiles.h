// operand_tiles.h -- tiles of 32 rows that a vector core makes for the cube: rounding, fractal order, and
// where they go.
//
// In the Unified Buffer such a tile is [columns / C0][32][C0]. In the operand that it is half of, 64 rows, it
// lies in panels or in fractals (arch.h); the operand is in global memory or, on 950PR, in L1.
#ifndef VMAMBA2_OPERAND_TILES_H
#define VMAMBA2_OPERAND_TILES_H

#include "vector_tiles.h"

namespace vmamba2 {

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
