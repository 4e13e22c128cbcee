// operand_loads.h -- from an operand tile in L1 into L0: as it is or transposed, whole or some of its columns.
//
// A tile lies in panels on 2201 and in nz on 3510 (arch.h); rows and columns are multiples of 16.
#ifndef VMAMBA2_OPERAND_LOADS_H
#define VMAMBA2_OPERAND_LOADS_H

#include "arch.h"

namespace vmamba2 {

// L0A <- columns [first, first + count) of a tile of 64 rows and `columns` columns.
template <typename Op>
__aicore__ inline void LoadLeft(const AscendC::LocalTensor<Op>& dst, const AscendC::LocalTensor<Op>& src,
                                int32_t columns, int32_t first, int32_t count) {
#if __NPU_ARCH__ == 3510
  (void)columns;
  AscendC::LoadData2DParamsV2 load;
  load.kStartPosition = static_cast<uint32_t>(first / kC0<Op>);
  load.mStep = kChunkFractals;
  load.kStep = count / kC0<Op>;
  load.srcStride = kChunkFractals;
  load.dstStride = kChunkFractals;
  AscendC::LoadData(dst, src, load);
#else
  AscendC::LoadData2DParams load;
  load.srcStride = 1;
  if (count == columns) {
    load.repeatTimes = kChunkFractals * (columns / kC0<Op>);
    AscendC::LoadData(dst, src, load);
    return;
  }
  load.repeatTimes = count / kC0<Op>;
  for (int32_t panel = 0; panel < kChunkFractals; ++panel) {
    load.startIndex = (panel * columns + first) / kC0<Op>;
    AscendC::LoadData(dst[panel * kFractalRows * count], src, load);
  }
#endif
}

// L0A <- columns [first, first + count) of a tile of 64 rows (the product's inner axis) and `columns` columns,
// transposed.
template <typename Op>
__aicore__ inline void LoadLeftTransposed(const AscendC::LocalTensor<Op>& dst,
                                          const AscendC::LocalTensor<Op>& src, int32_t columns, int32_t first,
                                          int32_t count) {
#if __NPU_ARCH__ == 3510
  (void)columns;
  AscendC::LoadData2DParamsV2 load;
  load.kStartPosition = static_cast<uint32_t>(first / kC0<Op>);
  load.mStep = kChunkFractals;
  load.kStep = count / kC0<Op>;
  load.srcStride = kChunkFractals;
  load.dstStride = count / kFractalRows;
  load.ifTranspose = true;
  AscendC::LoadData(dst, src, load);
#else
  for (int32_t panel = 0; panel < kChunkFractals; ++panel) {
    const int32_t start = (panel * columns + first) / kFractalRows;
    const int32_t repeats = count / kFractalRows;
    const int32_t gap = kChunk / kC0<Op> - 1;
    if constexpr (sizeof(Op) == 4) {
      AscendC::LoadData2dTransposeParams load(start, repeats, 1, gap, 0);
      AscendC::LoadDataWithTranspose(dst[2 * panel * kFractal<Op>], src, load);
    } else {
      AscendC::LoadData2DParams load(start, repeats, 1, 0, gap, true, 0);
      AscendC::LoadData(dst[panel * kFractal<Op>], src, load);
    }
  }
#endif
}

// L0B <- columns [first, first + count) (of the product's inner axis) of a tile of `rows` rows (the product's
// columns) and `columns` columns.
template <typename Op>
__aicore__ inline void LoadRight(const AscendC::LocalTensor<Op>& dst, const AscendC::LocalTensor<Op>& src,
                                 int32_t rows, int32_t columns, int32_t first, int32_t count) {
#if __NPU_ARCH__ == 3510
  (void)columns;
  AscendC::LoadData2DParamsV2 load;
  load.kStartPosition = static_cast<uint32_t>(first / kC0<Op>);
  load.mStep = rows / kFractalRows;
  load.kStep = count / kC0<Op>;
  load.srcStride = rows / kFractalRows;
  load.dstStride = rows / kFractalRows;
  AscendC::LoadData(dst, src, load);
#else
  const int32_t panels = rows / kFractalRows;
  for (int32_t panel = 0; panel < panels; ++panel) {
    const int32_t start = (panel * columns + first) / kC0<Op>;
    AscendC::LoadData2DParams load(start, count / kC0<Op>, 1, 0, panels - 1, false, 0);
    AscendC::LoadData(dst[panel * kFractal<Op>], src, load);
  }
#endif
}

// L0B <- rows [first, first + count) (the product's columns) of a tile of `rows` rows and `inner` columns that
// is nz on both chips.
template <typename Op>
__aicore__ inline void LoadRightNz(const AscendC::LocalTensor<Op>& dst, const AscendC::LocalTensor<Op>& src,
                                   int32_t rows, int32_t inner, int32_t first, int32_t count) {
#if __NPU_ARCH__ == 3510
  AscendC::LoadData2DParamsV2 load;
  load.mStartPosition = static_cast<uint32_t>(first / kFractalRows);
  load.mStep = count / kFractalRows;
  load.kStep = inner / kC0<Op>;
  load.srcStride = rows / kFractalRows;
  load.dstStride = count / kFractalRows;
  AscendC::LoadData(dst, src, load);
#else
  AscendC::LoadData2DParams load;
  load.srcStride = 1;
  if (count == rows) {
    load.repeatTimes = (inner / kC0<Op>)*(rows / kFractalRows);
    AscendC::LoadData(dst, src, load);
    return;
  }
  load.repeatTimes = count / kFractalRows;
  for (int32_t block = 0; block < inner / kC0<Op>; ++block) {
    load.startIndex = (block * rows + first) / kFractalRows;
    AscendC::LoadData(dst[block * (count / kFractalRows) * kFractal<Op>], src, load);
  }
#endif
}

// L0B <- columns [first, first + count) (the product's columns) of a tile of `rows` rows (the product's inner
// axis) and `columns` columns.
template <typename Op>
__aicore__ inline void LoadRightTransposed(const AscendC::LocalTensor<Op>& dst,
                                           const AscendC::LocalTensor<Op>& src, int32_t rows, int32_t columns,
                                           int32_t first, int32_t count) {
#if __NPU_ARCH__ == 3510
  (void)columns;
  AscendC::LoadData2DParamsV2 load;
  load.kStartPosition = static_cast<uint32_t>(first / kC0<Op>);
  load.mStep = rows / kFractalRows;
  load.kStep = count / kC0<Op>;
  load.srcStride = rows / kFractalRows;
  load.dstStride = count / kFractalRows;
  load.ifTranspose = true;
  AscendC::LoadData(dst, src, load);
#else
  const int32_t across = count / kFractalRows;
  for (int32_t panel = 0; panel < rows / kFractalRows; ++panel) {
    const int32_t start = (panel * columns + first) / kFractalRows;
    const int32_t repeats = across;
    if constexpr (sizeof(Op) == 4) {
      AscendC::LoadData2dTransposeParams load(start, repeats, 1, 0, across - 1);
      AscendC::LoadDataWithTranspose(dst[2 * panel * across * kFractal<Op>], src, load);
    } else {
      AscendC::LoadData2DParams load(start, repeats, 1, 0, 0, true, 0);
      AscendC::LoadData(dst[panel * across * kFractal<Op>], src, load);
    }
  }
#endif
}

}  // namespace vmamba2

#endif  // VMAMBA2_OPERAND_LOADS_H
