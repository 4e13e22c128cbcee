// fixpipe.h -- Fixpipe: L0C -> GM, and on 3510 L0C -> UB of one or both AIVs.
//
// Source: 16-column strips of a matrix in NZ, srcStride rows of 16 floats apart. Row-major: element (r, c)
// goes to r * dstStride + c. NZ: strip j goes to j * dstStride (32-byte blocks on 2201, elements on 3510),
// its rows of 16 (8 when split) elements one below the other. The result is rounded to nearest even when
// quantPre asks for half or bfloat16_t.
#pragma once

#include <algorithm>

#include "twin/ascendc/burst.h"
#include "twin/ascendc/cube_params.h"

namespace twin::api {

struct Store {
  Operand dst, src;
  uint64_t m = 0, n = 0;
  uint64_t src_strip = 0;   // floats between strips of 16 columns
  uint64_t dst_stride = 0;  // bytes between rows (row-major) or strips (NZ)
  uint64_t strip = 16;      // columns of a destination strip
  bool nz = false, relu = false, add = false;
};

// n (at most 16) elements of one row, in the destination's type.
template <typename T>
void convert_row(T* to, const float* from, uint64_t n, bool relu, bool add) {
  for (uint64_t i = 0; i < n; i += kLanes) {
    const uint64_t lanes = std::min(kLanes, n - i);
    Floats value = load_some(from + i, lanes);
    if (relu) value = value < Floats{} ? Floats{} : value;
    if (add) {
      T rounded[kLanes];
      store_lanes(rounded, value);
      value = load_lanes(rounded) + load_some(to + i, lanes);
    }
    store_some(to + i, value, lanes);
  }
}

template <typename T>
void store_row_major(Access& access, const Store& s) {
  const uint64_t row_bytes = s.n * sizeof(T);
  auto* to = s.add ? access.update_rows(s.dst.place, s.dst.offset, s.m, row_bytes, s.dst_stride, s.dst.name)
                   : access.write_rows(s.dst.place, s.dst.offset, s.m, row_bytes, s.dst_stride, s.dst.name);
  for (uint64_t c = 0; c < s.n; c += 16) {
    const uint64_t columns = std::min<uint64_t>(16, s.n - c);
    const uint64_t offset = s.src.offset + c / 16 * s.src_strip * sizeof(float);
    const auto* source = reinterpret_cast<const float*>(
        columns == 16 ? access.read(s.src.place, offset, s.m * 64, s.src.name)
                      : access.read_rows(s.src.place, offset, s.m, columns * 4, 64, s.src.name));
    for (uint64_t r = 0; r < s.m; ++r) {
      convert_row(reinterpret_cast<T*>(to + r * s.dst_stride) + c, source + r * 16, columns, s.relu, s.add);
    }
  }
}

template <typename T>
void store_nz(Access& access, const Store& s) {
  const uint64_t bytes = s.m * s.strip * sizeof(T);
  for (uint64_t c = 0; c < s.n; c += s.strip) {
    const uint64_t offset = s.src.offset + (c / 16 * s.src_strip + c % 16) * sizeof(float);
    const auto* source = reinterpret_cast<const float*>(
        s.strip == 16 ? access.read(s.src.place, offset, s.m * 64, s.src.name)
                      : access.read_rows(s.src.place, offset, s.m, s.strip * 4, 64, s.src.name));
    const uint64_t out = s.dst.offset + c / s.strip * s.dst_stride;
    auto* to = s.add ? access.update(s.dst.place, out, bytes, s.dst.name)
                     : access.write(s.dst.place, out, bytes, s.dst.name);
    for (uint64_t r = 0; r < s.m; ++r) {
      convert_row(reinterpret_cast<T*>(to) + r * s.strip, source + r * 16, s.strip, s.relu, s.add);
    }
  }
}

template <typename T>
void run_store(Access& access, const Store& s) {
  if (s.nz) {
    store_nz<T>(access, s);
  } else {
    store_row_major<T>(access, s);
  }
  access.count_path(Memory::kL0c, s.dst.place.memory, s.m * s.n * sizeof(T));
}

template <typename T>
QuantMode_t expected_quant() {
  if constexpr (std::is_same_v<T, half>) return QuantMode_t::F322F16;
  if constexpr (std::is_same_v<T, bfloat16_t>) return QuantMode_t::F322BF16;
  return QuantMode_t::NoQuant;
}

template <typename T, typename U, typename P>
void check_store(const char* name, const Store& s, const P& params) {
  on_cube_core(name);
  lives_in(name, s.src, Memory::kL0c, 64);
  type_allowed<std::is_same_v<U, float> && kIsFloating<T>>(name, type_name<T>());
  in_range(name, "nSize", params.nSize, 0, 4095);
  in_range(name, "mSize", params.mSize, 0, !kIs3510 && !s.nz ? 8192 : 65535);
  in_range(name, "srcStride", params.srcStride, 0, 65535);
  in_range(name, "dstStride", params.dstStride, 1, UINT32_MAX);
  require(params.quantPre == expected_quant<T>(), name, "quantPre", params.quantPre,
          "must be F322F16 for half, F322BF16 for bfloat16_t and NoQuant for float");
  require(params.unitFlag.given() == 0, name, "unitFlag", params.unitFlag.given(),
          "must be 0: outside the twin's subset");
  require(s.n <= 16 || (params.srcStride % 16 == 0 && params.srcStride >= s.m), name, "srcStride",
          params.srcStride.given(), "must be mSize rounded up to 16, or more");
  if (params.isChannelSplit) {
    require(s.nz && std::is_same_v<T, float>, name, "isChannelSplit", 1,
            "must be off unless NZ float goes to GM");
    require(params.nSize % 8 == 0, name, "nSize", params.nSize.given(),
            "must be a multiple of 8 with isChannelSplit");
  } else if (s.nz) {
    require(params.nSize % 16 == 0, name, "nSize", params.nSize.given(), "must be a multiple of 16 in NZ");
  }
  if (s.nz) {
    if (s.dst.place.memory == Memory::kGm) aligned(name, s.dst, kBlockBytes);
    const uint64_t strip_bytes = s.m * s.strip * sizeof(T);
    require(s.n <= s.strip || s.dst_stride >= strip_bytes, name, "dstStride", params.dstStride.given(),
            "must keep the strips of 16 columns apart");
  } else {
    require(s.m <= 1 || s.dst_stride >= s.n * sizeof(T), name, "dstStride", params.dstStride.given(),
            "must be at least nSize");
  }
}

template <typename T, typename P>
Store describe_store(const Operand& dst, const Operand& src, const P& params, bool nz, uint64_t nz_unit) {
  Store s;
  s.dst = dst;
  s.src = src;
  s.m = params.mSize;
  s.n = params.nSize;
  s.src_strip = uint64_t{params.srcStride} * 16;
  s.dst_stride = uint64_t{params.dstStride} * (nz ? nz_unit : sizeof(T));
  s.strip = params.isChannelSplit ? 8 : 16;
  s.nz = nz;
  s.relu = params.reluEn;
  return s;
}

template <typename T>
void issue_store(const char* name, const Store& s) {
  const uint64_t rows = s.nz ? ceil_div(s.n, s.strip) : s.m;
  const uint64_t row_bytes = (s.nz ? s.m * s.strip : s.n) * sizeof(T);
  current().issue(Pipe::kFix, name, fixpipe_cost(s.dst.place.memory, rows, row_bytes, s.nz),
                  [s](Access& access) { run_store<T>(access, s); });
}

// ndNum > 1 is refused: the documents contradict each other on the unit of srcNdStride.
inline void one_matrix(const char* name, int64_t matrices) {
  require(matrices == 1, name, "ndNum", matrices,
          "must be 1: the unit of srcNdStride is documented in two ways");
}

template <typename T, typename U, typename P>
void store_to_gm(const Operand& dst, const Operand& src, const P& params, bool nz) {
  const char* const name = "Fixpipe";
  bound(name, dst);
  Store s = describe_store<T>(dst, src, params, nz, kIs3510 ? sizeof(T) : kBlockBytes);
  check_store<T, U>(name, s, params);
  if (s.m == 0 || s.n == 0) return;
  if constexpr (kIsFloating<T>) {
    s.add = adds_to_memory<T>(name, dst);
    issue_store<T>(name, s);
  }
}

#if __NPU_ARCH__ == 3510
template <typename T, typename P>
void check_dual(const char* name, const Store& s, const P& params) {
  in_range(name, "dualDstCtl", params.dualDstCtl, 0, 2);
  if (params.dualDstCtl.given() == 0) return;
  require(params.quantPre == QuantMode_t::NoQuant && !params.reluEn, name, "dualDstCtl",
          params.dualDstCtl.given(), "must be 0 with quantPre or reluEn");
  if (params.dualDstCtl.given() == 1)
    require(s.m % 2 == 0, name, "mSize", s.m, "must be even to be split over the AIVs");
  if (params.dualDstCtl.given() == 2)
    require(s.n % 32 == 0, name, "nSize", s.n, "must be a multiple of 32 to be split over the AIVs");
}

template <typename T, typename U, typename P>
void store_to_ub(const Operand& dst, const Operand& src, const P& params, bool nz) {
  const char* const name = "Fixpipe";
  bound(name, dst);
  Store s = describe_store<T>(dst, src, params, nz, sizeof(T));
  check_store<T, U>(name, s, params);
  lives_in(name, dst, Memory::kUb, kBlockBytes);
  require(!params.isChannelSplit, name, "isChannelSplit", 1, "must be off unless NZ float goes to GM");
  if (!nz)
    require(s.n * sizeof(T) % kBlockBytes == 0, name, "nSize", s.n,
            "must fill whole 32-byte blocks of the UB");
  require(s.dst_stride % kBlockBytes == 0, name, "dstStride", params.dstStride.given(),
          "must keep 32-byte alignment in the UB");
  check_dual<T>(name, s, params);
  if (s.m == 0 || s.n == 0) return;
  if constexpr (kIsFloating<T>) {
    Store parts[2] = {s, s};
    const int64_t dual = params.dualDstCtl.given();
    if (dual == 0) parts[0].dst.place.buffer = params.subBlockId ? 1 : 0;
    if (dual != 0) parts[1].dst.place.buffer = 1;
    if (dual == 1) {
      parts[0].m = parts[1].m = s.m / 2;
      parts[1].src.offset += s.m / 2 * 64;
    } else if (dual == 2) {
      parts[0].n = parts[1].n = s.n / 2;
      parts[1].src.offset += s.n / 2 / 16 * s.src_strip * sizeof(float);
    }
    const uint64_t rows = nz ? ceil_div(s.n, s.strip) : s.m;
    current().issue(Pipe::kFix, name,
                    fixpipe_cost(Memory::kUb, rows, (nz ? s.m * s.strip : s.n) * sizeof(T), nz),
                    [first = parts[0], second = parts[1], dual](Access& access) {
                      run_store<T>(access, first);
                      if (dual != 0) run_store<T>(access, second);
                    });
  }
}
#endif

}  // namespace twin::api

namespace AscendC {

#if __NPU_ARCH__ == 3510
template <typename T, typename U, const FixpipeConfig& config = CFG_ROW_MAJOR>
__aicore__ inline void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src,
                               const FixpipeParamsArch3510<config.format>& intriParams) {
  if constexpr (config.format == CO2Layout::ROW_MAJOR)
    twin::api::one_matrix("Fixpipe", intriParams.params.ndNum.given());
  twin::api::store_to_gm<T, U>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                               intriParams, config.format == CO2Layout::NZ);
}

template <typename T, typename U, const FixpipeConfig& config = CFG_ROW_MAJOR>
__aicore__ inline void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src,
                               const FixpipeParamsArch3510<config.format>& intriParams) {
  if constexpr (config.format == CO2Layout::ROW_MAJOR)
    twin::api::one_matrix("Fixpipe", intriParams.params.ndNum.given());
  if (!config.isToUB)
    twin::api::refuse("Fixpipe", "config.isToUB", "false",
                      "must be true: L0C to L1 is outside the twin's subset");
  twin::api::store_to_ub<T, U>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                               intriParams, config.format == CO2Layout::NZ);
}
#else
template <typename T, typename U, const FixpipeConfig& config = CFG_ROW_MAJOR>
__aicore__ inline void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src,
                               const FixpipeParamsV220& intriParams) {
  twin::api::one_matrix("Fixpipe", intriParams.ndNum.given());
  twin::api::store_to_gm<T, U>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                               intriParams, config.format == CO2Layout::NZ);
}
#endif

}  // namespace AscendC
