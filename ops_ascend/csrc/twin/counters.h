// counters.h -- what a launch moved and executed, per core kind and pipe.
#pragma once

#include <cstdint>
#include <string>

#include "twin/chips.h"

namespace twin {

// Bytes of GM traffic by what they are for.
struct GmBytes {
  uint64_t compulsory = 0;  // first touch of a granule of an input or output
  uint64_t ring = 0;        // workspace: produced and consumed in the same launch
  uint64_t other = 0;       // an input or output touched again

  uint64_t sum() const { return compulsory + ring + other; }
  void add(const GmBytes& more) {
    compulsory += more.compulsory;
    ring += more.ring;
    other += more.other;
  }
};

struct PathCounter {
  uint64_t bytes = 0;
  uint64_t calls = 0;
  GmBytes gm;  // of the GM end, when the path has one
};

struct PipeCounter {
  uint64_t instructions = 0;
  uint64_t repeats = 0;
  double busy_cycles = 0;
};

struct CoreCounters {
  PathCounter paths[kMemories][kMemories];  // [from][to]; GM to GM stands for the scalar unit's accesses
  PipeCounter pipes[kPipes];
  uint64_t macs = 0;
  uint64_t hand_offs = 0;  // CrossCoreSetFlag
  uint64_t peak_bytes[kMemories] = {};
};

const char* core_name(int slot);  // "AIC", "AIV0", "AIV1"

// JSON members (no braces): "paths", "pipes", "macs", "hand_offs", "peak_bytes", "gm_bytes".
std::string counters_json(const CoreCounters (&cores)[kCoresPerBlock]);
GmBytes gm_bytes(const CoreCounters (&cores)[kCoresPerBlock]);

std::string json_number(double value);
std::string json_string(const std::string& text);

}  // namespace twin
