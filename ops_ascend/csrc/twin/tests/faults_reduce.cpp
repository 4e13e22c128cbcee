// faults_reduce.cpp -- the rules of the reductions.
#include "planted.h"

namespace planted {
namespace {

Kernel reduces(const std::function<void()>& body) {
  return [body](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 1024);
      Duplicate(ub(4096), 2.0f, 1024);
      PipeBarrier<PIPE_V>();
      body();
    });
  };
}

}  // namespace

void add_reduce_faults(Registry& r) {
  r.fault("block_sum_repeat_256", "repeatTime (256) must be at most 255",
          reduces([] { BlockReduceSum(ub(4096), ub(0), 256, 64, 1, 1, 0); }));
  r.fault("block_sum_mask", "mask (65) must be at most 64",
          reduces([] { BlockReduceSum(ub(4096), ub(0), 1, 65, 1, 1, 8); }));
  r.fault("block_sum_mask_negative", "mask (-1) must be at least 1",
          reduces([] { BlockReduceSum(ub(4096), ub(0), 1, -1, 1, 1, 8); }));
  r.fault("block_sum_destination", "dst address (4112) must be a multiple of 32 bytes",
          reduces([] { BlockReduceSum(ub(4096)[4], ub(0), 1, 64, 1, 1, 8); }));
  r.fault("block_sum_source", "src address (16) must be a multiple of 32 bytes",
          reduces([] { BlockReduceSum(ub(4096), ub(0)[4], 1, 64, 1, 1, 8); }));
  r.fault("block_sum_repeat_stride_0", "dstRepStride (0) must not let a repeat write what another wrote",
          reduces([] { BlockReduceSum(ub(4096), ub(0), 2, 64, 0, 1, 8); }));
  r.fault("block_sum_stride", "srcRepStride (65536) must be at most 65535",
          reduces([] { BlockReduceSum(ub(4096), ub(0), 2, 64, 1, 1, 65536); }));
  r.fault("block_sum_in_place", "src (overlap) must not overlap dst",
          reduces([] { BlockReduceSum(ub(0), ub(0), 16, 64, 1, 1, 8); }));
  r.fault("block_sum_type", "element type (int32_t) is not supported",
          reduces([] { BlockReduceSum(ub<int32_t>(4096), ub<int32_t>(0), 1, 64, 1, 1, 8); }));
  r.fault("block_sum_past_tensor", "must stay inside the tensor",
          reduces([] { BlockReduceSum(ub(4096, 64), ub(0), 16, 64, 1, 1, 8); }));
  r.fault("block_sum_never_written", "must be written before it is read",
          reduces([] { BlockReduceSum(ub(0), ub(8192), 1, 64, 1, 1, 8); }));
  r.fault("repeat_sum_destination", "dst address (4098) must be a multiple of 4 bytes",
          reduces([] { WholeReduceSum(ub<half>(4096)[1].ReinterpretCast<float>(), ub(0), 64, 1, 1, 1, 8); }));
  r.fault("repeat_sum_repeat_stride_0", "dstRepStride (0) must not let a repeat write what another wrote",
          reduces([] { WholeReduceSum(ub(4096), ub(0), 64, 2, 0, 1, 8); }));
  r.fault("repeat_sum_in_place", "src (overlap) must not overlap dst",
          reduces([] { WholeReduceSum(ub(0), ub(0), 64, 16, 1, 1, 8); }));
  r.fault("sum_of_infinities", "must not come from finite input", reduces([] {
            Duplicate(ub(0), 3e38f, 1024);
            PipeBarrier<PIPE_V>();
            Muls(ub(0), ub(0), -1.0f, 2, 1, {1, 1, 8, 8});
            PipeBarrier<PIPE_V>();
            BlockReduceSum(ub(4096), ub(0), 1, 4, 1, 1, 8);
          }));
#if __NPU_ARCH__ == 2201
  r.fault("block_sum_unchosen_lanes", "must be written before it is read", reduces([] {
            BlockReduceSum(ub(8192), ub(0), 1, 32, 1, 1, 8);
            PipeBarrier<PIPE_V>();
            Adds(ub(4096), ub(8192), 1.0f, 8);
          }));
#endif
}

}  // namespace planted
