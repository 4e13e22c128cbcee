// faults_memory.cpp -- bounds, capacity, alignment, memories, uninitialised bytes.
#include "planted.h"

namespace planted {
namespace {

void bounds(Registry& r) {
  r.fault("gm_read_past_end", "must stay inside the buffer of 65536 bytes",
          [](const Gm& gm) { on_aiv([&] { DataCopy(ub(0), global<float>(gm.in)[kElements - 32], 64); }); });
  r.fault("gm_read_before_start", "must stay inside the buffer", [](const Gm& gm) {
    on_aiv([&] { DataCopy(ub(0), global<float>(gm.in)[static_cast<uint64_t>(-8)], 8); });
  });
  r.fault("gm_pointer_outside_buffers", "SetGlobalBuffer",
          [](const Gm& gm) { on_aiv([&] { global<float>(gm.out + (uint64_t{1} << 40)); }); });
  r.fault("gm_unbound_tensor", "must be bound to memory before use",
          [](const Gm&) { on_aiv([&] { DataCopy(ub(0), GlobalTensor<float>(), 8); }); });
  r.fault("gm_write_to_input", "it is an input", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 0.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.in), ub(0), 64);
    });
  });
  r.fault("gm_pitch_past_end", "must stay inside the buffer", [](const Gm& gm) {
    on_aiv(
        [&] { DataCopyPad(ub(0, 4096), global<float>(gm.in), {3, 32, 40000, 0, 0}, {false, 0, 0, 0.0f}); });
  });
  r.fault("ub_write_past_tensor", "must stay inside the tensor",
          [](const Gm& gm) { on_aiv([&] { DataCopy(ub(0, 32), global<float>(gm.in), 64); }); });
  r.fault("ub_vector_past_tensor", "must stay inside the tensor",
          [](const Gm&) { on_aiv([&] { Duplicate(ub(0, 64), 1.0f, 64, 2, 1, 8); }); });
  r.fault("ub_slice_past_tensor", "must stay inside the tensor of 64 elements",
          [](const Gm&) { on_aiv([&] { ub(0, 64)[72]; }); });
  r.fault("ub_scalar_past_tensor", "must stay inside the tensor",
          [](const Gm&) { on_aiv([&] { ub(0, 64).SetValue(64, 1.0f); }); });
  r.fault("l1_write_past_tensor", "must stay inside the tensor", [](const Gm& gm) {
    on_aic([&] {
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 256), global<float>(gm.in),
               {1, 16, 256, 0, 32, 16, 1, 0});
    });
  });
  r.fault("l0a_write_past_tensor", "must stay inside the tensor", [](const Gm&) {
    on_aic([&] {
      Fill(LocalTensor<float>(TPosition::A1, 0, 1024), {1, 128, 0, 0.0f});
      hand_over<HardEvent::MTE2_MTE1>();
      LoadData(LocalTensor<float>(TPosition::A2, 0, 128), LocalTensor<float>(TPosition::A1, 0, 1024),
               LoadData2DParams(0, 2, 1, 0, 0, false, 0));
    });
  });
}

void capacity(Registry& r) {
  r.fault("ub_capacity", "end in UB",
          [](const Gm&) { on_aiv([&] { ub(192 * 1024 - 256 + (__NPU_ARCH__ == 3510) * 57600, 256); }); });
  r.fault("l1_capacity", "end in L1",
          [](const Gm&) { on_aic([&] { LocalTensor<half>(TPosition::B1, 512 * 1024 - 32, 32); }); });
  r.fault("l0a_capacity", "end in L0A",
          [](const Gm&) { on_aic([&] { LocalTensor<half>(TPosition::A2, 0, 32769 + 15); }); });
  r.fault("l0b_capacity", "end in L0B",
          [](const Gm&) { on_aic([&] { LocalTensor<half>(TPosition::B2, 65536, 16); }); });
  r.fault("l0c_capacity", "end in L0C", [](const Gm&) {
    on_aic([&] { LocalTensor<float>(TPosition::CO1, 0, 32768 * (__NPU_ARCH__ == 3510 ? 2 : 1) + 8); });
  });
  r.clean("capacity_exact", [](const Gm&) {
    on_aic([&] { LocalTensor<float>(TPosition::CO1, 0, 32768), LocalTensor<half>(TPosition::A2, 0, 32768); });
    on_aiv([&] { ub(0, (192 * 1024 - 256) / 4); });
  });
}

void alignment(Registry& r) {
  r.fault("local_address_alignment", "addr (48) must be a multiple of 32 bytes",
          [](const Gm&) { on_aiv([&] { ub(48, 64); }); });
  r.fault("local_length_alignment", "must be a multiple of 32",
          [](const Gm&) { on_aiv([&] { ub(0, 65); }); });
  r.fault("vector_operand_alignment", "src0 address (4) must be a multiple of 32 bytes",
          [](const Gm&) { on_aiv([&] { Add(ub(4096), ub(0)[1], ub(8192), 64); }); });
  r.fault("copy_destination_alignment", "dst address (16) must be a multiple of 32 bytes",
          [](const Gm& gm) { on_aiv([&] { DataCopy(ub(0)[4], global<float>(gm.in), 64); }); });
  r.fault("copy_count_alignment", "must be a multiple of 32: the rest would be dropped",
          [](const Gm& gm) { on_aiv([&] { DataCopy(ub(0), global<float>(gm.in), 60); }); });
  r.fault("l0a_alignment", "dst address (256) must be a multiple of 512 bytes", [](const Gm&) {
    on_aic([&] {
      LoadData(LocalTensor<half>(TPosition::A2, 0, 1024)[128], LocalTensor<half>(TPosition::A1, 0, 1024),
               LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    });
  });
  r.fault("l0c_alignment", "dst address (512) must be a multiple of 1024 bytes", [](const Gm&) {
    on_aic([&] {
      Mmad(LocalTensor<float>(TPosition::CO1, 512, 256), LocalTensor<half>(TPosition::A2, 0, 256),
           LocalTensor<half>(TPosition::B2, 0, 256), MmadParams(16, 16, 16, 0, false, true));
    });
  });
}

void wrong_memory(Registry& r) {
  r.fault("vector_operand_in_l1", "src1 (L1) must be in UB", [](const Gm&) {
    on_aiv([&] { Add(ub(0), ub(0), LocalTensor<float>(TPosition::A1, 0, 64), 64); });
  });
  r.fault("mmad_operands_swapped", "must be in L0A", [](const Gm&) {
    on_aic([&] {
      Mmad(LocalTensor<float>(TPosition::CO1, 0, 256), LocalTensor<half>(TPosition::B2, 0, 256),
           LocalTensor<half>(TPosition::A2, 0, 256), MmadParams(16, 16, 16, 0, false, true));
    });
  });
  r.fault("load_from_gm", "src (GM) must be in L1", [](const Gm& gm) {
    on_aic([&] {
      LoadData(LocalTensor<half>(TPosition::A2, 0, 256), global<half>(gm.in16),
               LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    });
  });
  r.fault("load_to_l0c", "must be in L0A or L0B", [](const Gm&) {
    on_aic([&] {
      LoadData(LocalTensor<half>(TPosition::CO1, 0, 512), LocalTensor<half>(TPosition::A1, 0, 256),
               LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    });
  });
  r.fault("copy_without_path", "does not exist",
          [](const Gm&) { on_aiv([&] { DataCopy(ub(0), LocalTensor<float>(TPosition::A1, 0, 64), 64); }); });
#if __NPU_ARCH__ == 3510
  r.fault("l1_to_gm", "path (L1 to GM) does not exist on 3510", [](const Gm& gm) {
    on_aic([&] { DataCopy(global<float>(gm.out), LocalTensor<float>(TPosition::A1, 0, 64), 64); });
  });
  r.fault("transpose_load_to_l0a", "must be in L0B on 3510", [](const Gm&) {
    on_aic([&] {
      LoadDataWithTranspose(LocalTensor<float>(TPosition::A2, 0, 256),
                            LocalTensor<float>(TPosition::A1, 0, 256),
                            LoadData2dTransposeParams(0, 1, 1, 0, 0));
    });
  });
#else
  r.fault("ub_to_l1", "path (UB to L1) does not exist on 2201",
          [](const Gm&) { on_aiv([&] { DataCopy(LocalTensor<float>(TPosition::A1, 0, 64), ub(0), 64); }); });
#endif
  r.fault("vector_call_on_aic", "must run on an AIV: an AIC drops it silently",
          [](const Gm&) { on_aic([&] { Duplicate(ub(0), 0.0f, 64); }); });
  r.fault("cube_call_on_aiv", "must run on an AIC: an AIV drops it silently", [](const Gm&) {
    on_aiv([&] { Fill(LocalTensor<float>(TPosition::A1, 0, 1024), {1, 128, 0, 0.0f}); });
  });
  r.fault("scalar_read_of_l1", "must be in the UB of an AIV",
          [](const Gm&) { on_aic([&] { LocalTensor<float>(TPosition::A1, 0, 64).GetValue(0); }); });
  r.fault("scalar_store_to_gm", "a scalar store stays in the cache",
          [](const Gm& gm) { on_aiv([&] { global<float>(gm.out).SetValue(0, 1.0f); }); });
}

void uninitialised(Registry& r) {
  r.fault("ub_never_written", "must be written before it is read",
          [](const Gm&) { on_aiv([&] { Adds(ub(0), ub(4096), 1.0f, 64); }); });
  r.fault("ub_tail_never_written", "must be written before it is read", [](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 60);
      PipeBarrier<PIPE_V>();
      Adds(ub(4096), ub(0), 1.0f, 64);
    });
  });
  r.fault("pad_bytes_undefined", "must be written before it is read", [](const Gm& gm) {
    on_aiv([&] {
      DataCopyPad(ub(0), global<float>(gm.in), {1, 20, 0, 0, 0}, {false, 0, 1, 0.0f});
      hand_over<HardEvent::MTE2_V>();
      Adds(ub(4096), ub(0), 1.0f, 8);
    });
  });
  r.fault("pad_bytes_undefined_again", "must be written before it is read", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 64);
      hand_over<HardEvent::V_MTE2>();
      DataCopyPad(ub(0), global<float>(gm.in), {1, 20, 0, 0, 0}, {false, 0, 1, 0.0f});
      hand_over<HardEvent::MTE2_V>();
      Adds(ub(4096), ub(0), 1.0f, 8);
    });
  });
  r.clean("pad_bytes_given", [](const Gm& gm) {
    on_aiv([&] {
      DataCopyPad(ub(0), global<float>(gm.in), {1, 20, 0, 0, 0}, {true, 0, 1, 0.0f});
      hand_over<HardEvent::MTE2_V>();
      Adds(ub(4096), ub(0), 1.0f, 8);
    });
  });
  r.fault("workspace_never_written", "must be written before it is read",
          [](const Gm& gm) { on_aiv([&] { DataCopy(ub(0), global<float>(gm.work), 64); }); });
  r.fault("output_never_written", "must be written before it is read",
          [](const Gm& gm) { on_aiv([&] { DataCopy(ub(0), global<float>(gm.out), 64); }); });
  r.fault("nd2nz_rows_not_padded", "must be written before it is read", [](const Gm& gm) {
    on_aic([&] {
      const LocalTensor<float> l1(TPosition::A1, 0, 128);
      DataCopy(l1, global<float>(gm.in), Nd2NzParams(1, 12, 8, 0, 8, 16, 1, 0));
      hand_over<HardEvent::MTE2_MTE1>();
      LoadData(LocalTensor<float>(TPosition::A2, 0, 128), l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    });
  });
  r.fault("scalar_never_written", "must be written before it is read",
          [](const Gm&) { on_aiv([&] { ub(0).GetValue(3); }); });
}

}  // namespace

void add_memory_faults(Registry& registry) {
  bounds(registry);
  capacity(registry);
  alignment(registry);
  wrong_memory(registry);
  uninitialised(registry);
}

}  // namespace planted
