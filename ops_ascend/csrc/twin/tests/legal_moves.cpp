// legal_moves.cpp -- what the moves do, number by number.
#include <cstdio>

#include "planted.h"

namespace planted {
namespace {

std::string differs(const char* what, uint64_t index, double got, double want) {
  char text[160];
  std::snprintf(text, sizeof(text), "%s[%llu] is %g, must be %g", what,
                static_cast<unsigned long long>(index), got, want);
  return text;
}

void round_trips(Registry& r) {
  r.legal(
      "copy_contiguous",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopy(ub(0), global<float>(gm.in)[3], 512);
          hand_over<HardEvent::MTE2_V>();
          DataCopy(ub(4096), ub(0), 512);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out)[5], ub(4096), 512);
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 512; ++i) {
          if (h.out[5 + i] != h.in[3 + i]) return differs("out", 5 + i, h.out[5 + i], h.in[3 + i]);
        }
        return h.out[4] != -7.0f || h.out[517] != -7.0f ? "written outside" : "";
      });
  r.legal(
      "copy_strided",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopy(ub(0), global<float>(gm.in),
                   DataCopyParams(3, 2, 1, 3));  // 16 floats, gaps of 8 and 24 floats
          hand_over<HardEvent::MTE2_MTE3>();
          DataCopy(global<float>(gm.out), ub(0), DataCopyParams(3, 2, 3, 2));
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t b = 0; b < 3; ++b) {
          for (uint32_t i = 0; i < 16; ++i) {
            if (h.out[b * 32 + i] != h.in[b * 24 + i])
              return differs("out", b * 32 + i, h.out[b * 32 + i], h.in[b * 24 + i]);
          }
        }
        return h.out[16] != -7.0f ? "written outside" : "";
      });
}

void pad_round_trip(Registry& r) {
  r.legal(
      "pad_round_trip",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopyPad(ub<half>(0), global<half>(gm.in16)[1], {5, 14, 6, 2, 0},
                      {false, 0, 0, static_cast<half>(0)});
          hand_over<HardEvent::MTE2_MTE3>();
          DataCopyPad(global<half>(gm.out16), ub<half>(0), {5, 14, 2, 4, 0});
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t b = 0; b < 5; ++b) {
          for (uint32_t i = 0; i < 7; ++i) {
            const half got = h.out16[b * 9 + i], want = h.in16[1 + b * 10 + i];
            if (got != want)
              return differs("out16", b * 9 + i, static_cast<float>(got), static_cast<float>(want));
          }
        }
        return h.out16[7] != static_cast<half>(-7) || h.out16[8] != static_cast<half>(-7) ? "written outside"
                                                                                          : "";
      });
}

void padding(Registry& r) {
  r.legal(
      "pad_values",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopyPad(ub(0), global<float>(gm.in), {2, 12, 0, 0, 0},
                      {true, 2, 1, 9.0f});  // 2 + 3 + 1, 2 dummies
          DataCopyPad(ub(4096), global<float>(gm.in), {2, 12, 0, 0, 0},
                      {false, 0, 0, 9.0f});  // 3, 5 dummies = first element
          hand_over<HardEvent::MTE2_MTE3>();
          DataCopy(global<float>(gm.out), ub(0), 16);
          DataCopy(global<float>(gm.out)[16], ub(4096), 16);
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t b = 0; b < 2; ++b) {
          for (uint32_t i = 0; i < 8; ++i) {
            const float padded = i >= 2 && i < 5 ? h.in[b * 3 + i - 2] : 9.0f;
            const float plain = i < 3 ? h.in[b * 3 + i] : h.in[b * 3];
            if (h.out[b * 8 + i] != padded) return differs("padded", b * 8 + i, h.out[b * 8 + i], padded);
            if (h.out[16 + b * 8 + i] != plain)
              return differs("plain", b * 8 + i, h.out[16 + b * 8 + i], plain);
          }
        }
        return "";
      });
}

void repeats_and_sums(Registry& r) {
#if __NPU_ARCH__ == 3510
  r.legal(
      "pad_repeats_one_burst",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopyPad(ub(0), global<float>(gm.in), {3, 32, -32, 0, 0}, {false, 0, 0, 0.0f});
          hand_over<HardEvent::MTE2_MTE3>();
          DataCopy(global<float>(gm.out), ub(0), 24);
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 24; ++i) {
          if (h.out[i] != h.in[i % 8]) return differs("out", i, h.out[i], h.in[i % 8]);
        }
        return "";
      });
#endif
  r.legal(
      "atomic_add",
      [](const Gm& gm) {
        on_aiv([&] {
          Duplicate(ub(0), 1.5f, 64);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out), ub(0), 64);
          PipeBarrier<PIPE_MTE3>();
          SetAtomicAdd<float>();
          DataCopy(global<float>(gm.out), ub(0), 64);
          DisableDmaAtomic();
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 64; ++i) {
          if (h.out[i] != 3.0f) return differs("out", i, h.out[i], 3.0f);
        }
        return "";
      });
}

#if __NPU_ARCH__ == 3510
void between_memories(Registry& r) {
  r.legal(
      "ub_to_l1_to_l0_to_ub",
      [](const Gm& gm) {
        static constexpr FixpipeConfig kToUb = {CO2Layout::ROW_MAJOR, true};
        if ASCEND_IS_AIV {
          if (GetSubBlockIdx() == 0) {
            DataCopy(ub(0), global<float>(gm.in), 256);  // a in nz: [2][16][8]
            Duplicate(ub(8192), 0.0f, 256);              // the identity, written by the scalar unit
            hand_over<HardEvent::V_S>();
            for (uint32_t i = 0; i < 16; ++i) ub(8192).SetValue(i / 8 * 128 + i * 8 + i % 8, 1.0f);
            SetFlag<HardEvent::S_MTE3>(1);
            WaitFlag<HardEvent::S_MTE3>(1);
            hand_over<HardEvent::MTE2_MTE3>();
            DataCopy(LocalTensor<float>(TPosition::A1, 0, 256), ub(0), 256);
            DataCopy(LocalTensor<float>(TPosition::A1, 1024, 256), ub(8192), DataCopyParams(2, 16, 0, 0));
          }
          CrossCoreSetFlag<2, PIPE_MTE3>(1);
          CrossCoreWaitFlag<2, PIPE_MTE3>(2);
          DataCopy(global<float>(gm.out)[128 * GetSubBlockIdx()], ub(16384), 128);
        } else {
          CrossCoreWaitFlag<2, PIPE_MTE1>(1);
          const LocalTensor<float> a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256),
              c(TPosition::CO1, 0, 256);
          LoadData(a, LocalTensor<float>(TPosition::A1, 0, 256),
                   LoadData2DParamsV2(0, 0, 1, 2, 1, 1, false, 0));
          LoadData(b, LocalTensor<float>(TPosition::A1, 1024, 256),
                   LoadData2DParamsV2(0, 0, 1, 2, 1, 1, false, 0));
          hand_over<HardEvent::MTE1_M>();
          Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
          hand_over<HardEvent::M_FIX>();
          FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> params(16, 16, 16, 16);
          params.dualDstCtl = 1;
          Fixpipe<float, float, kToUb>(LocalTensor<float>(TPosition::VECIN, 16384, 128), c, params);
          CrossCoreSetFlag<2, PIPE_FIX>(2);
        }
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 256; ++i) {
          const float want = h.in[i % 16 / 8 * 128 + i / 16 * 8 + i % 8];
          if (h.out[i] != want) return differs("out", i, h.out[i], want);
        }
        return "";
      });
}
#endif

}  // namespace

void add_legal_moves(Registry& registry) {
  round_trips(registry);
  pad_round_trip(registry);
  padding(registry);
  repeats_and_sums(registry);
#if __NPU_ARCH__ == 3510
  between_memories(registry);
#endif
}

}  // namespace planted
