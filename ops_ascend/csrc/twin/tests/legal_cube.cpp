// legal_cube.cpp -- GM -> L1 -> L0 -> Mmad -> Fixpipe equals a plain matrix product, in every layout, type
// and store.
#include <cstdio>

#include "planted.h"

namespace planted {
namespace {

constexpr uint32_t kB = 8192;  // element of the inputs where B starts

uint32_t up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// C[m][n] = A B; A is [m][k], or [k][m] when a_t; B is [k][n], or [n][k] when b_t.
struct Shape {
  uint32_t m, n, k;
  bool a_t, b_t;
};

enum class Out { kRows, kNz, kSplit, kHalf, kBf16, kAdd, kTwice };

template <typename T>
constexpr uint32_t kC0 = 32 / sizeof(T);
template <typename T>
constexpr uint32_t kFractal = 16 * kC0<T>;

template <typename T>
void zero_l1(const LocalTensor<T>& l1, uint32_t elements) {
  Fill(l1, {1, elements / kC0<T>, 0, static_cast<T>(0.0f)});
}

// Rows x columns of GM into NZ: [columns / C0][rows up to 16][C0], zeros around.
template <typename T>
void load_nz(const LocalTensor<T>& l1, const GlobalTensor<T>& src, uint32_t rows, uint32_t columns) {
  zero_l1(l1, up(rows, 16) * up(columns, 16));
  PipeBarrier<PIPE_MTE2>();
  DataCopy(l1, src, Nd2NzParams(1, rows, columns, 0, columns, up(rows, 16), 1, 0));
}

// The same as panels of 16 rows: [rows / 16][columns / C0][16][C0], columns rounded up to 16.
template <typename T>
void load_panels(const LocalTensor<T>& l1, const GlobalTensor<T>& src, uint32_t rows, uint32_t columns) {
  const uint32_t panel = 16 * up(columns, 16);
  zero_l1(l1, up(rows, 16) * up(columns, 16));
  PipeBarrier<PIPE_MTE2>();
  if (rows >= 16) DataCopy(l1, src, Nd2NzParams(rows / 16, 16, columns, 16 * columns, columns, 16, 1, panel));
  if (rows % 16 != 0) {
    DataCopy(l1[rows / 16 * panel], src[rows / 16 * 16 * columns],
             Nd2NzParams(1, rows % 16, columns, 0, columns, 16, 1, 0));
  }
}

#if __NPU_ARCH__ == 3510
template <typename T>
void to_l0a(const LocalTensor<T>& l0, const LocalTensor<T>& l1, const Shape& s) {
  const uint32_t m16 = up(s.m, 16) / 16, k16 = up(s.k, 16) / 16, wide = 16 / kC0<T>;
  if (s.a_t) {
    LoadData(l0, l1, LoadData2DParamsV2(0, 0, k16, m16 * wide, k16, m16, true, 0));
  } else {
    LoadData(l0, l1, LoadData2DParamsV2(0, 0, m16, up(s.k, kC0<T>) / kC0<T>, m16, m16, false, 0));
  }
}

template <typename T>
void to_l0b(const LocalTensor<T>& l0, const LocalTensor<T>& l1, const Shape& s) {
  const uint32_t n16 = up(s.n, 16) / 16, k16 = up(s.k, 16) / 16, wide = 16 / kC0<T>;
  if (s.b_t) {
    LoadData(l0, l1, LoadData2DParamsV2(0, 0, n16, up(s.k, kC0<T>) / kC0<T>, n16, n16, false, 0));
  } else {
    LoadData(l0, l1, LoadData2DParamsV2(0, 0, k16, n16 * wide, k16, n16, true, 0));
  }
}
template <typename T>
constexpr bool kTransposesPanels = false;
#else
template <typename T>
constexpr bool kTransposesPanels = sizeof(T) == 4;

template <typename T>
void to_l0a(const LocalTensor<T>& l0, const LocalTensor<T>& l1, const Shape& s) {
  const uint32_t m16 = up(s.m, 16) / 16, k16 = up(s.k, 16) / 16;
  const uint32_t k_pitch = s.a_t ? k16 * (16 / kC0<T>) : up(s.k, kC0<T>) / kC0<T>;
  for (uint32_t i = 0; i < m16; ++i) {
    const auto dst = l0[i * k_pitch * kFractal<T>];
    if (!s.a_t) {
      LoadData(dst, l1[i * kFractal<T>], LoadData2DParams(0, k_pitch, m16, 0, 0, false, 0));
    } else if constexpr (sizeof(T) == 4) {
      LoadDataWithTranspose(dst, l1, LoadData2dTransposeParams(i, k16, m16, 1, 0));
    } else {
      LoadData(dst, l1[i * k16 * kFractal<T>], LoadData2DParams(0, k16, 1, 0, 0, true, 0));
    }
  }
}

template <typename T>
void to_l0b(const LocalTensor<T>& l0, const LocalTensor<T>& l1, const Shape& s) {
  const uint32_t n16 = up(s.n, 16) / 16, k16 = up(s.k, 16) / 16;
  if (s.b_t) {
    LoadData(l0, l1, LoadData2DParams(0, n16 * (up(s.k, kC0<T>) / kC0<T>), 1, 0, 0, false, 0));
    return;
  }
  for (uint32_t i = 0; i < k16; ++i) {
    if constexpr (sizeof(T) == 4) {
      LoadDataWithTranspose(l0[2 * i * n16 * kFractal<T>], l1,
                            LoadData2dTransposeParams(i * n16, n16, 1, 0, n16 - 1));
    } else {
      LoadData(l0[i * n16 * kFractal<T>], l1[i * kFractal<T>], LoadData2DParams(0, n16, k16, 0, 0, true, 0));
    }
  }
}
#endif

template <CO2Layout layout>
auto store_params(const Shape& s, uint32_t nz_strip_elements, uint32_t element_bytes) {
#if __NPU_ARCH__ == 3510
  FixpipeParamsArch3510<layout> params;
  const uint32_t strip = nz_strip_elements;
  (void)element_bytes;
#else
  FixpipeParamsV220 params;
  const uint32_t strip = nz_strip_elements * element_bytes / 32;
#endif
  params.nSize = s.n;
  params.mSize = s.m;
  params.srcStride = up(s.m, 16);
  params.dstStride = layout == CO2Layout::NZ ? strip : s.n + 3;
  return params;
}

template <typename U>
void store_rows(const GlobalTensor<U>& out, const LocalTensor<float>& c, const Shape& s, QuantMode_t quant) {
  auto params = store_params<CO2Layout::ROW_MAJOR>(s, 0, sizeof(U));
  params.quantPre = quant;
  Fixpipe<U, float, CFG_ROW_MAJOR>(out, c, params);
}

void store(const Gm& gm, const LocalTensor<float>& c, const Shape& s, Out out) {
  const auto floats = global<float>(gm.out);
  if (out == Out::kHalf) return store_rows(global<half>(gm.out16), c, s, QuantMode_t::F322F16);
  if (out == Out::kBf16) return store_rows(global<bfloat16_t>(gm.out16), c, s, QuantMode_t::F322BF16);
  if (out == Out::kNz || out == Out::kSplit) {
    auto params = store_params<CO2Layout::NZ>(s, s.m * (out == Out::kSplit ? 8 : 16), 4);
    params.isChannelSplit = out == Out::kSplit;
    return Fixpipe<float, float, CFG_NZ>(floats, c, params);
  }
  store_rows(floats, c, s, QuantMode_t::NoQuant);
  if (out != Out::kAdd) return;
  PipeBarrier<PIPE_FIX>();
  SetAtomicAdd<float>();
  store_rows(floats, c, s, QuantMode_t::NoQuant);
  SetAtomicNone();
}

template <typename T>
Kernel product(const Shape& s, Out out) {
  return [s, out](const Gm& gm) {
    on_aic([&] {
      const auto in = sizeof(T) == 4 ? gm.in : std::is_same_v<T, half> ? gm.in16 : gm.inb;
      const auto source = global<T>(in);
      const LocalTensor<T> a1(TPosition::A1, 0, 16384), b1(TPosition::B1, 131072, 16384);
      const LocalTensor<T> a2(TPosition::A2, 0, 16384), b2(TPosition::B2, 0, 16384);
      const LocalTensor<float> c(TPosition::CO1, 0, up(s.m, 16) * up(s.n, 16));
      if (kTransposesPanels<T> && s.a_t) {
        load_panels(a1, source, s.k, s.m);
      } else {
        load_nz(a1, source, s.a_t ? s.k : s.m, s.a_t ? s.m : s.k);
      }
      if (kTransposesPanels<T> && !s.b_t) {
        load_panels(b1, source[kB], s.k, s.n);
      } else {
        load_nz(b1, source[kB], s.b_t ? s.n : s.k, s.b_t ? s.k : s.n);
      }
      hand_over<HardEvent::MTE2_MTE1>();
      to_l0a(a2, a1, s);
      to_l0b(b2, b1, s);
      hand_over<HardEvent::MTE1_M>();
      MmadParams params(s.m, s.n, s.k, 0, false, true);
      params.kDirectionAlign = kTransposesPanels<T> && s.a_t;
      Mmad(c, a2, b2, params);
      if (out == Out::kTwice) {
        PipeBarrier<PIPE_M>();
        params.cmatrixInitVal = false;
        Mmad(c, a2, b2, params);
      }
      hand_over<HardEvent::M_FIX>();
      store(gm, c, s, out);
    });
  };
}

float stored(const Host& h, const Shape& s, Out out, uint32_t r, uint32_t c) {
  if (out == Out::kHalf) return static_cast<float>(h.out16[r * (s.n + 3) + c]);
  if (out == Out::kBf16) {
    bfloat16_t value;
    std::memcpy(&value, &h.out16[r * (s.n + 3) + c], sizeof(value));
    return ToFloat(value);
  }
  const uint32_t strip = out == Out::kSplit ? 8 : 16;
  if (out == Out::kNz || out == Out::kSplit) return h.out[c / strip * s.m * strip + r * strip + c % strip];
  return h.out[r * (s.n + 3) + c];
}

Check equals(const Shape& s, Out out) {
  return [s, out](const Host& h) -> std::string {
    for (uint32_t r = 0; r < s.m; ++r) {
      for (uint32_t c = 0; c < s.n; ++c) {
        float want = 0.0f;
        for (uint32_t q = 0; q < s.k; ++q) {
          want += h.in[s.a_t ? q * s.m + r : r * s.k + q] * h.in[kB + (s.b_t ? c * s.k + q : q * s.n + c)];
        }
        if (out == Out::kAdd || out == Out::kTwice) want *= 2.0f;
        if (out == Out::kHalf) want = static_cast<float>(static_cast<half>(want));
        if (out == Out::kBf16) want = ToFloat(bfloat16_t(want));
        const float got = stored(h, s, out, r, c);
        if (got != want) {
          char text[120];
          std::snprintf(text, sizeof(text), "(%u, %u) is %g, must be %g", r, c, got, want);
          return text;
        }
      }
    }
    return "";
  };
}

template <typename T>
void add_products(Registry& r, const char* type) {
  const char* const names[] = {"ab", "abt", "atb", "atbt"};
  for (int t = 0; t < 4; ++t) {
    const bool a_t = t >= 2, b_t = t % 2 == 1;
    const std::string name = std::string("product_") + type + "_" + names[t];
    r.legal(name + "_square", product<T>({64, 64, 64, a_t, b_t}, Out::kRows),
            equals({64, 64, 64, a_t, b_t}, Out::kRows));
    r.legal(name + "_ragged", product<T>({40, 50, 70, a_t, b_t}, Out::kRows),
            equals({40, 50, 70, a_t, b_t}, Out::kRows));
  }
}

void add_stores(Registry& r) {
  const Shape s = {48, 64, 32, false, false};
  const std::pair<const char*, Out> outs[] = {{"nz", Out::kNz},     {"split", Out::kSplit},
                                              {"half", Out::kHalf}, {"bf16", Out::kBf16},
                                              {"add", Out::kAdd},   {"accumulated", Out::kTwice}};
  for (const auto& [name, out] : outs)
    r.legal(std::string("store_") + name, product<half>(s, out), equals(s, out));
  const Shape odd = {5, 24, 9, false, true};
  r.legal("store_split_8_columns", product<float>(odd, Out::kSplit), equals(odd, Out::kSplit));
}

// 10 mantissa bits: 1 + 2^-10 stays, 1 + 2^-11 goes to the even 1, or towards zero.
void add_hf32(Registry& r) {
  r.legal(
      "hf32_rounds_operands",
      [](const Gm& gm) {
        on_aic([&] {
          const LocalTensor<float> l1(TPosition::A1, 0, 1024), a(TPosition::A2, 0, 256),
              b(TPosition::B2, 0, 256), c(TPosition::CO1, 0, 256);
          Fill(l1, {1, 16, 0, 1.0f + 1.0f / 1024});
          Fill(l1[128], {1, 16, 0, 1.0f + 1.0f / 2048});
          hand_over<HardEvent::MTE2_MTE1>();
          LoadData(a, l1, LoadData2DParams(0, 2, 1, 0, 0, false, 0));
          Fill(l1[512], {1, 32, 0, 1.0f});
          SetFlag<HardEvent::MTE2_MTE1>(1);
          WaitFlag<HardEvent::MTE2_MTE1>(1);
          LoadData(b, l1[512], LoadData2DParams(0, 2, 1, 0, 0, false, 0));
          hand_over<HardEvent::MTE1_M>();
          SetHF32Mode(HF32Mode::ENABLE);
          Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
          SetHF32Mode(HF32Mode::DISABLE);
          hand_over<HardEvent::M_FIX>();
          store_rows(global<float>(gm.out), c, {16, 16, 16, false, false}, QuantMode_t::NoQuant);
        });
      },
      [](const Host& h) -> std::string {
        const float want = 8.0f * (1.0f + 1.0f / 1024) + 8.0f;
        return h.out[0] == want ? "" : std::to_string(h.out[0]);
      });
}

#if __NPU_ARCH__ == 3510
// The two ways into L0B that 2201 code uses, on 3510.
void add_old_loads(Registry& r) {
  const Shape s = {32, 48, 32, false, false};
  r.legal(
      "load_2d_transposed_on_3510",
      [s](const Gm& gm) {
        on_aic([&] {
          const LocalTensor<half> a1(TPosition::A1, 0, 2048), b1(TPosition::A1, 65536, 2048);
          const LocalTensor<half> a2(TPosition::A2, 0, 2048), b2(TPosition::B2, 0, 2048);
          const LocalTensor<float> c(TPosition::CO1, 0, 2048);
          load_nz(a1, global<half>(gm.in16), s.m, s.k);
          load_nz(b1, global<half>(gm.in16)[kB], s.k, s.n);
          hand_over<HardEvent::MTE2_MTE1>();
          to_l0a(a2, a1, s);
          for (uint32_t i = 0; i < 2; ++i) {
            LoadData(b2[i * 3 * 256], b1[i * 256], LoadData2DParams(0, 3, 2, 0, 0, true, 0));
          }
          hand_over<HardEvent::MTE1_M>();
          Mmad(c, a2, b2, MmadParams(s.m, s.n, s.k, 0, false, true));
          hand_over<HardEvent::M_FIX>();
          store(gm, c, s, Out::kRows);
        });
      },
      equals(s, Out::kRows));
  r.legal(
      "load_with_transpose_on_3510",
      [s](const Gm& gm) {
        on_aic([&] {
          const LocalTensor<float> a1(TPosition::A1, 0, 2048), b1(TPosition::A1, 65536, 2048);
          const LocalTensor<float> a2(TPosition::A2, 0, 2048), b2(TPosition::B2, 0, 2048),
              c(TPosition::CO1, 0, 2048);
          load_nz(a1, global<float>(gm.in), s.m, s.k);
          load_panels(b1, global<float>(gm.in)[kB], s.k, s.n);
          hand_over<HardEvent::MTE2_MTE1>();
          to_l0a(a2, a1, s);
          for (uint32_t i = 0; i < 2; ++i) {
            LoadDataWithTranspose(b2[i * 6 * 128], b1, LoadData2dTransposeParams(i * 3, 3, 1, 0, 2));
          }
          hand_over<HardEvent::MTE1_M>();
          Mmad(c, a2, b2, MmadParams(s.m, s.n, s.k, 0, false, true));
          hand_over<HardEvent::M_FIX>();
          store(gm, c, s, Out::kRows);
        });
      },
      equals(s, Out::kRows));
}

void add_single_row(Registry& r) {
  r.legal(
      "mmad_single_row_without_gemv",
      [](const Gm& gm) {
        on_aic([&] {
          const Shape row = {1, 16, 16, false, true};
          const LocalTensor<half> a1(TPosition::A1, 0, 256), b1(TPosition::A1, 1024, 256);
          const LocalTensor<half> a2(TPosition::A2, 0, 256), b2(TPosition::B2, 0, 256);
          const LocalTensor<float> c(TPosition::CO1, 0, 256);
          load_nz(a1, global<half>(gm.in16), 1, 16);
          load_nz(b1, global<half>(gm.in16)[kB], 16, 16);
          hand_over<HardEvent::MTE2_MTE1>();
          to_l0a(a2, a1, row);
          to_l0b(b2, b1, row);
          hand_over<HardEvent::MTE1_M>();
          MmadParams params(1, 16, 16, 0, false, true);
          params.disableGemv = true;
          Mmad(c, a2, b2, params);
          hand_over<HardEvent::M_FIX>();
          store(gm, c, row, Out::kRows);
        });
      },
      equals({1, 16, 16, false, true}, Out::kRows));
}
#endif

}  // namespace

void add_legal_cube(Registry& registry) {
  add_products<float>(registry, "float");
  add_products<half>(registry, "half");
  add_products<bfloat16_t>(registry, "bf16");
  add_stores(registry);
  add_hf32(registry);
#if __NPU_ARCH__ == 3510
  add_old_loads(registry);
  add_single_row(registry);
#endif
}

}  // namespace planted
