// arch.h -- what the two chips do differently, seen from the kernels: operand layouts in L1 and stores from
// L0C; the loads into L0 are in operand_loads.h.
//
// 910B3 (dav-2201) keeps L0A in Zz order and transposes float32 in pairs of neighbouring fractals, so left
// operands and transposed operands lie in L1 as 16-row panels (Zz): every plain load is then one contiguous
// burst. 950PR (dav-3510) keeps L0A in Nz order and one LoadData call transposes, so everything lies in Nz.
//
// A "panel" tile of r rows and w columns is [r / 16][w / C0][16][C0]; an "nz" tile is [w / C0][r][C0]; C0
// elements are 32 bytes. L0B is Zn on both chips: [k / C0][n / 16][16][C0].
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
