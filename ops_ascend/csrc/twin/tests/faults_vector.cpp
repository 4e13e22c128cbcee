// faults_vector.cpp -- repeats, masks, strides, overlap, types and round modes of vector instructions; NaN.
#include "planted.h"

namespace planted {
namespace {

// Three written operands of 1024 floats each.
void operands() {
  Duplicate(ub(0), 1.0f, 1024);
  Duplicate(ub(4096), 2.0f, 1024);
  Duplicate(ub(8192), 3.0f, 1024);
  PipeBarrier<PIPE_V>();
}

void repeats(Registry& r) {
  r.fault("repeat_256", "repeatTime (256) must be at most 255",
          [](const Gm&) { on_aiv([&] { Add(ub(0), ub(4096), ub(8192), 64, 256, {1, 1, 1, 8, 8, 8}); }); });
  r.fault("repeat_0", "repeatTime (0) must be at least 1",
          [](const Gm&) { on_aiv([&] { Exp(ub(0), ub(4096), 64, 0, {1, 1, 8, 8}); }); });
  r.fault("count_0", "count (0) must be at least 1",
          [](const Gm&) { on_aiv([&] { Add(ub(0), ub(4096), ub(8192), 0); }); });
  r.fault("mask_too_large", "mask (65) must be at most 64",
          [](const Gm&) { on_aiv([&] { Muls(ub(0), ub(4096), 2.0f, 65, 1, {1, 1, 8, 8}); }); });
  r.fault("mask_bits_empty", "mask (0) must select at least one lane", [](const Gm&) {
    on_aiv([&] {
      uint64_t mask[2] = {0, 1};
      Muls(ub(0), ub(4096), 2.0f, mask, 1, {1, 1, 8, 8});
    });
  });
  r.fault("repeat_stride_300", "src1RepStride (300) must be at most 255", [](const Gm&) {
    on_aiv([&] {
      const int32_t stride = 300;
      BinaryRepeatParams params;
      params.src1RepStride = stride;
      Mul(ub(0), ub(4096), ub(8192), 64, 2, params);
    });
  });
  r.fault("block_stride_0", "dstBlkStride (0) must be at least 1",
          [](const Gm&) { on_aiv([&] { Adds(ub(0), ub(4096), 1.0f, 64, 1, {0, 1, 8, 8}); }); });
  r.fault("copy_repeat_stride", "srcRepeatSize (5000) must be at most 4095",
          [](const Gm&) { on_aiv([&] { Copy(ub(0), ub(4096), 64, 1, {1, 1, 8, 5000}); }); });
}

void overlap(Registry& r) {
  r.fault("overlap_inside_repeat", "must be exactly dst inside a repeat or not overlap it", [](const Gm&) {
    on_aiv([&] {
      operands();
      Add(ub(0)[8], ub(0), ub(4096), 64, 1, {1, 1, 1, 8, 8, 8});
    });
  });
  r.fault("overlap_between_repeats", "must not read what an earlier repeat wrote to dst", [](const Gm&) {
    on_aiv([&] {
      operands();
      Add(ub(0)[64], ub(0), ub(4096), 64, 4, {1, 1, 1, 8, 8, 8});
    });
  });
  r.fault("overlap_in_count_form", "must be the same tensor or not overlap", [](const Gm&) {
    on_aiv([&] {
      operands();
      Muls(ub(0)[64], ub(0), 2.0f, 512);
    });
  });
  r.fault("repeats_write_twice", "must not let a repeat write what another wrote", [](const Gm&) {
    on_aiv([&] {
      operands();
      Muls(ub(0), ub(4096), 2.0f, 64, 2, {1, 1, 4, 8});
    });
  });
  r.fault("cast_in_place", "must be the same tensor or not overlap", [](const Gm&) {
    on_aiv([&] {
      operands();
      Cast(ub<half>(0), ub(0), RoundMode::CAST_RINT, 64);
    });
  });
  r.fault("brcb_overlap", "must not overlap dst", [](const Gm&) {
    on_aiv([&] {
      operands();
      Brcb(ub(0), ub(0), 2, {1, 8});
    });
  });
  r.fault("mul_add_running_sum", "must not let a repeat write what another wrote", [](const Gm&) {
    on_aiv([&] {
      operands();
      MulAddDst(ub(0), ub(4096), ub(8192), 64, 4, {1, 1, 1, 0, 8, 8});
    });
  });
  r.fault("mul_add_never_written", "dst (UB bytes 12288..12543) must be written before it is read",
          [](const Gm&) {
            on_aiv([&] {
              operands();
              MulAddDst(ub(12288), ub(4096), ub(8192), 64);
            });
          });
  r.clean("in_place", [](const Gm&) {
    on_aiv([&] {
      operands();
      Add(ub(0), ub(0), ub(4096), 64, 4, {1, 1, 1, 8, 8, 8});
    });
  });
  r.clean("running_sum", [](const Gm&) {
    on_aiv([&] {
      operands();
      Add(ub(0), ub(4096), ub(0), 64, 16, {1, 1, 1, 0, 8, 0});
    });
  });
}

void types(Registry& r) {
#if __NPU_ARCH__ == 2201
  r.fault("bf16_arithmetic", "element type (bfloat16_t) is not supported on 2201", [](const Gm&) {
    on_aiv([&] { Add(ub<bfloat16_t>(0), ub<bfloat16_t>(4096), ub<bfloat16_t>(8192), 64); });
  });
  r.fault("cast_pair", "half to bfloat16_t", [](const Gm&) {
    on_aiv([&] { Cast(ub<bfloat16_t>(0), ub<half>(4096), RoundMode::CAST_RINT, 64); });
  });
#else
  r.fault("cast_int_none", "roundMode (0) must be one that int32_t to float allows",
          [](const Gm&) { on_aiv([&] { Cast(ub(0), ub<int32_t>(4096), RoundMode::CAST_NONE, 64); }); });
#endif
  r.fault("div_integers", "is not supported on", [](const Gm&) {
    on_aiv([&] { Div(ub<bfloat16_t>(0), ub<bfloat16_t>(4096), ub<bfloat16_t>(8192), 64); });
  });
  r.fault("exp_integers", "element type (int32_t) is not supported",
          [](const Gm&) { on_aiv([&] { Exp(ub<int32_t>(0), ub<int32_t>(4096), 64); }); });
  r.fault("cast_mode_widening", "roundMode (1) must be one that half to float allows",
          [](const Gm&) { on_aiv([&] { Cast(ub(0), ub<half>(4096), RoundMode::CAST_RINT, 64); }); });
  r.fault("cast_mode_bf16_none", "roundMode (0) must be one that float to bfloat16_t allows",
          [](const Gm&) { on_aiv([&] { Cast(ub<bfloat16_t>(0), ub(4096), RoundMode::CAST_NONE, 64); }); });
  r.fault("cast_mode_odd", "roundMode (6) must be one that float to int32_t allows",
          [](const Gm&) { on_aiv([&] { Cast(ub<int32_t>(0), ub(4096), RoundMode::CAST_ODD, 64); }); });
  r.fault("gather_offset", "srcOffset (2) must be a multiple of the element's bytes", [](const Gm&) {
    on_aiv([&] {
      operands();
      Duplicate(ub<int32_t>(12288), 2, 64);
      PipeBarrier<PIPE_V>();
      Gather(ub(16384), ub(0), ub<uint32_t>(12288), 0, 64);
    });
  });
  r.fault("gather_past_tensor", "must stay inside the tensor", [](const Gm&) {
    on_aiv([&] {
      operands();
      Duplicate(ub<int32_t>(12288), 4096, 64);
      PipeBarrier<PIPE_V>();
      Gather(ub(16384), ub(0), ub<uint32_t>(12288), 0, 64);
    });
  });
}

void nan(Registry& r) {
  r.fault("nan_from_log", "must not come from finite input", [](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), -1.0f, 64);
      PipeBarrier<PIPE_V>();
      Ln(ub(4096), ub(0), 64);
    });
  });
  r.fault("nan_from_division", "must not come from finite input", [](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), 0.0f, 64);
      PipeBarrier<PIPE_V>();
      Div(ub(4096), ub(0), ub(0), 64);
    });
  });
  r.clean("infinity_is_not_nan", [](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), 100.0f, 64);
      PipeBarrier<PIPE_V>();
      Exp(ub(4096), ub(0), 64);
    });
  });
}

}  // namespace

void add_vector_faults(Registry& registry) {
  repeats(registry);
  overlap(registry);
  types(registry);
  nan(registry);
}

}  // namespace planted
