// load_data.h -- LoadData, LoadDataWithTranspose (L1 -> L0A, L0B) and Fill.
//
// A fractal is 512 bytes: 16 rows of 32 bytes. A plain load copies fractals; a transposing one turns 16 x 16
// squares (one b16 fractal, or two b32 fractals that lie side by side) and writes the square's fractals
// apart.
#pragma once

#include "twin/ascendc/burst.h"
#include "twin/ascendc/cube_params.h"

namespace twin::api {

constexpr uint64_t kFractalBytes = 512;

inline Memory cube_load_route(const char* name, const Operand& dst, const Operand& src) {
  on_cube_core(name);
  lives_in(name, src, Memory::kL1, kBlockBytes);
  bound(name, dst);
  const Memory to = dst.place.memory;
  if (to != Memory::kL0a && to != Memory::kL0b)
    refuse(name, dst.name, memory_name(to), "must be in L0A or L0B");
  aligned(name, dst, kFractalBytes);
  return to;
}

// to[c][r] = from[r][c] for a 16 x 16 square of b16.
inline void transpose_b16(uint8_t* to, const uint8_t* from) {
  uint16_t in[16][16], out[16][16];
  std::memcpy(in, from, sizeof(in));
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 16; ++c) out[c][r] = in[r][c];
  }
  std::memcpy(to, out, sizeof(out));
}

// A 16 x 16 square of b32: left and right are its 16 x 8 fractals. low and high get the square's transpose,
// 16 x 8 each: the source's rows 0..7 and 8..15.
inline void transpose_b32(uint8_t* low, uint8_t* high, const uint8_t* left, const uint8_t* right) {
  uint32_t in[2][16][8], out[2][16][8];
  std::memcpy(in[0], left, kFractalBytes);
  std::memcpy(in[1], right, kFractalBytes);
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 16; ++c) out[r / 8][c][r % 8] = in[c / 8][r][c % 8];
  }
  std::memcpy(low, out[0], kFractalBytes);
  std::memcpy(high, out[1], kFractalBytes);
}

// One repeat of a load: where its source fractals start and where its destination fractals go. `pair` is the
// distance between the two source fractals of a b32 square, `split` between the two destination fractals.
struct FractalLoad {
  Operand dst, src;
  bool transpose;
  uint32_t element_bytes;
  uint64_t pair, split;
};

inline void load_fractals(Access& access, const FractalLoad& load, uint64_t src_offset, uint64_t dst_offset,
                          uint64_t count, int64_t src_stride, int64_t dst_stride) {
  const bool square = load.transpose && load.element_bytes == 4;
  const uint64_t src = load.src.offset + src_offset, dst = load.dst.offset + dst_offset;
  const uint8_t* from =
      access.read_rows(load.src.place, src, count, kFractalBytes, src_stride, load.src.name);
  uint8_t* to = access.write_rows(load.dst.place, dst, count, kFractalBytes, dst_stride, load.dst.name);
  if (square) {
    access.read_rows(load.src.place, src + load.pair, count, kFractalBytes, src_stride, load.src.name);
    access.write_rows(load.dst.place, dst + load.split, count, kFractalBytes, dst_stride, load.dst.name);
  }
  for (uint64_t i = 0; i < count; ++i, from += src_stride, to += dst_stride) {
    if (square) {
      transpose_b32(to, to + load.split, from, from + load.pair);
    } else if (load.transpose) {
      transpose_b16(to, from);
    } else {
      std::memcpy(to, from, kFractalBytes);
    }
  }
}

template <typename T>
void issue_load_2d(const Operand& dst, const Operand& src, const AscendC::LoadData2DParams& params) {
  const char* const name = "LoadData";
  const Memory to = cube_load_route(name, dst, src);
  type_allowed<sizeof(T) == 2 || sizeof(T) == 4>(name, type_name<T>());
  in_range(name, "repeatTimes", params.repeatTimes, 1, 255);
  in_range(name, "startIndex", params.startIndex, 0, 65535);
  in_range(name, "srcStride", params.srcStride, 0, 65535);
  in_range(name, "dstGap", params.dstGap, 0, 65535);
  require(params.addrMode.given() == 0, name, "addrMode", params.addrMode.given(), "must be 0");
  if (params.ifTranspose && sizeof(T) != 2)
    refuse(name, "ifTranspose element type", type_name<T>(), "must have 16 bits");
  if (kIs3510) {
    // There the call becomes a load of one row of fractals: the start counts strides, and dstGap is
    // documented as void.
    require(params.startIndex.given() == 0 || (params.srcStride.given() == 1 && !params.ifTranspose), name,
            "startIndex", params.startIndex.given(),
            "must be 0 on 3510 unless srcStride is 1 and ifTranspose is false");
    require(params.dstGap.given() == 0, name, "dstGap", params.dstGap.given(), "must be 0 on 3510");
  }
  const FractalLoad load{dst, src, params.ifTranspose, sizeof(T), 0, 0};
  const uint64_t count = params.repeatTimes, start = uint64_t{params.startIndex} * kFractalBytes;
  const int64_t src_stride = params.srcStride.given() * static_cast<int64_t>(kFractalBytes);
  const int64_t dst_stride = (params.dstGap.given() + 1) * static_cast<int64_t>(kFractalBytes);
  current().issue(Pipe::kMte1, name, cube_load_cost(to, count * kFractalBytes, count), [=](Access& access) {
    load_fractals(access, load, start, 0, count, src_stride, dst_stride);
    access.count_path(Memory::kL1, to, count * kFractalBytes);
  });
}

template <typename T>
void issue_load_transposed(const Operand& dst, const Operand& src,
                           const AscendC::LoadData2dTransposeParams& params) {
  const char* const name = "LoadDataWithTranspose";
  const Memory to = cube_load_route(name, dst, src);
  type_allowed<sizeof(T) == 2 || sizeof(T) == 4>(name, type_name<T>());
  if (kIs3510 && to == Memory::kL0a) refuse(name, dst.name, memory_name(to), "must be in L0B on 3510");
  in_range(name, "repeatTimes", params.repeatTimes, 1, 255);
  in_range(name, "startIndex", params.startIndex, 0, 65535);
  in_range(name, "srcStride", params.srcStride, 0, 65535);
  in_range(name, "dstGap", params.dstGap, 0, 65535);
  in_range(name, "dstFracGap", params.dstFracGap, 0, 65535);
  require(params.addrMode.given() == 0, name, "addrMode", params.addrMode.given(), "must be 0");
  constexpr uint64_t kSquareBytes = 16 * 16 * sizeof(T);
  const uint64_t split = (uint64_t{params.dstFracGap} + 1) * kFractalBytes;
  const FractalLoad load{dst, src, true, sizeof(T), kFractalBytes, split};
  const uint64_t count = params.repeatTimes, start = uint64_t{params.startIndex} * kSquareBytes;
  const int64_t src_stride = params.srcStride.given() * static_cast<int64_t>(kSquareBytes);
  const int64_t dst_stride = (params.dstGap.given() + 1) * static_cast<int64_t>(kFractalBytes);
  if (sizeof(T) == 4 && count > 1) {
    const uint64_t step = static_cast<uint64_t>(dst_stride);
    require(split % step != 0 || split / step >= count, name, "dstFracGap", params.dstFracGap.given(),
            "must not put a square's second fractal on another repeat's first");
  }
  current().issue(Pipe::kMte1, name, cube_load_cost(to, count * kSquareBytes, count * sizeof(T) / 2),
                  [=](Access& access) {
                    load_fractals(access, load, start, 0, count, src_stride, dst_stride);
                    access.count_path(Memory::kL1, to, count * kSquareBytes);
                  });
}

#if __NPU_ARCH__ == 3510
template <typename T>
void check_load_v2(const char* name, const AscendC::LoadData2DParamsV2& params) {
  in_range(name, "mStep", params.mStep, 1, 255);
  in_range(name, "kStep", params.kStep, 1, 255);
  in_range(name, "mStartPosition", params.mStartPosition, 0, UINT32_MAX);
  in_range(name, "kStartPosition", params.kStartPosition, 0, UINT32_MAX);
  in_range(name, "srcStride", params.srcStride, 0, 65535);
  in_range(name, "dstStride", params.dstStride, 0, 65535);
  if (params.ifTranspose && sizeof(T) == 4) {
    require(params.kStep % 2 == 0, name, "kStep", params.kStep.given(),
            "must be even to transpose 32-bit elements");
  }
  const int64_t rows = params.mStep.given(), columns = params.kStep.given(), wide = sizeof(T) == 4 ? 2 : 1;
  const int64_t outer = params.ifTranspose ? rows * wide : columns;
  const int64_t inner = params.ifTranspose ? columns / wide : rows;
  require(outer == 1 || params.dstStride >= inner, name, "dstStride", params.dstStride.given(),
          "must keep the fractal columns apart");
}

// Source: an M x K matrix in NZ, fractal (m, k) at k * srcStride + m. Plain: the same fractals, k * dstStride
// + m. Transposed: the matrix K x M in NZ, that is fractal (k, m) at m * dstStride + k, where a b32 square
// gives the columns 2 m and 2 m + 1.
template <typename T>
void issue_load_v2(const Operand& dst, const Operand& src, const AscendC::LoadData2DParamsV2& params) {
  const char* const name = "LoadData(2DV2)";
  const Memory to = cube_load_route(name, dst, src);
  type_allowed<sizeof(T) == 2 || sizeof(T) == 4>(name, type_name<T>());
  check_load_v2<T>(name, params);
  const bool transpose = params.ifTranspose;
  const uint64_t rows = params.mStep, columns = params.kStep;
  const uint64_t src_column = static_cast<uint64_t>(params.srcStride.given()) * kFractalBytes;
  const uint64_t dst_column = uint64_t{params.dstStride} * kFractalBytes;
  const uint64_t start =
      uint64_t{params.kStartPosition} * src_column + uint64_t{params.mStartPosition} * kFractalBytes;
  const FractalLoad load{dst, src, transpose, sizeof(T), src_column, dst_column};
  const uint64_t fractals = rows * columns;
  current().issue(Pipe::kMte1, name, cube_load_cost(to, fractals * kFractalBytes, fractals),
                  [=](Access& access) {
                    access.count_path(Memory::kL1, to, fractals * kFractalBytes);
                    if (!transpose) {
                      for (uint64_t k = 0; k < columns; ++k) {
                        load_fractals(access, load, start + k * src_column, k * dst_column, rows,
                                      kFractalBytes, kFractalBytes);
                      }
                      return;
                    }
                    const uint64_t wide = sizeof(T) == 4 ? 2 : 1;
                    for (uint64_t m = 0; m < rows; ++m) {
                      load_fractals(access, load, start + m * kFractalBytes, m * wide * dst_column,
                                    columns / wide, static_cast<int64_t>(wide * src_column), kFractalBytes);
                    }
                  });
}
#endif

template <typename T>
void issue_fill(const char* name, const Operand& dst, const AscendC::InitConstValueParams<T>& params) {
  on_cube_core(name);
  bound(name, dst);
  type_allowed<sizeof(T) == 2 || sizeof(T) == 4>(name, type_name<T>());
  const Memory to = dst.place.memory;
  if (to != Memory::kL1 && (kIs3510 || (to != Memory::kL0a && to != Memory::kL0b))) {
    refuse(name, dst.name, memory_name(to), kIs3510 ? "must be in L1 on 3510" : "must be in L1, L0A or L0B");
  }
  const uint64_t unit = to == Memory::kL1 ? kBlockBytes : kFractalBytes;
  aligned(name, dst, static_cast<uint32_t>(unit));
  in_range(name, "repeatTimes", params.repeatTimes, 0, 32767);
  in_range(name, "blockNum", params.blockNum, 0, 32767);
  in_range(name, "dstGap", params.dstGap, 0, 32767);
  const uint64_t rows = params.repeatTimes, bytes = params.blockNum * unit,
                 stride = bytes + params.dstGap * unit;
  if (rows == 0 || bytes == 0) return;
  const T value = params.initValue;
  current().issue(to == Memory::kL1 ? Pipe::kMte2 : Pipe::kMte1, name, cube_load_cost(to, rows * bytes, rows),
                  [=](Access& access) {
                    uint8_t* row = access.write_rows(dst.place, dst.offset, rows, bytes,
                                                     static_cast<int64_t>(stride), dst.name);
                    for (uint64_t r = 0; r < rows; ++r, row += stride) {
                      for (uint64_t i = 0; i < bytes; i += sizeof(T)) std::memcpy(row + i, &value, sizeof(T));
                    }
                  });
}

}  // namespace twin::api

namespace AscendC {

template <typename T>
__aicore__ inline void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                const LoadData2DParams& loadDataParams) {
  twin::api::issue_load_2d<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                              loadDataParams);
}

// GM -> L0A, L0B: gone on 3510 although it still compiles, and outside the twin's subset on 2201.
template <typename T>
__aicore__ inline void LoadData(const LocalTensor<T>&, const GlobalTensor<T>&, const LoadData2DParams&) {
  twin::api::refuse("LoadData", "src", "GM", "must be in L1: the path from GM is gone on 3510");
}

#if __NPU_ARCH__ == 3510
template <typename T>
__aicore__ inline void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                const LoadData2DParamsV2& loadDataParams) {
  twin::api::issue_load_v2<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                              loadDataParams);
}
#endif

template <typename T>
__aicore__ inline void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                             const LoadData2dTransposeParams& loadDataParams) {
  twin::api::issue_load_transposed<T>(twin::api::TensorView::of(dst, "dst"),
                                      twin::api::TensorView::of(src, "src"), loadDataParams);
}

template <typename T, typename U = T, typename std::enable_if<std::is_same<T, U>::value, bool>::type = true>
__aicore__ inline void Fill(const LocalTensor<T>& dst, const InitConstValueParams<U>& initConstValueParams) {
  twin::api::issue_fill<T>("Fill", twin::api::TensorView::of(dst, "dst"), initConstValueParams);
}

template <typename T, typename U = T, typename std::enable_if<std::is_same<T, U>::value, bool>::type = true>
__aicore__ inline void InitConstValue(const LocalTensor<T>& dst,
                                      const InitConstValueParams<U>& initConstValueParams) {
  twin::api::issue_fill<T>("InitConstValue", twin::api::TensorView::of(dst, "dst"), initConstValueParams);
}

}  // namespace AscendC
