// arch.h -- what the two chips do differently, seen from the kernels: operand layouts in L1, loads into L0,
// stores from L0C.
//
// 910B3 (dav-2201) keeps L0A in Zz order and transposes float32 in pairs of neighbouring fractals, so left
// operands and transposed operands lie in L1 as 16-row panels (Zz): every plain load is then one contiguous
// burst. 950PR (dav-3510) keeps L0A in Nz order and one LoadData call transposes, so everything lies in Nz.
//
// A "panel" tile of 64 rows and w columns is [4][w / C0][16][C0]; an "nz" tile of r rows is [w / C0][r][C0];
// C0 elements are 32 bytes. L0B is Zn on both chips: [k / C0][n / 16][16][C0].
#ifndef VMAMBA2_ARCH_H
#define VMAMBA2_ARCH_H

#include "kernel_operator.h"
#include "ssd_forward_tiling.h"

namespace vmamba2 {

constexpr int32_t kFractalRows = 16;
constexpr int32_t kBlockBytes = 32;
constexpr int32_t kChunkFractals = kChunk / kFractalRows;

template <typename Op>
constexpr int32_t kC0 = kBlockBytes / static_cast<int32_t>(sizeof(Op));

#if __NPU_ARCH__ == 3510
constexpr bool kPanels = false;
constexpr bool kHasDirectPaths = true;  // UB -> L1 and L0C -> UB
constexpr AscendC::FixpipeConfig kRowsToUb = {AscendC::CO2Layout::ROW_MAJOR, true};
#else
constexpr bool kPanels = true;
constexpr bool kHasDirectPaths = false;
#endif

// Elements of one 512-byte fractal.
template <typename Op>
constexpr int32_t kFractal = kFractalRows * kC0<Op>;

// L0A <- a left operand of 64 rows and `columns` columns (panels on 2201, nz on 3510).
template <typename Op>
__aicore__ inline void LoadLeft(const AscendC::LocalTensor<Op>& dst, const AscendC::LocalTensor<Op>& src,
                                int32_t columns) {
#if __NPU_ARCH__ == 3510
  AscendC::LoadData2DParamsV2 load;
  load.mStep = kChunkFractals;
  load.kStep = columns / kC0<Op>;
  load.srcStride = kChunkFractals;
  load.dstStride = kChunkFractals;
  AscendC::LoadData(dst, src, load);
#else
  AscendC::LoadData2DParams load;
  load.repeatTimes = kChunkFractals * (columns / kC0<Op>);
  load.srcStride = 1;
  AscendC::LoadData(dst, src, load);
#endif
}

// L0A <- rows [first, first + rows) of the transpose of a tile of 64 rows (the products' inner axis) and
// `columns` columns.
template <typename Op>
__aicore__ inline void LoadLeftTransposed(const AscendC::LocalTensor<Op>& dst,
                                          const AscendC::LocalTensor<Op>& src, int32_t columns, int32_t first,
                                          int32_t rows) {
#if __NPU_ARCH__ == 3510
  (void)columns;
  AscendC::LoadData2DParamsV2 load;
  load.kStartPosition = static_cast<uint32_t>(first / kC0<Op>);
  load.mStep = kChunkFractals;
  load.kStep = rows / kC0<Op>;
  load.srcStride = kChunkFractals;
  load.dstStride = rows / kFractalRows;
  load.ifTranspose = true;
  AscendC::LoadData(dst, src, load);
#else
  for (int32_t panel = 0; panel < kChunkFractals; ++panel) {
    const int32_t start = (panel * columns + first) / kFractalRows;
    const int32_t repeats = rows / kFractalRows;
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

// L0B <- columns [first, first + count) of src^T, where src is an nz tile of `rows` rows (the product's
// columns) and `inner` columns.
template <typename Op>
__aicore__ inline void LoadRight(const AscendC::LocalTensor<Op>& dst, const AscendC::LocalTensor<Op>& src,
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

// L0B <- columns [first, first + count) of a tile of 64 rows (the product's inner axis) and `columns` columns
// (panels on 2201, nz on 3510).
template <typename Op>
__aicore__ inline void LoadRightTransposed(const AscendC::LocalTensor<Op>& dst,
                                           const AscendC::LocalTensor<Op>& src, int32_t columns,
                                           int32_t first, int32_t count) {
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
  const int32_t across = count / kFractalRows;
  for (int32_t panel = 0; panel < kChunkFractals; ++panel) {
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

template <typename A, typename B>
struct IsSame {
  static constexpr bool value = false;
};
template <typename A>
struct IsSame<A, A> {
  static constexpr bool value = true;
};

template <typename Out>
__aicore__ inline QuantMode_t StoreConversion() {
  if constexpr (sizeof(Out) == 4) {
    return QuantMode_t::NoQuant;
  } else if constexpr (IsSame<Out, half>::value) {
    return QuantMode_t::F322F16;
  } else {
    return QuantMode_t::F322BF16;
  }
}

// GM <- `rows` x `columns` of an L0C region of `height` rows, as rows of a matrix whose rows are `pitch`
// elements apart.
template <typename Out>
__aicore__ inline void StoreRows(const AscendC::GlobalTensor<Out>& dst,
                                 const AscendC::LocalTensor<float>& src, int32_t rows, int32_t columns,
                                 int32_t height, int64_t pitch) {
#if __NPU_ARCH__ == 3510
  AscendC::FixpipeParamsArch3510<AscendC::CO2Layout::ROW_MAJOR> store;
  store.params.ndNum = 1;
#else
  AscendC::FixpipeParamsV220 store;
#endif
  store.nSize = columns;
  store.mSize = rows;
  store.srcStride = height;
  store.dstStride = static_cast<uint32_t>(pitch);
  store.quantPre = StoreConversion<Out>();
  AscendC::Fixpipe<Out, float, AscendC::CFG_ROW_MAJOR>(dst, src, store);
}

#if __NPU_ARCH__ == 3510
// UB of both vector cores <- the upper and the lower half of an L0C region of kChunk rows, float32, row after
// row.
__aicore__ inline void StoreHalves(const AscendC::LocalTensor<float>& dst,
                                   const AscendC::LocalTensor<float>& src, int32_t columns) {
  constexpr uint8_t kSplitRows = 1;
  AscendC::FixpipeParamsArch3510<AscendC::CO2Layout::ROW_MAJOR> store;
  store.params.ndNum = 1;
  store.nSize = columns;
  store.mSize = kChunk;
  store.srcStride = kChunk;
  store.dstStride = static_cast<uint32_t>(columns);
  store.dualDstCtl = kSplitRows;
  AscendC::Fixpipe<float, float, kRowsToUb>(dst, src, store);
}
#endif

// GM <- an L0C region of `rows` x `columns`, float32, as part of an nz matrix of `height` rows with kC0<Op>
// columns per block.
template <typename Op>
__aicore__ inline void StoreFractal(const AscendC::GlobalTensor<float>& dst,
                                    const AscendC::LocalTensor<float>& src, int32_t rows, int32_t columns,
                                    int32_t height) {
#if __NPU_ARCH__ == 3510
  AscendC::FixpipeParamsArch3510<AscendC::CO2Layout::NZ> store;
  store.dstStride = static_cast<uint32_t>(height * kC0<Op>);  // elements here, 32-byte blocks on 2201
#else
  AscendC::FixpipeParamsV220 store;
  store.dstStride = static_cast<uint32_t>(height * kC0<Op> * 4 / kBlockBytes);
#endif
  store.nSize = columns;
  store.mSize = rows;
  store.srcStride = rows;
  store.isChannelSplit = kC0<Op> == 8;
  AscendC::Fixpipe<float, float, AscendC::CFG_NZ>(dst, src, store);
}

}  // namespace vmamba2

#endif  // VMAMBA2_ARCH_H
