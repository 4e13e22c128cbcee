// npu_call.h -- what the NPU launches of all kernels share: a call from its numbers, addresses, the task queue.
//
//   Order      a launch goes through torch_npu's task queue, on its current stream
//   Workspace  one byte tensor, all of it the kernel's: it uses no call that wants CANN's 16 MB of system
//   workspace
#ifndef VMAMBA2_NPU_CALL_H
#define VMAMBA2_NPU_CALL_H

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "kernel_operator.h"
#include "ssd_forward_plan.h"
#include "torch_npu/csrc/core/npu/NPUStream.h"
#include "torch_npu/csrc/framework/OpCommand.h"

namespace vmamba2 {

using OptionalTensor = std::optional<at::Tensor>;

constexpr size_t kForwardLimits = 2;
constexpr size_t kForwardIntegers = sizeof(SsdForwardCall) / 8 - kForwardLimits;
static_assert(sizeof(SsdForwardCall) == 8 * (kForwardIntegers + kForwardLimits),
              "SsdForwardCall must be 64-bit fields alone");

inline void CheckFields(const char* op, bool agree) {
  TORCH_CHECK(agree, op,
              ": the library and ops_ascend disagree about the call's fields; run `vmamba2 build-ops`");
}

// `integers` may go on behind those of the forward.
inline SsdForwardCall ForwardCall(at::IntArrayRef integers, at::ArrayRef<double> limits) {
  SsdForwardCall call;
  std::memcpy(&call, integers.data(), kForwardIntegers * 8);
  call.dt_low = limits[0];
  call.dt_high = limits[1];
  return call;
}

// What `plan` gives; its refusal is a ValueError in Python.
template <typename Plan>
auto Planned(Plan plan) {
  try {
    return plan();
  } catch (const std::invalid_argument& refusal) {
    TORCH_CHECK_VALUE(false, refusal.what());
  }
}

inline GM_ADDR Address(const at::Tensor& tensor) { return static_cast<GM_ADDR>(tensor.data_ptr()); }
inline GM_ADDR Address(const OptionalTensor& tensor) {
  return tensor.has_value() ? Address(*tensor) : nullptr;
}

// The allocator orders reuse by stream, so the tensor may be released before the launch has run.
inline at::Tensor Workspace(int64_t bytes, const at::Tensor& like) {
  return at::empty({bytes}, like.options().dtype(at::kByte));
}

// Puts launch(stream) into the task queue.
template <typename Launch>
void Enqueue(const char* name, Launch launch) {
  // stream(false): the queue is not drained first, since the launch goes through it.
  void* const stream = c10_npu::getCurrentNPUStream().stream(false);
  at_npu::native::OpCommand::RunOpApiV2(name, [launch = std::move(launch), stream]() -> int {
    launch(stream);
    return 0;
  });
}

}  // namespace vmamba2

#endif  // VMAMBA2_NPU_CALL_H
