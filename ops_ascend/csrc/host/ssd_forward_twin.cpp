// ssd_forward_twin.cpp -- runs the SSD forward kernel on the CPU twin; the C interface that
// ops_ascend/twin.py calls.
//
// Results are JSON, valid until the next call from the same thread: {"fault": "...", "report": {...}}.
#include <cstdint>
#include <string>
#include <vector>

#include "host/operand_types.h"
#include "host/twin_call.h"
#include "ssd_forward.h"
#include "ssd_forward_plan.h"

namespace {

using vmamba2::Element;
using vmamba2::SsdForwardAddresses;
using vmamba2::SsdForwardCall;
using vmamba2::SsdForwardTiling;
using vmamba2::TwinOptions;

constexpr int kInputs = 10, kBuffers = 13;
constexpr vmamba2::BufferSlot kSlots[kBuffers] = {
    {"x", Element::kTensor},         {"dt", Element::kDt},         {"A", Element::kFloat},
    {"B", Element::kTensor},         {"C", Element::kTensor},      {"D", Element::kFloat},
    {"z", Element::kTensor},         {"dt_bias", Element::kFloat}, {"initial_states", Element::kFloat},
    {"resets", Element::kFloat},     {"y", Element::kTensor},      {"final_states", Element::kFloat},
    {"checkpoints", Element::kFloat}};
using Buffers = vmamba2::Buffers<kBuffers>;

// The workspace as it is between two launches.
std::vector<twin::GmBuffer> Filled(std::vector<twin::GmBuffer> buffers) {
  buffers.back().initialised = true;
  return buffers;
}

// One launch, or two when sequences are cut into segments; the second does not run after a finding in the
// first.
struct Reports {
  twin::Report first, last;
};

template <typename T, typename Op>
Reports Run(const SsdForwardTiling& tiling, const SsdForwardAddresses& gm,
            const std::vector<twin::GmBuffer>& buffers, const twin::Options& options) {
  Reports reports;
  if (tiling.segments > 1) {
    const SsdForwardTiling first = vmamba2::StatesOnly(tiling);
    reports.first = twin::launch("ssd_forward (segment states)", first.blocks, buffers, options,
                                 [&] { vmamba2::SsdForward<T, Op>(gm, first); });
    if (!reports.first.fault.empty()) {
      return reports;
    }
  }
  const std::vector<twin::GmBuffer> now = tiling.segments > 1 ? Filled(buffers) : buffers;
  reports.last = twin::launch("ssd_forward", tiling.blocks, now, options,
                              [&] { vmamba2::SsdForward<T, Op>(gm, tiling); });
  return reports;
}

SsdForwardTiling Plan(const SsdForwardCall& call) {
  return vmamba2::PlanSsdForward(call, vmamba2::BudgetOf(__NPU_ARCH__));
}

std::string RunTwin(const SsdForwardCall& call, const Buffers& buffers, const TwinOptions& options) {
  const SsdForwardTiling tiling = Plan(call);
  std::vector<twin::GmBuffer> registered =
      vmamba2::Registered(kSlots, kInputs, buffers, tiling.dtype, tiling.dt_dtype);
  std::vector<uint8_t> workspace;
  registered.push_back(vmamba2::Workspace(&workspace, tiling.workspace_bytes));
  const auto at = [&buffers](int which) { return buffers.At(which); };
  const SsdForwardAddresses gm{at(0), at(1), at(2), at(3),  at(4),  at(5),  at(6),
                               at(7), at(8), at(9), at(10), at(11), at(12), workspace.data()};
  Reports reports;
  vmamba2::WithOperandTypes(tiling, [&](auto types) {
    using Types = decltype(types);
    reports = Run<typename Types::Tensor, typename Types::Operand>(tiling, gm, registered,
                                                                   vmamba2::LaunchOptions(options));
  });
  vmamba2::newest_trace = reports.last.trace_json;
  return "{\"fault\": " + vmamba2::Quoted(reports.first.fault + reports.last.fault) +
         ", \"first_report\": " + vmamba2::ReportJson(reports.first) +
         ", \"report\": " + vmamba2::ReportJson(reports.last) + "}";
}

std::string TilingJson(const SsdForwardTiling& t) {
  return vmamba2::IntegersJson()
      .Add("tasks", t.ntasks)
      .Add("blocks", t.blocks)
      .Add("parts", t.parts)
      .Add("heads_per_task", t.heads_per_task)
      .Add("heads_per_store", t.heads_per_store)
      .Add("state_on_chip", t.state_on_chip)
      .Add("epilogue", t.epilogue)
      .Add("direct", t.direct)
      .Add("segments", t.segments)
      .Add("nchunks", t.nchunks)
      .Add("ncheckpoints", t.ncheckpoints)
      .Add("ub_bytes", t.ub.bytes)
      .Add("l1_bytes", t.l1.bytes)
      .Add("ring_bytes", t.ring.bytes)
      .Add("workspace_bytes", t.workspace_bytes)
      .Text();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int vmamba2_arch() { return __NPU_ARCH__; }

const char* vmamba2_ssd_forward_tiling(const SsdForwardCall* call) {
  return vmamba2::Answered([=] { return TilingJson(Plan(*call)); });
}

const char* vmamba2_twin_ssd_forward(const SsdForwardCall* call, const Buffers* buffers,
                                     const TwinOptions* options) {
  return vmamba2::Answered([=] { return RunTwin(*call, *buffers, *options); });
}

const char* vmamba2_twin_trace() { return vmamba2::newest_trace.c_str(); }

}  // extern "C"
#pragma GCC visibility pop
