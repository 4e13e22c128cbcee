// selective_scan_twin.cpp -- runs the selective scan kernels on the CPU twin; the C interface that
// ops_ascend/twin.py calls.
//
// Results are JSON, valid until the next call from the same thread: {"fault": "...", "report": {...}}.
#include <cstdint>
#include <string>
#include <vector>

#include "host/selective_types.h"
#include "host/twin_call.h"
#include "selective_scan_backward.h"
#include "selective_scan_forward.h"
#include "selective_scan_plan.h"

namespace {

using vmamba2::Element;
using vmamba2::SelectiveBackwardAddresses;
using vmamba2::SelectiveForwardAddresses;
using vmamba2::SelectiveScanCall;
using vmamba2::SelectiveTiling;
using vmamba2::TwinOptions;

constexpr int kForwardInputs = 8, kForwardBuffers = 11;
constexpr vmamba2::BufferSlot kForward[kForwardBuffers] = {
    {"u", Element::kTensor},         {"delta", Element::kDt},         {"A", Element::kFloat},
    {"B", Element::kTensor},         {"C", Element::kTensor},         {"D", Element::kFloat},
    {"z", Element::kTensor},         {"delta_bias", Element::kFloat}, {"y", Element::kTensor},
    {"last_state", Element::kFloat}, {"checkpoints", Element::kFloat}};
using ForwardBuffers = vmamba2::Buffers<kForwardBuffers>;

// dB and dC are float32 when there are parts of them: their bytes are then looked at in finer pieces, no more.
constexpr int kBackwardInputs = 11, kBackwardBuffers = 19;
constexpr vmamba2::BufferSlot kBackward[kBackwardBuffers] = {
    {"u", Element::kTensor},         {"delta", Element::kDt},          {"A", Element::kFloat},
    {"B", Element::kTensor},         {"C", Element::kTensor},          {"D", Element::kFloat},
    {"z", Element::kTensor},         {"delta_bias", Element::kFloat},  {"checkpoints", Element::kFloat},
    {"dy", Element::kTensor},        {"dlast_state", Element::kFloat}, {"du", Element::kTensor},
    {"ddelta", Element::kDt},        {"dA", Element::kFloat},          {"dB", Element::kTensor},
    {"dC", Element::kTensor},        {"dD", Element::kFloat},          {"dz", Element::kTensor},
    {"ddelta_bias", Element::kFloat}};
using BackwardBuffers = vmamba2::Buffers<kBackwardBuffers>;

SelectiveTiling Plan(const SelectiveScanCall& call) {
  return vmamba2::PlanSelectiveScan(call, vmamba2::BudgetOf(__NPU_ARCH__));
}

// One launch over vector cores of kernel(ElementType<T>).
template <typename Kernel>
std::string Launched(const char* name, const SelectiveTiling& tiling, int32_t cores,
                     const std::vector<twin::GmBuffer>& buffers, const TwinOptions& options, Kernel kernel) {
  twin::Options launch = vmamba2::LaunchOptions(options);
  launch.vector_only = true;
  twin::Report report;
  vmamba2::WithElementType(tiling, [&](auto element) {
    report = twin::launch(name, cores, buffers, launch, [&] { kernel(element); });
  });
  vmamba2::newest_trace = report.trace_json;
  return "{\"fault\": " + vmamba2::Quoted(report.fault) + ", \"report\": " + vmamba2::ReportJson(report) +
         "}";
}

std::string RunForward(const SelectiveScanCall& call, const ForwardBuffers& buffers,
                       const TwinOptions& options) {
  const SelectiveTiling tiling = Plan(call);
  const auto at = [&buffers](int which) { return buffers.At(which); };
  const SelectiveForwardAddresses gm{at(0), at(1), at(2), at(3), at(4), at(5),
                                     at(6), at(7), at(8), at(9), at(10)};
  return Launched(
      "selective_scan", tiling, tiling.forward.cores,
      vmamba2::Registered(kForward, kForwardInputs, buffers, tiling.dtype, tiling.delta_dtype), options,
      [&](auto element) { vmamba2::SelectiveScanForward<typename decltype(element)::Type>(gm, tiling); });
}

std::string RunBackward(const SelectiveScanCall& call, const BackwardBuffers& buffers,
                        const TwinOptions& options) {
  const SelectiveTiling tiling = Plan(call);
  std::vector<twin::GmBuffer> registered =
      vmamba2::Registered(kBackward, kBackwardInputs, buffers, tiling.dtype, tiling.delta_dtype);
  std::vector<uint8_t> workspace;
  if (tiling.workspace_bytes > 0) {
    registered.push_back(vmamba2::Workspace(&workspace, tiling.workspace_bytes));
  }
  const auto at = [&buffers](int which) { return buffers.At(which); };
  const SelectiveBackwardAddresses gm{at(0),  at(1),  at(2),  at(3),  at(4),  at(5),           at(6),
                                      at(7),  at(8),  at(9),  at(10), at(11), at(12),          at(13),
                                      at(14), at(15), at(16), at(17), at(18), workspace.data()};
  return Launched(
      "selective_scan_backward", tiling, tiling.backward.cores, registered, options,
      [&](auto element) { vmamba2::SelectiveScanBackward<typename decltype(element)::Type>(gm, tiling); });
}

std::string TilingJson(const SelectiveTiling& t) {
  return vmamba2::IntegersJson()
      .Add("tasks", t.forward.whole.tasks + t.forward.rest.tasks)
      .Add("rest_tasks", t.forward.rest.tasks)
      .Add("blocks", t.forward.cores)
      .Add("forward_parts", t.forward.whole.parts)
      .Add("tile_tokens", t.forward.tile)
      .Add("ub_bytes", t.ub_forward.bytes)
      .Add("save_every", vmamba2::kSaveEvery)
      .Add("ncheckpoints", t.ncheckpoints)
      .Add("checkpoint_floats", t.batch * t.ncheckpoints * t.dim * t.dstate)
      .Add("parts", t.backward.whole.parts)
      .Add("rows", t.rows)
      .Add("backward_tasks", t.backward.whole.tasks)
      .Add("backward_blocks", t.backward.cores)
      .Add("backward_tile_tokens", t.backward.tile)
      .Add("backward_ub_bytes", t.ub_backward.bytes)
      .Add("resident", t.resident)
      .Add("workspace_bytes", 0)
      .Add("backward_workspace_bytes", t.workspace_bytes)
      .Text();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* vmamba2_selective_scan_tiling(const SelectiveScanCall* call) {
  return vmamba2::Answered([=] { return TilingJson(Plan(*call)); });
}

const char* vmamba2_twin_selective_scan(const SelectiveScanCall* call, const ForwardBuffers* buffers,
                                        const TwinOptions* options) {
  return vmamba2::Answered([=] { return RunForward(*call, *buffers, *options); });
}

const char* vmamba2_twin_selective_scan_backward(const SelectiveScanCall* call,
                                                 const BackwardBuffers* buffers, const TwinOptions* options) {
  return vmamba2::Answered([=] { return RunBackward(*call, *buffers, *options); });
}

}  // extern "C"
#pragma GCC visibility pop
