// ssd_forward_twin.cpp -- runs the SSD forward kernel on the CPU twin; the C interface that
// ops_ascend/twin.py calls.
//
// Results are JSON, valid until the next call from the same thread: {"fault": "...", "report": {...}}.
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ssd_forward.h"
#include "ssd_forward_plan.h"
#include "twin/launch.h"

namespace {

using vmamba2::DType;
using vmamba2::SsdForwardAddresses;
using vmamba2::SsdForwardCall;
using vmamba2::SsdForwardTiling;

enum Buffer { kX, kDt, kA, kB, kC, kD, kZ, kBias, kInitial, kResets, kY, kFinal, kCheckpoints, kBuffers };
constexpr const char* kNames[kBuffers] = {
    "x", "dt",           "A",          "B", "C", "D", "z", "dt_bias", "initial_states", "resets",
    "y", "final_states", "checkpoints"};

struct Buffers {
  void* data[kBuffers];
  int64_t bytes[kBuffers];
};

struct TwinOptions {
  int64_t seed;
  int64_t trace;
  int64_t only_blocks;
};

thread_local std::string answer;
thread_local std::string trace;

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

uint32_t ElementBytes(int32_t dtype) { return dtype == static_cast<int32_t>(DType::kFloat32) ? 4 : 2; }

std::vector<twin::GmBuffer> Register(const SsdForwardTiling& tiling, const Buffers& buffers,
                                     std::vector<uint8_t>* workspace) {
  std::vector<twin::GmBuffer> registered;
  for (int i = 0; i < kBuffers; ++i) {
    if (buffers.data[i] == nullptr) {
      continue;
    }
    twin::GmBuffer gm;
    gm.name = kNames[i];
    gm.data = buffers.data[i];
    gm.bytes = static_cast<uint64_t>(buffers.bytes[i]);
    const bool typed = i == kX || i == kB || i == kC || i == kZ || i == kY;
    gm.granule = i == kDt ? ElementBytes(tiling.dt_dtype) : (typed ? ElementBytes(tiling.dtype) : 4);
    gm.kind = i >= kY ? twin::GmBuffer::kOutput : twin::GmBuffer::kInput;
    registered.push_back(gm);
  }
  workspace->resize(static_cast<size_t>(tiling.workspace_bytes));
  twin::GmBuffer gm;
  gm.name = "workspace";
  gm.data = workspace->data();
  gm.bytes = workspace->size();
  gm.granule = 32;
  gm.kind = twin::GmBuffer::kWorkspace;
  registered.push_back(gm);
  return registered;
}

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

Reports Dispatch(const SsdForwardTiling& t, const SsdForwardAddresses& gm,
                 const std::vector<twin::GmBuffer>& buffers, const twin::Options& options) {
  const DType type = static_cast<DType>(t.dtype);
  if (type == DType::kFloat16) {
    return Run<half, half>(t, gm, buffers, options);
  }
  if (type == DType::kBFloat16) {
    return Run<bfloat16_t, bfloat16_t>(t, gm, buffers, options);
  }
  return t.operand_dtype == 0 ? Run<float, float>(t, gm, buffers, options)
                              : Run<float, half>(t, gm, buffers, options);
}

std::string RunTwin(const SsdForwardCall& call, const Buffers& buffers, const TwinOptions& options) {
  const SsdForwardTiling tiling = vmamba2::PlanSsdForward(call, vmamba2::BudgetOf(__NPU_ARCH__));
  std::vector<uint8_t> workspace;
  const std::vector<twin::GmBuffer> registered = Register(tiling, buffers, &workspace);
  const auto at = [&buffers](Buffer which) { return static_cast<uint8_t*>(buffers.data[which]); };
  const SsdForwardAddresses gm{at(kX), at(kDt),    at(kA),           at(kB),          at(kC),
                               at(kD), at(kZ),     at(kBias),        at(kInitial),    at(kResets),
                               at(kY), at(kFinal), at(kCheckpoints), workspace.data()};
  const twin::Options run{static_cast<uint64_t>(options.seed), options.trace != 0,
                          static_cast<int>(options.only_blocks)};
  const Reports reports = Dispatch(tiling, gm, registered, run);
  const auto json = [](const twin::Report& report) {
    return report.json.empty() ? std::string("null") : report.json;
  };
  trace = reports.last.trace_json;
  return "{\"fault\": " + Quoted(reports.first.fault + reports.last.fault) +
         ", \"first_report\": " + json(reports.first) + ", \"report\": " + json(reports.last) + "}";
}

std::string Refusal(const std::exception& error) {
  return std::string("{\"refused\": ") + Quoted(error.what()) + "}";
}

std::string TilingJson(const SsdForwardTiling& t) {
  const auto field = [](const char* name, int64_t value) {
    return "\"" + std::string(name) + "\": " + std::to_string(value);
  };
  return "{" + field("tasks", t.ntasks) + ", " + field("blocks", t.blocks) + ", " + field("parts", t.parts) +
         ", " + field("heads_per_task", t.heads_per_task) + ", " +
         field("heads_per_store", t.heads_per_store) + ", " + field("state_on_chip", t.state_on_chip) + ", " +
         field("epilogue", t.epilogue) + ", " + field("direct", t.direct) + ", " +
         field("segments", t.segments) + ", " + field("nchunks", t.nchunks) + ", " +
         field("ncheckpoints", t.ncheckpoints) + ", " + field("ub_bytes", t.ub.bytes) + ", " +
         field("l1_bytes", t.l1.bytes) + ", " + field("ring_bytes", t.ring.bytes) + ", " +
         field("workspace_bytes", t.workspace_bytes) + "}";
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int vmamba2_arch() { return __NPU_ARCH__; }

const char* vmamba2_ssd_forward_tiling(const SsdForwardCall* call) {
  try {
    answer = TilingJson(vmamba2::PlanSsdForward(*call, vmamba2::BudgetOf(__NPU_ARCH__)));
  } catch (const std::invalid_argument& error) {
    answer = Refusal(error);
  }
  return answer.c_str();
}

const char* vmamba2_twin_ssd_forward(const SsdForwardCall* call, const Buffers* buffers,
                                     const TwinOptions* options) {
  try {
    answer = RunTwin(*call, *buffers, *options);
  } catch (const std::invalid_argument& error) {
    answer = Refusal(error);
  }
  return answer.c_str();
}

const char* vmamba2_twin_trace() { return trace.c_str(); }

}  // extern "C"
#pragma GCC visibility pop
