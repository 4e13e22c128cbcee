// nd2nz.h -- DataCopy with Nd2NzParams: rows of a matrix in GM become fractal columns in L1.
//
// Element (r, d) of matrix i goes to i * dstNzMatrixStride elements, plus (d / C0) * dstNzC0Stride + r *
// dstNzNStride blocks of 32 bytes = C0 elements, plus d % C0. Columns past dValue in the last block are
// written as zeros; rows past nValue are not written at all.
#pragma once

#include <vector>

#include "twin/ascendc/burst.h"
#include "twin/ascendc/params.h"

namespace twin::api {

struct NzMove {
  Operand dst, src;
  uint64_t matrices, rows, row_bytes;                 // of a source matrix
  int64_t src_matrix, src_row;                        // bytes from start to start
  uint64_t dst_matrix, dst_column, dst_row, columns;  // bytes; columns = blocks per row
};

// No two blocks of the move may land on the same place: the hardware promises no order.
inline void blocks_distinct(const char* name, const NzMove& move) {
  const uint64_t row = move.dst_row / kBlockBytes, column = move.dst_column / kBlockBytes;
  const bool nested = column >= (move.rows - 1) * row + 1 || row >= (move.columns - 1) * column + 1;
  if (move.matrices == 1 && (nested || move.rows == 1 || move.columns == 1)) return;
  std::vector<bool> taken(capacity_bytes(Memory::kL1) / kBlockBytes);
  for (uint64_t i = 0; i < move.matrices; ++i) {
    for (uint64_t c = 0; c < move.columns; ++c) {
      for (uint64_t r = 0; r < move.rows; ++r) {
        const uint64_t block = i * (move.dst_matrix / kBlockBytes) + c * column + r * row;
        if (block >= taken.size()) continue;  // the access itself reports it
        if (taken[block])
          refuse(name, "dst block", static_cast<int64_t>(block), "must not be written twice by one move");
        taken[block] = true;
      }
    }
  }
}

inline void run_nz(Access& access, const NzMove& move) {
  for (uint64_t i = 0; i < move.matrices; ++i) {
    const uint8_t* from =
        access.read_rows(move.src.place, move.src.offset + static_cast<uint64_t>(i * move.src_matrix),
                         move.rows, move.row_bytes, move.src_row, move.src.name);
    for (uint64_t c = 0; c < move.columns; ++c) {
      const uint64_t offset = move.dst.offset + i * move.dst_matrix + c * move.dst_column;
      uint8_t* to = move.dst_row == kBlockBytes
                        ? access.write(move.dst.place, offset, move.rows * kBlockBytes, move.dst.name)
                        : access.write_rows(move.dst.place, offset, move.rows, kBlockBytes,
                                            static_cast<int64_t>(move.dst_row), move.dst.name);
      const uint64_t left = move.row_bytes - c * kBlockBytes;
      const uint64_t bytes = left < kBlockBytes ? left : kBlockBytes;
      for (uint64_t r = 0; r < move.rows; ++r) {
        uint8_t* block = to + r * move.dst_row;
        if (bytes < kBlockBytes) std::memset(block, 0, kBlockBytes);
        std::memcpy(block, from + static_cast<int64_t>(r) * move.src_row + c * kBlockBytes, bytes);
      }
    }
  }
  access.count_path(Memory::kGm, Memory::kL1, move.matrices * move.rows * move.row_bytes);
}

template <typename T>
void check_nz(const char* name, const AscendC::Nd2NzParams& params) {
  in_range(name, "ndNum", params.ndNum, 0, 4095);
  in_range(name, "nValue", params.nValue, 0, 16384);
  in_range(name, "dValue", params.dValue, 0, kIs3510 ? int64_t{UINT32_MAX} : 65535);
  in_range(name, "srcDValue", params.srcDValue, 1, kIs3510 ? (int64_t{1} << 40) - 1 : 65535);
  in_range(name, "dstNzC0Stride", params.dstNzC0Stride, 1, 16384);
  in_range(name, "dstNzNStride", params.dstNzNStride, 1, 16384);
  if (params.ndNum > 1) {
    in_range(name, "srcNdMatrixStride", params.srcNdMatrixStride, 0,
             kIs3510 ? (int64_t{1} << 40) - 1 : 65535);
    in_range(name, "dstNzMatrixStride", params.dstNzMatrixStride, 0, kIs3510 ? int64_t{UINT32_MAX} : 16384);
    require(params.dstNzMatrixStride.given() * sizeof(T) % kBlockBytes == 0, name, "dstNzMatrixStride",
            params.dstNzMatrixStride.given(), "must be a whole number of 32-byte blocks");
  }
}

template <typename T>
void issue_nz(const Operand& dst, const Operand& src, const AscendC::Nd2NzParams& params) {
  const char* const name = "DataCopy(Nd2Nz)";
  on_cube_core(name);
  lives_in(name, dst, Memory::kL1, kBlockBytes);
  bound(name, src);
  if (params.ndNum.given() == 0 || params.nValue.given() == 0 || params.dValue.given() == 0) return;
  check_nz<T>(name, params);
  NzMove move;
  move.dst = dst;
  move.src = src;
  move.matrices = params.ndNum;
  move.rows = params.nValue;
  move.row_bytes = uint64_t{params.dValue} * sizeof(T);
  move.src_matrix = params.ndNum > 1 ? params.srcNdMatrixStride.given() * static_cast<int64_t>(sizeof(T)) : 0;
  move.src_row = params.srcDValue.given() * static_cast<int64_t>(sizeof(T));
  move.dst_matrix = params.ndNum > 1 ? uint64_t{params.dstNzMatrixStride} * sizeof(T) : 0;
  move.dst_column = uint64_t{params.dstNzC0Stride} * kBlockBytes;
  move.dst_row = uint64_t{params.dstNzNStride} * kBlockBytes;
  move.columns = ceil_div(move.row_bytes, kBlockBytes);
  blocks_distinct(name, move);
  const uint64_t bursts = move.matrices * move.rows;
  current().issue(Pipe::kMte2, name, dma_cost(Memory::kGm, Memory::kL1, bursts * move.row_bytes, bursts),
                  [move](Access& access) { run_nz(access, move); });
}

}  // namespace twin::api

namespace AscendC {

#if __NPU_ARCH__ == 3510
template <typename T, bool enableSmallC0 = false>
#else
template <typename T>
#endif
__aicore__ inline void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                                const Nd2NzParams& intriParams) {
#if __NPU_ARCH__ == 3510
  static_assert(!enableSmallC0, "the small-C0 mode is outside the twin's subset");
#endif
  twin::api::issue_nz<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                         intriParams);
}

}  // namespace AscendC
