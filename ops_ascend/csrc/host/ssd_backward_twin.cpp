// ssd_backward_twin.cpp -- runs the SSD backward kernel on the CPU twin; the C interface that
// ops_ascend/twin.py calls.
//
// Results are JSON, valid until the next call from the same thread: {"fault": "...", "report": {...}}.
#include <cstdint>
#include <string>
#include <vector>

#include "host/operand_types.h"
#include "host/twin_call.h"
#include "ssd_backward.h"
#include "ssd_backward_plan.h"

namespace {

using vmamba2::Element;
using vmamba2::SsdBackwardAddresses;
using vmamba2::SsdBackwardCall;
using vmamba2::SsdBackwardTiling;
using vmamba2::TwinOptions;

constexpr int kInputs = 12, kBuffers = 21;
using Buffers = vmamba2::Buffers<kBuffers>;

SsdBackwardTiling Plan(const SsdBackwardCall& call) {
  return vmamba2::PlanSsdBackward(call, vmamba2::BudgetOf(__NPU_ARCH__));
}

std::vector<twin::GmBuffer> Register(const SsdBackwardTiling& tiling, const Buffers& buffers) {
  // The parts of dB and dC are sums that the caller finishes, in float32.
  const Element grouped = tiling.common.parts == 1 ? Element::kTensor : Element::kFloat;
  const vmamba2::BufferSlot slots[kBuffers] = {{"x", Element::kTensor},
                                               {"dt", Element::kDt},
                                               {"A", Element::kFloat},
                                               {"B", Element::kTensor},
                                               {"C", Element::kTensor},
                                               {"D", Element::kFloat},
                                               {"z", Element::kTensor},
                                               {"dt_bias", Element::kFloat},
                                               {"resets", Element::kFloat},
                                               {"checkpoints", Element::kFloat},
                                               {"dy", Element::kTensor},
                                               {"dfinal_states", Element::kFloat},
                                               {"dx", Element::kTensor},
                                               {"ddt", Element::kFloat},
                                               {"dB", grouped},
                                               {"dC", grouped},
                                               {"dz", Element::kTensor},
                                               {"dA", Element::kFloat},
                                               {"dD", Element::kFloat},
                                               {"ddt_bias", Element::kFloat},
                                               {"dinitial_states", Element::kFloat}};
  return vmamba2::Registered(slots, kInputs, buffers, tiling.common.dtype, tiling.common.dt_dtype);
}

SsdBackwardAddresses Addresses(const Buffers& buffers, uint8_t* workspace) {
  const auto at = [&buffers](int which) { return buffers.At(which); };
  return SsdBackwardAddresses{at(0),  at(1),  at(2),  at(3),  at(4),  at(5),    at(6),  at(7),
                              at(8),  at(9),  at(10), at(11), at(12), at(13),   at(14), at(15),
                              at(16), at(17), at(18), at(19), at(20), workspace};
}

std::string RunTwin(const SsdBackwardCall& call, const Buffers& buffers, const TwinOptions& options) {
  const SsdBackwardTiling tiling = Plan(call);
  std::vector<twin::GmBuffer> registered = Register(tiling, buffers);
  std::vector<uint8_t> workspace;
  registered.push_back(vmamba2::Workspace(&workspace, tiling.common.workspace_bytes));
  const SsdBackwardAddresses gm = Addresses(buffers, workspace.data());
  twin::Report report;
  vmamba2::WithOperandTypes(tiling.common, [&](auto types) {
    using Types = decltype(types);
    report = twin::launch(
        "ssd_backward", tiling.common.blocks, registered, vmamba2::LaunchOptions(options),
        [&] { vmamba2::SsdBackward<typename Types::Tensor, typename Types::Operand>(gm, tiling); });
  });
  vmamba2::newest_trace = report.trace_json;
  return "{\"fault\": " + vmamba2::Quoted(report.fault) + ", \"report\": " + vmamba2::ReportJson(report) +
         "}";
}

std::string TilingJson(const SsdBackwardTiling& t) {
  return vmamba2::IntegersJson()
      .Add("tasks", t.common.ntasks)
      .Add("blocks", t.common.blocks)
      .Add("parts", t.common.parts)
      .Add("heads_per_task", t.common.heads_per_task)
      .Add("heads_per_store", t.common.heads_per_store)
      .Add("state_on_chip", t.common.state_on_chip)
      .Add("nchunks", t.common.nchunks)
      .Add("ncheckpoints", t.common.ncheckpoints)
      .Add("ub_bytes", t.common.ub.bytes)
      .Add("l1_bytes", t.common.l1.bytes)
      .Add("ring_bytes", t.ring.bytes)
      .Add("workspace_bytes", t.common.workspace_bytes)
      .Text();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* vmamba2_ssd_backward_tiling(const SsdBackwardCall* call) {
  return vmamba2::Answered([=] { return TilingJson(Plan(*call)); });
}

const char* vmamba2_twin_ssd_backward(const SsdBackwardCall* call, const Buffers* buffers,
                                      const TwinOptions* options) {
  return vmamba2::Answered([=] { return RunTwin(*call, *buffers, *options); });
}

}  // extern "C"
#pragma GCC visibility pop
