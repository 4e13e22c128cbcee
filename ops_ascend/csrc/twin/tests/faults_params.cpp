// faults_params.cpp -- ranges, units and types of the parameters of moves.
#include "planted.h"

namespace planted {
namespace {

void copy_ranges(Registry& r) {
  r.fault("copy_block_count", "blockCount (5000) must be at most 4095", [](const Gm& gm) {
    on_aiv([&] { DataCopy(ub(0), global<float>(gm.in), DataCopyParams(5000, 1, 0, 0)); });
  });
  r.fault("copy_gap_wraps", "srcGap (70000) must be at most 65535", [](const Gm& gm) {
    on_aiv([&] {
      const int32_t gap = 70000;
      DataCopyParams params(2, 1, 0, 0);
      params.srcGap = gap;
      DataCopy(ub(0), global<float>(gm.in), params);
    });
  });
}

void pad_ranges(Registry& r) {
  r.fault("pad_block_count", "blockCount (4096) must be at most 4095", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {4096, 4, 0, 0, 0}, {false, 0, 0, 0.0f}); });
  });
  r.fault("pad_block_bytes", "blockLen (2097152) must be at most 2097151", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {1, 2097152, 0, 0, 0}, {false, 0, 0, 0.0f}); });
  });
  r.fault("pad_partial_element", "blockLen (6) must be a multiple of the element's bytes", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {1, 6, 0, 0, 0}, {false, 0, 0, 0.0f}); });
  });
  r.fault("pad_too_wide", "rightPadding in bytes (36) must be at most 32", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {1, 4, 0, 0, 0}, {true, 0, 9, 0.0f}); });
  });
  r.fault("pad_reserved_field", "rsv (1) must be 0", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {1, 4, 0, 0, 1}, {false, 0, 0, 0.0f}); });
  });
#if __NPU_ARCH__ == 3510
  r.fault("pad_negative_gap", "srcStride (-5) must be at least -4", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {2, 4, -5, 0, 0}, {false, 0, 0, 0.0f}); });
  });
  r.fault("pad_ub_gap", "dstStride (65536) must be at most 65535", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {2, 4, 0, 65536, 0}, {false, 0, 0, 0.0f}); });
  });
#else
  r.fault("pad_negative_gap", "srcStride (-4) must be at least 0", [](const Gm& gm) {
    on_aiv([&] { DataCopyPad(ub(0), global<float>(gm.in), {2, 4, -4, 0, 0}, {false, 0, 0, 0.0f}); });
  });
#endif
}

void fractal_ranges(Registry& r) {
#if __NPU_ARCH__ == 2201
  r.fault("nd2nz_pitch_wraps", "srcDValue (70000) must be at most 65535", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 1024), global<float>(gm.in),
               Nd2NzParams(1, 2, 8, 0, 70000, 16, 1, 0));
    });
  });
  r.fault("nd2nz_matrix_stride", "dstNzMatrixStride (16392) must be at most 16384", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 1024), global<float>(gm.in),
               Nd2NzParams(2, 2, 8, 64, 8, 16, 1, 16392));
    });
  });
#endif
  r.fault("nd2nz_rows", "nValue (16385) must be at most 16384", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 1024), global<float>(gm.in),
               Nd2NzParams(1, 16385, 8, 0, 8, 16, 1, 0));
    });
  });
  r.fault("nd2nz_column_stride_zero", "dstNzC0Stride (0) must be at least 1", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 1024), global<float>(gm.in),
               Nd2NzParams(1, 2, 8, 0, 8, 0, 1, 0));
    });
  });
  r.fault("nd2nz_overlap", "must not be written twice by one move", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 4096), global<float>(gm.in),
               Nd2NzParams(1, 16, 32, 0, 32, 8, 1, 0));
    });
  });
  r.fault("nd2nz_matrix_alignment", "must be a whole number of 32-byte blocks", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 4096), global<float>(gm.in),
               Nd2NzParams(2, 16, 8, 128, 8, 16, 1, 129));
    });
  });
}

void other_moves(Registry& r) {
  r.fault("ub_copy_overlap", "must not overlap src", [](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 128);
      PipeBarrier<PIPE_V>();
      DataCopy(ub(0)[32], ub(0), 64);
    });
  });
  r.fault("atomic_type_differs", "must be the type of SetAtomicAdd (float)", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub<half>(0), static_cast<half>(1), 64);
      hand_over<HardEvent::V_MTE3>();
      SetAtomicAdd<float>();
      DataCopy(global<half>(gm.out16), ub<half>(0), 64);
    });
  });
  r.fault("fill_repeats", "repeatTimes (40000) must be at most 32767", [](const Gm&) {
    on_aic([&] { Fill(LocalTensor<float>(TPosition::A1, 0, 1024), {40000, 1, 0, 0.0f}); });
  });
}

}  // namespace

void add_parameter_faults(Registry& registry) {
  copy_ranges(registry);
  pad_ranges(registry);
  fractal_ranges(registry);
  other_moves(registry);
}

}  // namespace planted
