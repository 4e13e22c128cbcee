// legal_vector.cpp -- what the vector instructions compute.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "planted.h"

namespace planted {
namespace {

// Loads 512 floats (x at 0, y at 4096), runs `body`, stores 512 floats from 8192.
Kernel on_floats(const std::function<void()>& body) {
  return [body](const Gm& gm) {
    on_aiv([&] {
      DataCopy(ub(0), global<float>(gm.in), 512);
      DataCopy(ub(4096), global<float>(gm.in)[512], 512);
      hand_over<HardEvent::MTE2_V>();
      Duplicate(ub(8192), 5.0f, 1024);
      PipeBarrier<PIPE_V>();
      body();
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.out), ub(8192), 512);
    });
  };
}

// out[i] must be want(x, y, i).
Check gives(const std::function<float(const float*, const float*, uint32_t)>& want, float tolerance = 0.0f) {
  return [want, tolerance](const Host& h) -> std::string {
    for (uint32_t i = 0; i < 512; ++i) {
      const float expected = want(h.in.data(), h.in.data() + 512, i);
      if (!(std::fabs(h.out[i] - expected) <= tolerance * std::fabs(expected))) {
        char text[120];
        std::snprintf(text, sizeof(text), "out[%u] is %g, must be %g", i, h.out[i], expected);
        return text;
      }
    }
    return "";
  };
}

using F = const float*;

void elementwise(Registry& r) {
  r.legal("add", on_floats([] { Add(ub(8192), ub(0), ub(4096), 512); }),
          gives([](F x, F y, uint32_t i) { return x[i] + y[i]; }));
  r.legal("sub_odd_count", on_floats([] { Sub(ub(8192), ub(0), ub(4096), 509); }),
          gives([](F x, F y, uint32_t i) { return i < 509 ? x[i] - y[i] : 5.0f; }));
  r.legal("mul", on_floats([] { Mul(ub(8192), ub(0), ub(4096), 64, 8, {1, 1, 1, 8, 8, 8}); }),
          gives([](F x, F y, uint32_t i) { return x[i] * y[i]; }));
  r.legal("max_min", on_floats([] {
            Max(ub(8192), ub(0), ub(4096), 512);
            PipeBarrier<PIPE_V>();
            Mins(ub(8192), ub(8192), 0.25f, 512);
          }),
          gives([](F x, F y, uint32_t i) { return std::min(std::max(x[i], y[i]), 0.25f); }));
  r.legal("div_exp", on_floats([] {
            Exp(ub(12288), ub(4096), 512);
            PipeBarrier<PIPE_V>();
            Div(ub(8192), ub(0), ub(12288), 512);
          }),
          gives([](F x, F y, uint32_t i) { return x[i] / std::exp(y[i]); }, 1e-6f));
  r.legal("ln_sqrt_abs", on_floats([] {
            Abs(ub(8192), ub(0), 512);
            PipeBarrier<PIPE_V>();
            Adds(ub(8192), ub(8192), 1.0f, 64, 8, {1, 1, 8, 8});
            PipeBarrier<PIPE_V>();
            Sqrt(ub(8192), ub(8192), 512);
            PipeBarrier<PIPE_V>();
            Ln(ub(8192), ub(8192), 512);
          }),
          gives([](F x, F, uint32_t i) { return std::log(std::sqrt(std::fabs(x[i]) + 1.0f)); }, 1e-5f));
  r.legal("relu_maxs", on_floats([] {
            Relu(ub(8192), ub(0), 512);
            PipeBarrier<PIPE_V>();
            Maxs(ub(8192), ub(8192), 0.125f, 512);
          }),
          gives([](F x, F, uint32_t i) { return std::max(x[i], 0.125f); }));
  r.legal("mul_add", on_floats([] { MulAddDst(ub(8192), ub(0), ub(4096), 509); }),
          gives([](F x, F y, uint32_t i) { return i < 509 ? 5.0f + x[i] * y[i] : 5.0f; }));
  r.legal("mul_add_row", on_floats([] { MulAddDst(ub(8192), ub(0), ub(4096), 48, 8, {1, 1, 1, 8, 8, 0}); }),
          gives([](F x, F y, uint32_t i) { return i % 64 < 48 ? 5.0f + x[i] * y[i % 64] : 5.0f; }));
  r.legal("mul_add_in_place", on_floats([] {
            const uint64_t mask[2] = {0xff, 0};
            MulAddDst(ub(8192), ub(8192), ub(0), mask, 8, {1, 1, 1, 8, 8, 8});
          }),
          gives([](F x, F, uint32_t i) { return i % 64 < 8 ? 5.0f + 5.0f * x[i] : 5.0f; }));
  r.legal("mul_add_halves", on_floats([] {
            Cast(ub<half>(12288), ub(0), RoundMode::CAST_RINT, 512);
            PipeBarrier<PIPE_V>();
            MulAddDst(ub(8192), ub<half>(12288), ub<half>(12288), 64, 8, {1, 1, 1, 8, 4, 4});
          }),
          gives([](F x, F, uint32_t i) { return 5.0f + x[i] * x[i]; }));
  r.legal("axpy", on_floats([] { Axpy(ub(8192), ub(0), 0.5f, 512); }),
          gives([](F x, F, uint32_t i) { return 5.0f + 0.5f * x[i]; }));
}

void shapes(Registry& r) {
  r.legal("row_times_matrix", on_floats([] { Mul(ub(8192), ub(0), ub(4096), 64, 8, {1, 1, 1, 8, 8, 0}); }),
          gives([](F x, F y, uint32_t i) { return x[i] * y[i % 64]; }));
  r.legal("column_times_matrix", on_floats([] {
            Brcb(ub(12288), ub(4096), 1, {1, 8});  // 8 rows: y[r] in every lane of block r
            PipeBarrier<PIPE_V>();
            Mul(ub(8192), ub(0), ub(12288), 64, 8, {1, 1, 0, 8, 8, 1});
          }),
          gives([](F x, F y, uint32_t i) { return x[i] * y[i / 64]; }));
  r.legal("mask_bits", on_floats([] {
            uint64_t mask[2] = {0xf0f00000000000ffULL, 0};
            Add(ub(8192), ub(0), ub(4096), mask, 8, {1, 1, 1, 8, 8, 8});
          }),
          gives([](F x, F y, uint32_t i) {
            return (0xf0f00000000000ffULL >> (i % 64) & 1) != 0 ? x[i] + y[i] : 5.0f;
          }));
  r.legal("mask_count_tail", on_floats([] { Muls(ub(8192), ub(0), 2.0f, 37, 8, {1, 1, 8, 8}); }),
          gives([](F x, F, uint32_t i) { return i % 64 < 37 ? 2.0f * x[i] : 5.0f; }));
  r.legal("block_strides", on_floats([] { Adds(ub(8192), ub(0), 1.0f, 64, 4, {2, 1, 16, 8}); }),
          gives([](F x, F, uint32_t i) { return i / 8 % 2 == 0 ? x[i / 16 * 8 + i % 8] + 1.0f : 5.0f; }));
  r.legal("running_sum_of_repeats",
          on_floats([] { Add(ub(8192), ub(0), ub(8192), 64, 8, {1, 1, 1, 0, 8, 0}); }),
          [](const Host& h) -> std::string {
            for (uint32_t i = 0; i < 64; ++i) {
              float sum = 5.0f;
              for (uint32_t k = 0; k < 8; ++k) sum += h.in[k * 64 + i];
              if (h.out[i] != sum) return "lane " + std::to_string(i);
            }
            return "";
          });
  r.legal("copy_masked_form", on_floats([] { Copy(ub(8192), ub(0), 64, 8, {1, 1, 8, 0}); }),
          gives([](F x, F, uint32_t i) { return x[i % 64]; }));
  r.legal("duplicate_strided", on_floats([] { Duplicate(ub(8192), 2.0f, 64, 4, 2, 16); }),
          gives([](F, F, uint32_t i) { return i / 8 % 2 == 0 ? 2.0f : 5.0f; }));
  r.legal("gather_index", on_floats([] {
            CreateVecIndex(ub<int32_t>(12288), 0, 512);
            PipeBarrier<PIPE_V>();
            Muls(ub<int32_t>(12288), ub<int32_t>(12288), -4, 512);
            PipeBarrier<PIPE_V>();
            Adds(ub<int32_t>(12288), ub<int32_t>(12288), 2044, 512);
            PipeBarrier<PIPE_V>();
            Gather(ub(8192), ub(0), ub<uint32_t>(12288), 0, 512);
          }),
          gives([](F x, F, uint32_t i) { return x[511 - i]; }));
}

// Casts 8 given floats with one mode and stores them as floats.
template <typename T>
void cast_case(Registry& r, const char* name, RoundMode mode, std::vector<float> values,
               std::vector<float> want) {
  r.legal(
      name,
      [mode, values](const Gm& gm) {
        on_aiv([&] {
          for (uint32_t i = 0; i < values.size(); ++i) ub(0, 8).SetValue(i, values[i]);
          hand_over<HardEvent::S_V>();
          Cast(ub<T>(4096), ub(0, 8), mode, values.size());
          PipeBarrier<PIPE_V>();
          Cast(ub(8192), ub<T>(4096), std::is_integral_v<T> ? RoundMode::CAST_RINT : RoundMode::CAST_NONE,
               values.size());
          hand_over<HardEvent::V_MTE3>();
          DataCopyPad(global<float>(gm.out), ub(8192),
                      {1, static_cast<uint32_t>(values.size() * 4), 0, 0, 0});
        });
      },
      [want](const Host& h) -> std::string {
        for (uint32_t i = 0; i < want.size(); ++i) {
          if (h.out[i] != want[i]) return "value " + std::to_string(i) + " is " + std::to_string(h.out[i]);
        }
        return "";
      });
}

void casts(Registry& r) {
  const std::vector<float> x = {1.5f, 2.5f, -1.5f, -2.5f, 1.4f, -1.4f, 2.6f, -2.6f};
  cast_case<int32_t>(r, "cast_int_rint", RoundMode::CAST_RINT, x, {2, 2, -2, -2, 1, -1, 3, -3});
  cast_case<int32_t>(r, "cast_int_floor", RoundMode::CAST_FLOOR, x, {1, 2, -2, -3, 1, -2, 2, -3});
  cast_case<int32_t>(r, "cast_int_ceil", RoundMode::CAST_CEIL, x, {2, 3, -1, -2, 2, -1, 3, -2});
  cast_case<int32_t>(r, "cast_int_round", RoundMode::CAST_ROUND, x, {2, 3, -2, -3, 1, -1, 3, -3});
  cast_case<int32_t>(r, "cast_int_trunc", RoundMode::CAST_TRUNC, x, {1, 2, -1, -2, 1, -1, 2, -2});
  cast_case<int32_t>(r, "cast_int_saturates", RoundMode::CAST_RINT, {3e9f, -3e9f},
                     {2147483648.0f, -2147483648.0f});
  // 2049 lies between the halves 2048 and 2050; 1 + 2^-8 between the bfloat16 1 and 1 + 2^-7.
  cast_case<half>(r, "cast_half_rint", RoundMode::CAST_RINT, {2049.0f, 2051.0f, -2049.0f, 1e-8f, 65504.0f},
                  {2048, 2052, -2048, 0, 65504});
  cast_case<half>(r, "cast_half_none", RoundMode::CAST_NONE, {2049.0f, 2051.0f}, {2048, 2052});
  cast_case<half>(r, "cast_half_trunc", RoundMode::CAST_TRUNC, {2049.0f, 2051.0f, -2051.0f},
                  {2048, 2050, -2050});
  cast_case<half>(r, "cast_half_ceil", RoundMode::CAST_CEIL, {2049.0f, -2049.0f}, {2050, -2048});
  cast_case<half>(r, "cast_half_odd", RoundMode::CAST_ODD, {2048.5f, 2049.0f, 2048.0f}, {2050, 2050, 2048});
  cast_case<bfloat16_t>(r, "cast_bf16_rint", RoundMode::CAST_RINT,
                        {1.00390625f, 1.01171875f, -1.00390625f, 3.0f}, {1.0f, 1.015625f, -1.0f, 3.0f});
  cast_case<bfloat16_t>(r, "cast_bf16_floor", RoundMode::CAST_FLOOR, {1.00390625f, -1.00390625f},
                        {1.0f, -1.0078125f});
  cast_case<bfloat16_t>(r, "cast_bf16_round", RoundMode::CAST_ROUND, {1.00390625f, -1.00390625f},
                        {1.0078125f, -1.0078125f});
}

// 2^24 + 1 lies between two floats.
void cast_from_int(Registry& r, const char* name, RoundMode mode, float want) {
  r.legal(
      name,
      [mode](const Gm& gm) {
        on_aiv([&] {
          Duplicate(ub<int32_t>(0), 16777217, 8);
          PipeBarrier<PIPE_V>();
          Cast(ub(4096), ub<int32_t>(0), mode, 8);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out), ub(4096), 8);
        });
      },
      [want](const Host& h) -> std::string { return h.out[3] == want ? "" : std::to_string(h.out[3]); });
}

void halves(Registry& r) {
  cast_from_int(r, "cast_from_int_rint", RoundMode::CAST_RINT, 16777216.0f);
  cast_from_int(r, "cast_from_int_ceil", RoundMode::CAST_CEIL, 16777218.0f);
  r.legal(
      "half_arithmetic",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopy(ub<half>(0), global<half>(gm.in16), 256);
          hand_over<HardEvent::MTE2_V>();
          Mul(ub<half>(4096), ub<half>(0), ub<half>(0), 128, 2, {1, 1, 1, 8, 8, 8});
          PipeBarrier<PIPE_V>();
          Adds(ub<half>(4096), ub<half>(4096), static_cast<half>(0.001), 256);
          PipeBarrier<PIPE_V>();
          Cast(ub(8192), ub<half>(4096), RoundMode::CAST_NONE, 64, 4, {1, 1, 8, 4});
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out), ub(8192), 256);
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 256; ++i) {
          const half square = static_cast<half>(h.in[i] * h.in[i]);
          const half want =
              static_cast<half>(static_cast<float>(square) + static_cast<float>(static_cast<half>(0.001)));
          if (h.out[i] != static_cast<float>(want)) return "out[" + std::to_string(i) + "]";
        }
        return "";
      });
#if __NPU_ARCH__ == 3510
  r.legal("flush_subnormals", on_floats([] {
            Duplicate(ub(12288), -100.0f, 512);
            PipeBarrier<PIPE_V>();
            Exp(ub(8192), ub(12288), 512);
          }),
          gives([](F, F, uint32_t) { return 0.0f; }));
  static constexpr ExpConfig kKeeps = {ExpAlgo::PRECISION_1ULP_FTZ_FALSE};
  r.legal("keep_subnormals", on_floats([] {
            Duplicate(ub(12288), -100.0f, 512);
            PipeBarrier<PIPE_V>();
            Exp<float, kKeeps>(ub(8192), ub(12288), 512);
          }),
          gives([](F, F, uint32_t) { return std::exp(-100.0f); }));
#else
  r.legal("keep_subnormals", on_floats([] {
            Duplicate(ub(12288), -100.0f, 512);
            PipeBarrier<PIPE_V>();
            Exp(ub(8192), ub(12288), 512);
          }),
          gives([](F, F, uint32_t) { return std::exp(-100.0f); }));
#endif
}

}  // namespace

void add_legal_vector(Registry& registry) {
  elementwise(registry);
  shapes(registry);
  casts(registry);
  halves(registry);
}

}  // namespace planted
