// launch.h -- run a kernel on the twin and get its finding, counters and modelled timeline.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace twin {

struct GmBuffer {
  enum Kind { kInput, kOutput, kWorkspace };
  const char* name = "";
  void* data = nullptr;
  uint64_t bytes = 0;
  uint32_t granule = 4;      // unit of the race and initialisation shadow, a power of two: the element size
  Kind kind = kInput;        // inputs are initialised and may not be written
  bool initialised = false;  // the host filled this output or workspace (zeros for atomic adds)
};

struct Options {
  uint64_t seed = 0;         // of the order in which pipes run
  bool trace = false;        // fill Report::trace_json with block 0
  int only_blocks = 0;       // simulate the first that many blocks only; 0 = all
  bool vector_only = false;  // a block is one AIV: no AIC, no second AIV, all vector cores of the chip work
};

struct Report {
  std::string fault;       // one sentence, empty when there is no finding
  std::string json;        // counters and the modelled timeline
  std::string trace_json;  // Chrome trace, Options::trace only
};

// program runs once per core, in that core's fiber, and looks at current(). One launch at a time per thread.
Report launch(const char* kernel, int blocks, const std::vector<GmBuffer>& buffers, const Options& options,
              const std::function<void()>& program);

}  // namespace twin
