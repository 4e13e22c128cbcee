// faults_cube.cpp -- loads into L0, products and stores from L0C.
#include "planted.h"

namespace planted {
namespace {

const auto l1 = [](uint32_t elements = 1024) { return LocalTensor<half>(TPosition::A1, 0, elements); };
const auto l0a = [](uint32_t elements = 1024) { return LocalTensor<half>(TPosition::A2, 0, elements); };
const auto l0b = [](uint32_t elements = 1024) { return LocalTensor<half>(TPosition::B2, 0, elements); };
const auto l0c = [](uint32_t elements = 1024) { return LocalTensor<float>(TPosition::CO1, 0, elements); };

// Fills 2 KB of L0A and L0B with ones, ready for M.
void ones() {
  Fill(l1(), {1, 64, 0, static_cast<half>(1)});
  hand_over<HardEvent::MTE2_MTE1>();
  LoadData(l0a(), l1(), LoadData2DParams(0, 4, 1, 0, 0, false, 0));
  LoadData(l0b(), l1(), LoadData2DParams(0, 4, 1, 0, 0, false, 0));
  hand_over<HardEvent::MTE1_M>();
}

void loads(Registry& r) {
  r.fault("load_repeats", "repeatTimes (256) must be at most 255", [](const Gm&) {
    on_aic([] { LoadData(l0a(), l1(), LoadData2DParams(0, 256, 1, 0, 0, false, 0)); });
  });
  r.fault("load_transpose_float", "must have 16 bits", [](const Gm&) {
    on_aic([] {
      LoadData(LocalTensor<float>(TPosition::A2, 0, 256), LocalTensor<float>(TPosition::A1, 0, 256),
               LoadData2DParams(0, 1, 1, 0, 0, true, 0));
    });
  });
  r.fault("load_address_mode", "addrMode (1) must be 0", [](const Gm&) {
    on_aic([] { LoadData(l0a(), l1(), LoadData2DParams(0, 1, 1, 0, 0, false, 1)); });
  });
  r.fault("load_transposed_overlap", "must not put a square's second fractal on another repeat's first",
          [](const Gm&) {
            on_aic([] {
              LoadDataWithTranspose(LocalTensor<float>(TPosition::B2, 0, 1024),
                                    LocalTensor<float>(TPosition::A1, 0, 1024),
                                    LoadData2dTransposeParams(0, 2, 1, 0, 0));
            });
          });
#if __NPU_ARCH__ == 3510
  r.fault("load_gap_void", "dstGap (1) must be 0 on 3510", [](const Gm&) {
    on_aic([] { LoadData(l0a(), l1(), LoadData2DParams(0, 2, 1, 0, 1, false, 0)); });
  });
  r.fault("load_start_void", "startIndex (1) must be 0 on 3510",
          [](const Gm&) { on_aic([] { LoadData(l0b(), l1(), LoadData2DParams(1, 1, 1, 0, 0, true, 0)); }); });
  r.fault("load_v2_odd_transpose", "kStep (3) must be even", [](const Gm&) {
    on_aic([] {
      LoadData(LocalTensor<float>(TPosition::A2, 0, 1024), LocalTensor<float>(TPosition::A1, 0, 1024),
               LoadData2DParamsV2(0, 0, 1, 3, 1, 1, true, 0));
    });
  });
  r.fault("load_v2_steps", "mStep (256) must be at most 255", [](const Gm&) {
    on_aic([] { LoadData(l0a(), l1(), LoadData2DParamsV2(0, 0, 256, 1, 1, 1, false, 0)); });
  });
  r.fault("load_v2_columns_collide", "must keep the fractal columns apart", [](const Gm&) {
    on_aic([] { LoadData(l0a(), l1(), LoadData2DParamsV2(0, 0, 2, 2, 2, 1, false, 0)); });
  });
  r.fault("fill_l0a", "must be in L1 on 3510",
          [](const Gm&) { on_aic([] { Fill(l0a(), {1, 1, 0, static_cast<half>(0)}); }); });
#endif
}

void products(Registry& r) {
  r.fault("mmad_m_is_1", "must not be 1", [](const Gm&) {
    on_aic([] { Mmad(l0c(), l0a(), l0b(), MmadParams(1, 16, 16, 0, false, true)); });
  });
  r.fault("mmad_k_too_large", "k (4096) must be at most 4095", [](const Gm&) {
    on_aic([] { Mmad(l0c(), l0a(), l0b(), MmadParams(16, 16, 4096, 0, false, true)); });
  });
  r.fault("mmad_types", "is not supported", [](const Gm&) {
    on_aic([] {
      Mmad(l0c(), l0a(), LocalTensor<float>(TPosition::B2, 0, 256), MmadParams(16, 16, 8, 0, false, true));
    });
  });
  r.fault("mmad_unit_flag", "unitFlag (3) must be 0", [](const Gm&) {
    on_aic([] { Mmad(l0c(), l0a(), l0b(), MmadParams(16, 16, 16, 3, false, true)); });
  });
  r.fault("mmad_reads_unwritten_c", "must be written before it is read", [](const Gm&) {
    on_aic([] {
      ones();
      Mmad(l0c(), l0a(), l0b(), MmadParams(32, 32, 16, 0, false, false));
    });
  });
  r.fault("load_of_unwritten_padding", "LoadData: src (L1 bytes 4416..4607) must be written",
          [](const Gm& gm) {
            on_aic([&] {
              const LocalTensor<half> rows(TPosition::A1, 4096, 256);
              DataCopy(rows, global<half>(gm.in16), Nd2NzParams(1, 10, 16, 0, 16, 16, 1, 0));
              hand_over<HardEvent::MTE2_MTE1>();
              LoadData(l0b(), rows, LoadData2DParams(0, 1, 1, 0, 0, true, 0));
            });
          });
  r.fault("mmad_k_fractal_not_loaded", "Mmad: fm (L0A bytes 2048..2559) must be written", [](const Gm&) {
    on_aic([] {
      ones();
      Mmad(l0c(), l0a(2048), l0b(2048), MmadParams(16, 16, 66, 0, false, true));
    });
  });
}

void accumulation(Registry& r) {
  r.fault("mmad_accumulates_without_barrier", "PipeBarrier<PIPE_M>", [](const Gm&) {
    on_aic([] {
      ones();
      Mmad(l0c(), l0a(), l0b(), MmadParams(32, 32, 16, 0, false, true));
      Mmad(l0c(), l0a(), l0b(), MmadParams(32, 32, 16, 0, false, false));
    });
  });
  r.clean("mmad_accumulates_with_barrier", [](const Gm&) {
    on_aic([] {
      ones();
      Mmad(l0c(), l0a(), l0b(), MmadParams(32, 32, 16, 0, false, true));
      PipeBarrier<PIPE_M>();
      Mmad(l0c(), l0a(), l0b(), MmadParams(32, 32, 16, 0, false, false));
    });
  });
  r.fault("mmad_nan", "must not come from finite input", [](const Gm&) {
    on_aic([] {
      const LocalTensor<float> big(TPosition::A1, 0, 256), a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
      Fill(big, {1, 16, 0, 3e38f});
      Fill(big[128], {1, 16, 0, -3e38f});
      hand_over<HardEvent::MTE2_MTE1>();
      LoadData(a, big, LoadData2DParams(0, 2, 1, 0, 0, false, 0));
      LoadData(b, big, LoadData2DParams(0, 2, 0, 0, 0, false, 0));
      hand_over<HardEvent::MTE1_M>();
      Mmad(l0c(), a, b, MmadParams(16, 16, 16, 0, false, true));
    });
  });
#if __NPU_ARCH__ == 3510
  r.fault("mmad_k_alignment", "kDirectionAlign (1) must be false on 3510", [](const Gm&) {
    on_aic([] {
      MmadParams params(16, 16, 16, 0, false, true);
      params.kDirectionAlign = true;
      Mmad(l0c(), l0a(), l0b(), params);
    });
  });
#endif
}

#if __NPU_ARCH__ == 3510
template <CO2Layout layout>
using Store = FixpipeParamsArch3510<layout>;
constexpr FixpipeConfig kRowsToUb = {CO2Layout::ROW_MAJOR, true};
#else
template <CO2Layout>
using Store = FixpipeParamsV220;
#endif

template <CO2Layout layout>
Store<layout> store(int32_t n, int32_t m, int32_t src_stride, int64_t dst_stride) {
  Store<layout> params;
  params.nSize = n;
  params.mSize = m;
  params.srcStride = src_stride;
  params.dstStride = dst_stride;
  return params;
}

void stores(Registry& r) {
  r.fault("store_columns_nz", "nSize (20) must be a multiple of 16 in NZ", [](const Gm& gm) {
    on_aic([&] {
      Fixpipe<float, float, CFG_NZ>(global<float>(gm.out), l0c(), store<CO2Layout::NZ>(20, 16, 16, 512));
    });
  });
  r.fault("store_split_columns", "must be a multiple of 8 with isChannelSplit", [](const Gm& gm) {
    on_aic([&] {
      auto params = store<CO2Layout::NZ>(20, 16, 16, 512);
      params.isChannelSplit = true;
      Fixpipe<float, float, CFG_NZ>(global<float>(gm.out), l0c(), params);
    });
  });
  r.fault("store_too_wide", "nSize (4096) must be at most 4095", [](const Gm& gm) {
    on_aic([&] {
      Fixpipe<float, float, CFG_ROW_MAJOR>(global<float>(gm.out), l0c(),
                                           store<CO2Layout::ROW_MAJOR>(4096, 16, 16, 4096));
    });
  });
  r.fault("store_rows_collide", "dstStride (16) must be at least nSize", [](const Gm& gm) {
    on_aic([&] {
      Fixpipe<float, float, CFG_ROW_MAJOR>(global<float>(gm.out), l0c(),
                                           store<CO2Layout::ROW_MAJOR>(32, 16, 16, 16));
    });
  });
  r.fault("store_source_stride", "srcStride (20) must be mSize rounded up to 16", [](const Gm& gm) {
    on_aic([&] {
      Fixpipe<float, float, CFG_ROW_MAJOR>(global<float>(gm.out), l0c(),
                                           store<CO2Layout::ROW_MAJOR>(32, 16, 20, 32));
    });
  });
}

void store_contents(Registry& r) {
  r.fault("store_conversion_missing", "quantPre (0) must be F322F16 for half", [](const Gm& gm) {
    on_aic([&] {
      Fixpipe<half, float, CFG_ROW_MAJOR>(global<half>(gm.out16), l0c(),
                                          store<CO2Layout::ROW_MAJOR>(16, 16, 16, 16));
    });
  });
  r.fault("store_unwritten_c", "must be written before it is read", [](const Gm& gm) {
    on_aic([&] {
      Fixpipe<float, float, CFG_ROW_MAJOR>(global<float>(gm.out), l0c(),
                                           store<CO2Layout::ROW_MAJOR>(16, 16, 16, 16));
    });
  });
  r.fault("store_padded_columns", "must be written before it is read", [](const Gm& gm) {
    on_aic([&] {
      ones();
      Mmad(l0c(), l0a(), l0b(), MmadParams(16, 12, 16, 0, false, true));
      hand_over<HardEvent::M_FIX>();
      Fixpipe<float, float, CFG_ROW_MAJOR>(global<float>(gm.out), l0c(),
                                           store<CO2Layout::ROW_MAJOR>(16, 16, 16, 16));
    });
  });
  r.fault("store_many_matrices", "ndNum (2) must be 1", [](const Gm& gm) {
    on_aic([&] {
      auto params = store<CO2Layout::ROW_MAJOR>(16, 16, 16, 16);
#if __NPU_ARCH__ == 3510
      params.params.ndNum = 2;
#else
      params.ndNum = 2;
#endif
      Fixpipe<float, float, CFG_ROW_MAJOR>(global<float>(gm.out), l0c(), params);
    });
  });
}

#if __NPU_ARCH__ == 3510
void stores_to_ub(Registry& r) {
  r.fault("store_to_l1", "config.isToUB (false)", [](const Gm&) {
    on_aic([] {
      Fixpipe<float, float, CFG_ROW_MAJOR>(LocalTensor<float>(TPosition::A1, 0, 256), l0c(),
                                           store<CO2Layout::ROW_MAJOR>(16, 16, 16, 16));
    });
  });
  r.fault("store_dual_odd_rows", "mSize (15) must be even to be split over the AIVs", [](const Gm&) {
    on_aic([] {
      auto params = store<CO2Layout::ROW_MAJOR>(16, 15, 16, 16);
      params.dualDstCtl = 1;
      Fixpipe<float, float, kRowsToUb>(ub(0), l0c(), params);
    });
  });
  r.fault("store_dual_narrow", "nSize (48) must be a multiple of 32 to be split over the AIVs",
          [](const Gm&) {
            on_aic([] {
              auto params = store<CO2Layout::ROW_MAJOR>(48, 16, 16, 48);
              params.dualDstCtl = 2;
              Fixpipe<float, float, kRowsToUb>(ub(0), l0c(), params);
            });
          });
}
#endif

}  // namespace

void add_cube_faults(Registry& registry) {
  loads(registry);
  products(registry);
  accumulation(registry);
  stores(registry);
  store_contents(registry);
#if __NPU_ARCH__ == 3510
  stores_to_ub(registry);
#endif
}

}  // namespace planted
