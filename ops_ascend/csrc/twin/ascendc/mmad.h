// mmad.h -- Mmad: a product of an L0A tile and an L0B tile into L0C, in float.
//
//   L0A  Zz on 2201: fractal (i, l) at i * K + l; Nz on 3510: at l * M + i     16 rows x 32 bytes
//   L0B  Zn: fractal (l, j) at l * N + j                                       16 columns x 32 bytes along k
//   L0C  Nz: fractal (i, j) at j * M + i                                       16 x 16 floats
// The array multiplies whole fractals along k, so the bytes that pad k must be initialised, and count: they
// must be zeros in one of the operands. Rows past m and columns past n are neither read nor written.
#pragma once

#include <algorithm>
#include <vector>

#include "twin/ascendc/convert.h"
#include "twin/ascendc/cube_params.h"
#include "twin/ascendc/tensor.h"

namespace twin::api {

struct Product {
  Operand dst, a, b;
  uint32_t m, n, k;
  uint32_t c0;          // elements of 32 bytes
  uint32_t k_fractals;  // read
  uint32_t k_pitch;     // fractals between the rows of L0A's Zz order
  bool accumulate, hf32, hf32_half_to_zero;

  uint32_t m_fractals() const { return (m + 15) / 16; }
  uint32_t n_fractals() const { return (n + 15) / 16; }
};

// float with 10 mantissa bits, as the cube reads its operands in HF32 mode.
inline Floats to_hf32(Floats value, bool half_to_zero) {
  const Words words = words_of(value);
  const Words tie = half_to_zero ? Words{} + 0xfffu : 0xfffu + ((words >> 13) & 1u);
  return floats_of((words + tie) & ~0x1fffu);
}

inline void round_to_hf32(float* values, uint64_t n, bool half_to_zero) {
  for (uint64_t i = 0; i < n; i += kLanes)
    store_lanes(values + i, to_hf32(load_lanes(values + i), half_to_zero));
}

// The tiles as plain matrices: a is [m rows padded to 4][k], b is [k][n padded to 16], both zero where
// nothing was loaded.
struct Scratch {
  std::vector<float> a, b, row;
};

inline Scratch& scratch() {
  static thread_local Scratch buffers;
  return buffers;
}

template <typename T>
void unpack_a(Access& access, const Product& p, std::vector<float>& a) {
  const uint64_t depth = uint64_t{p.k_fractals} * p.c0;
  a.assign((p.m + 3) / 4 * 4 * depth, 0.0f);
  for (uint32_t i = 0; i < p.m_fractals(); ++i) {
    const uint32_t rows = std::min(16u, p.m - 16 * i);
    for (uint32_t l = 0; l < p.k_fractals; ++l) {
      const uint64_t fractal = kIs3510 ? uint64_t{l} * p.m_fractals() + i : uint64_t{i} * p.k_pitch + l;
      const auto* from = reinterpret_cast<const T*>(
          access.read(p.a.place, p.a.offset + fractal * 512, uint64_t{rows} * 32, p.a.name));
      for (uint32_t r = 0; r < rows; ++r) widen(&a[(16 * i + r) * depth + l * p.c0], from + r * p.c0, p.c0);
    }
  }
  if (p.hf32) round_to_hf32(a.data(), a.size(), p.hf32_half_to_zero);
}

template <typename T>
void unpack_b(Access& access, const Product& p, std::vector<float>& b) {
  const uint64_t width = uint64_t{p.n_fractals()} * 16;
  b.assign(uint64_t{p.k_fractals} * p.c0 * width, 0.0f);
  float fractal[16 * 16];
  for (uint32_t l = 0; l < p.k_fractals; ++l) {
    for (uint32_t j = 0; j < p.n_fractals(); ++j) {
      const uint32_t columns = std::min(16u, p.n - 16 * j);
      const uint64_t index = uint64_t{l} * p.n_fractals() + j;
      const auto* from = reinterpret_cast<const T*>(
          access.read(p.b.place, p.b.offset + index * 512, uint64_t{columns} * 32, p.b.name));
      widen(fractal, from, uint64_t{columns} * p.c0);
      float* to = &b[l * p.c0 * width + 16 * j];
      for (uint32_t q = 0; q < p.c0; ++q) {
        for (uint32_t c = 0; c < columns; ++c) to[q * width + c] = fractal[c * p.c0 + q];
      }
    }
  }
  if (p.hf32) round_to_hf32(b.data(), b.size(), p.hf32_half_to_zero);
}

// sum[4][16] += a[4][k] b[k][16]
constexpr uint64_t kParts = 16 / kLanes;
inline void multiply_panel(Floats (&sum)[4][kParts], const float* a, uint64_t depth, const float* b,
                           uint64_t width) {
  for (uint64_t q = 0; q < depth; ++q, b += width) {
    Floats right[kParts];
    for (uint64_t v = 0; v < kParts; ++v) right[v] = load_lanes(b + v * kLanes);
    for (int r = 0; r < 4; ++r) {
      const float left = a[r * depth + q];
      for (uint64_t v = 0; v < kParts; ++v) sum[r][v] += left * right[v];
    }
  }
}

inline bool all_finite(const std::vector<float>& values) {
  Ints finite = Ints{} - 1;
  for (uint64_t i = 0; i < values.size(); i += kLanes) finite &= is_finite(load_lanes(values.data() + i));
  for (uint64_t i = 0; i < kLanes; ++i) {
    if (finite[i] == 0) return false;
  }
  return true;
}

// One column of fractals of the result: rows of 16 floats, one below the other.
inline void multiply_column(Access& access, const Product& p, uint32_t j, const Scratch& s, NanWatch& nan) {
  const uint64_t depth = uint64_t{p.k_fractals} * p.c0, width = uint64_t{p.n_fractals()} * 16;
  const uint64_t columns = std::min(16u, p.n - 16 * j);
  const uint64_t offset = p.dst.offset + uint64_t{j} * p.m_fractals() * 1024;
  uint8_t* bytes;
  if (columns == 16) {
    bytes = p.accumulate ? access.update(p.dst.place, offset, uint64_t{p.m} * 64, p.dst.name)
                         : access.write(p.dst.place, offset, uint64_t{p.m} * 64, p.dst.name);
  } else {
    bytes = p.accumulate ? access.update_rows(p.dst.place, offset, p.m, columns * 4, 64, p.dst.name)
                         : access.write_rows(p.dst.place, offset, p.m, columns * 4, 64, p.dst.name);
  }
  auto* out = reinterpret_cast<float*>(bytes);
  for (uint32_t i = 0; i < p.m; i += 4) {
    const uint32_t rows = std::min(4u, p.m - i);
    Floats sum[4][kParts] = {};
    float lanes[16];
    Ints finite = Ints{} - 1;
    if (p.accumulate) {
      for (uint32_t r = 0; r < rows; ++r) {
        std::memset(lanes, 0, sizeof(lanes));
        std::memcpy(lanes, out + (i + r) * 16, columns * sizeof(float));
        for (uint64_t v = 0; v < kParts; ++v) {
          sum[r][v] = load_lanes(lanes + v * kLanes);
          finite &= is_finite(sum[r][v]);
        }
      }
    }
    multiply_panel(sum, &s.a[i * depth], depth, &s.b[16 * j], width);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint64_t v = 0; v < kParts; ++v) {
        nan.see(sum[r][v], finite);
        store_lanes(lanes + v * kLanes, sum[r][v]);
      }
      std::memcpy(out + (i + r) * 16, lanes, columns * sizeof(float));
    }
  }
}

template <typename T>
void run_product(Access& access, const Product& p) {
  Scratch& s = scratch();
  unpack_a<T>(access, p, s.a);
  unpack_b<T>(access, p, s.b);
  const uint64_t bytes = uint64_t{p.m_fractals()} * p.n_fractals() * 1024;
  if (p.accumulate) access.mmad_accumulate(p.dst.place, p.dst.offset, bytes, p.m, p.n);
  NanWatch nan;
  for (uint32_t j = 0; j < p.n_fractals(); ++j) multiply_column(access, p, j, s, nan);
  if (nan.any()) access.check_nan(all_finite(s.a) && all_finite(s.b), true, "dst");
}

inline void check_product(const char* name, const Product& p, const AscendC::MmadParams& params) {
  on_cube_core(name);
  lives_in(name, p.dst, Memory::kL0c, 1024);
  lives_in(name, p.a, Memory::kL0a, 512);
  lives_in(name, p.b, Memory::kL0b, 512);
  in_range(name, "m", params.m, 1, 4095);
  in_range(name, "n", params.n, 1, 4095);
  in_range(name, "k", params.k, 1, 4095);
  require(params.unitFlag.given() == 0, name, "unitFlag", params.unitFlag.given(),
          "must be 0: outside the twin's subset");
  require(!params.isBias && !params.cmatrixSource, name, "bias", 1, "must be off: outside the twin's subset");
  require(params.fmOffset == 0 && !params.enSsparse && !params.enWinogradA && !params.enWinogradB, name,
          "void parameters", 1, "must keep their defaults");
#if __NPU_ARCH__ == 3510
  require(!params.kDirectionAlign, name, "kDirectionAlign", 1, "must be false on 3510");
  const bool gemv = !params.disableGemv;
#else
  const bool gemv = true;
#endif
  require(p.m != 1 || !gemv, name, "m", p.m,
          "must not be 1: the array then reads L0A as a plain vector (GEMV)");
}

template <typename T, typename U, typename S>
void issue_product(const Operand& dst, const Operand& a, const Operand& b,
                   const AscendC::MmadParams& params) {
  const char* const name = "Mmad";
  type_allowed<std::is_same_v<T, float> && std::is_same_v<U, S> && kIsFloating<U>>(name, type_name<U>());
  Product p{dst, a, b, params.m, params.n, params.k, 32 / sizeof(U), 0, 0, false, false, false};
  check_product(name, p, params);
  p.k_fractals = static_cast<uint32_t>(ceil_div(p.k, p.c0));
  p.k_pitch = sizeof(U) == 4 && params.kDirectionAlign ? (p.k + 15) / 16 * 2 : p.k_fractals;
  p.accumulate = !params.cmatrixInitVal;
  p.hf32 = sizeof(U) == 4 && current().modes.hf32;
  p.hf32_half_to_zero = current().modes.hf32_half_to_zero;
  if constexpr (kIsFloating<U>) {
    current().issue(Pipe::kM, name, mmad_cost(p.m, p.n, p.k, sizeof(U), p.hf32),
                    [p](Access& access) { run_product<U>(access, p); });
  }
}

}  // namespace twin::api

namespace AscendC {

template <typename T, typename U, typename S>
__aicore__ inline void Mmad(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter,
                            const MmadParams& mmadParams) {
  twin::api::issue_product<T, U, S>(twin::api::TensorView::of(dst, "dst"),
                                    twin::api::TensorView::of(fm, "fm"),
                                    twin::api::TensorView::of(filter, "filter"), mmadParams);
}

__aicore__ inline void SetHF32Mode(HF32Mode mode) { twin::current().modes.hf32 = mode == HF32Mode::ENABLE; }
__aicore__ inline void SetHF32Mode(bool hf32Mode) { twin::current().modes.hf32 = hf32Mode; }
__aicore__ inline void SetHF32TransMode(HF32TransMode mode) {
  twin::current().modes.hf32_half_to_zero = mode == HF32TransMode::NEAREST_ZERO;
}

}  // namespace AscendC
