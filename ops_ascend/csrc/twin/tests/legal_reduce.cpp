// legal_reduce.cpp -- what the reductions compute; launches without cube cores.
#include <cmath>

#include "planted.h"

namespace planted {
namespace {

// 2048 floats at 0, room for sums at 8192 that holds fives; stores 512 floats from there.
Kernel on_sums(const std::function<void()>& body) {
  return [body](const Gm& gm) {
    on_aiv([&] {
      DataCopy(ub(0, 2048), global<float>(gm.in), 2048);
      hand_over<HardEvent::MTE2_V>();
      Duplicate(ub(8192), 5.0f, 1024);
      PipeBarrier<PIPE_V>();
      body();
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.out), ub(8192), 512);
    });
  };
}

// The numbers of the tests are multiples of 1/32, so every order of addition gives the same sum.
float sum(const float* x, uint32_t n) {
  float total = 0;
  for (uint32_t i = 0; i < n; ++i) total += x[i];
  return total;
}

Check gives(const std::function<float(const float*, uint32_t)>& want) {
  return [want](const Host& h) -> std::string {
    for (uint32_t i = 0; i < 512; ++i) {
      const float expected = want(h.in.data(), i);
      if (h.out[i] != expected) {
        return "out[" + std::to_string(i) + "] is " + std::to_string(h.out[i]) + ", must be " +
               std::to_string(expected);
      }
    }
    return "";
  };
}

// What is left where a group has no chosen lane.
constexpr float kUnchosen = twin::kIs3510 ? 0.0f : 5.0f;

void blocks(Registry& r) {
  r.legal("block_sums", on_sums([] { BlockReduceSum(ub(8192), ub(0, 2048), 32, 64, 1, 1, 8); }),
          gives([](const float* x, uint32_t i) { return i < 256 ? sum(x + 8 * i, 8) : 5.0f; }));
  r.legal("block_sums_partial_mask", on_sums([] { BlockReduceSum(ub(8192), ub(0, 2048), 32, 37, 1, 1, 8); }),
          gives([](const float* x, uint32_t i) {
            const uint32_t group = i % 8;
            if (i >= 256) return 5.0f;
            return group < 5 ? sum(x + 8 * i, group == 4 ? 5 : 8) : kUnchosen;
          }));
  r.legal("block_sums_mask_bits", on_sums([] {
            const uint64_t mask[2] = {0xff0000ff0000000fULL, 0};
            BlockReduceSum(ub(8192), ub(0, 2048), 32, mask, 1, 1, 8);
          }),
          gives([](const float* x, uint32_t i) {
            if (i >= 256) return 5.0f;
            if (i % 8 == 0) return sum(x + 8 * i, 4);
            return i % 8 == 4 || i % 8 == 7 ? sum(x + 8 * i, 8) : kUnchosen;
          }));
  r.legal("block_sums_strides", on_sums([] { BlockReduceSum(ub(8192), ub(0, 2048), 8, 64, 2, 2, 16); }),
          gives([](const float* x, uint32_t i) {
            return i < 128 && i / 8 % 2 == 0 ? sum(x + i / 16 * 128 + i % 8 * 16, 8) : 5.0f;
          }));
  r.legal("block_sums_twice", on_sums([] {  // 64 lanes to one, 8 rows per repeat
            BlockReduceSum(ub(12288), ub(0, 2048), 32, 64, 1, 1, 8);
            PipeBarrier<PIPE_V>();
            BlockReduceSum(ub(8192), ub(12288), 4, 64, 1, 1, 8);
          }),
          gives([](const float* x, uint32_t i) { return i < 32 ? sum(x + 64 * i, 64) : 5.0f; }));
}

void repeats(Registry& r) {
  r.legal("repeat_sums", on_sums([] { WholeReduceSum(ub(8192), ub(0, 2048), 64, 32, 1, 1, 8); }),
          gives([](const float* x, uint32_t i) { return i < 32 ? sum(x + 64 * i, 64) : 5.0f; }));
  r.legal("repeat_sums_unaligned", on_sums([] {  // sums 3, 5, 7, ...
            WholeReduceSum(ub(8192)[3], ub(0, 2048), 11, 32, 2, 1, 8);
          }),
          gives([](const float* x, uint32_t i) {
            return i >= 3 && i < 67 && i % 2 == 1 ? sum(x + (i - 3) / 2 * 64, 11) : 5.0f;
          }));
  r.legal("repeat_sums_mask_bits", on_sums([] {
            const uint64_t mask[2] = {uint64_t{1} << 63 | 1, 0};
            WholeReduceSum(ub(8192), ub(0, 2048), mask, 32, 1, 1, 8);
          }),
          gives([](const float* x, uint32_t i) { return i < 32 ? x[64 * i] + x[64 * i + 63] : 5.0f; }));
}

void halves(Registry& r) {
  r.legal(
      "half_sums",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopy(ub<half>(0), global<half>(gm.in16), 1024);
          hand_over<HardEvent::MTE2_V>();
          BlockReduceSum(ub<half>(4096, 64), ub<half>(0), 8, 128, 1, 1, 8);
          WholeReduceSum(ub<half>(5120, 16), ub<half>(0), 128, 8, 1, 1, 8);
          PipeBarrier<PIPE_V>();
          Cast(ub(8192, 64), ub<half>(4096, 64), RoundMode::CAST_NONE, 64);
          Cast(ub(9216, 8), ub<half>(5120, 16), RoundMode::CAST_NONE, 8);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out), ub(8192, 64), 64);
          DataCopy(global<float>(gm.out)[64], ub(9216, 8), 8);
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 72; ++i) {
          const float want = i < 64 ? sum(h.in.data() + 16 * i, 16) : sum(h.in.data() + 128 * (i - 64), 128);
          if (h.out[i] != want) return "out[" + std::to_string(i) + "]";
        }
        return "";
      });
  r.legal(
      "half_sums_round_in_pairs",  // 2049 is no half: (2048 + 1) + (1 + 1) is 2050, (2048 + 1 + 1) + 1 is 2048
      [](const Gm& gm) {
        on_aiv([&] {
          const float values[4] = {2048.0f, 1.0f, 1.0f, 1.0f};
          for (uint32_t i = 0; i < 4; ++i) ub<half>(0, 16).SetValue(i, static_cast<half>(values[i]));
          hand_over<HardEvent::S_V>();
          Duplicate(ub<half>(64, 16), static_cast<half>(0), 16);
          PipeBarrier<PIPE_V>();
          BlockReduceSum(ub<half>(64, 16), ub<half>(0, 16), 1, 4, 1, 1, 8);
          PipeBarrier<PIPE_V>();
          Cast(ub(128, 8), ub<half>(64, 16), RoundMode::CAST_NONE, 8);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out), ub(128, 8), 8);
        });
      },
      [](const Host& h) -> std::string { return h.out[0] == 2050.0f ? "" : std::to_string(h.out[0]); });
}

}  // namespace

void add_legal_reduce(Registry& registry) {
  blocks(registry);
  repeats(registry);
  halves(registry);
  registry.vector_only(
      "vector_only_blocks",
      [](const Gm& gm) {
        const auto me = static_cast<uint32_t>(GetBlockIdx());
        if ASCEND_IS_AIC
          ub(0).SetValue(0, 0.0f);  // a cube core that ran would be refused
        const bool right =
            GetBlockNum() == 50 && GetSubBlockIdx() == 0 && GetSubBlockNum() == 1 && GetTaskRatio() == 1;
        Duplicate(ub(0, 64), static_cast<float>(right ? me : 1000), 64);
        hand_over<HardEvent::V_MTE3>();
        DataCopy(global<float>(gm.out)[me * 64], ub(0, 64), 64);
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 50 * 64; ++i) {
          if (h.out[i] != static_cast<float>(i / 64)) return "out[" + std::to_string(i) + "]";
        }
        return "";
      },
      "", 50);
  registry.vector_only(
      "vector_only_flag", [](const Gm&) { CrossCoreSetFlag<2, PIPE_MTE3>(0); }, nullptr,
      "must not be called in a vector-only launch", 1);
  registry.vector_only(
      "vector_only_race_between_blocks",
      [](const Gm& gm) {
        Duplicate(ub(0, 64), 1.0f, 64);
        hand_over<HardEvent::V_MTE3>();
        DataCopy(global<float>(gm.out), ub(0, 64), 64);
      },
      nullptr, "between blocks", 2);
}

}  // namespace planted
