#include "twin/counters.h"

#include <algorithm>
#include <cstdio>

namespace twin {

const char* core_name(int slot) {
  static const char* const kNames[kCoresPerBlock] = {"AIC", "AIV0", "AIV1"};
  return kNames[slot];
}

std::string json_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

namespace {

std::string gm_json(const GmBytes& gm) {
  return "\"compulsory\": " + std::to_string(gm.compulsory) + ", \"ring\": " + std::to_string(gm.ring) +
         ", \"other\": " + std::to_string(gm.other);
}

std::string path_json(int core, int from, int to, const PathCounter& path) {
  const int gm = static_cast<int>(Memory::kGm);
  const bool scalar = from == gm && to == gm;
  std::string out = "{\"core\": " + json_string(core_name(core));
  out += ", \"from\": " + json_string(scalar ? "GM scalar" : memory_name(static_cast<Memory>(from)));
  out += ", \"to\": " + json_string(scalar ? "GM scalar" : memory_name(static_cast<Memory>(to)));
  out += ", \"bytes\": " + std::to_string(path.bytes) + ", \"calls\": " + std::to_string(path.calls);
  if (from == gm || to == gm) out += ", " + gm_json(path.gm);
  return out + "}";
}

std::string paths_json(const CoreCounters (&cores)[kCoresPerBlock]) {
  std::string out;
  for (int core = 0; core < kCoresPerBlock; ++core) {
    for (int i = 0; i < kMemories * kMemories; ++i) {
      const PathCounter& path = cores[core].paths[i / kMemories][i % kMemories];
      if (path.calls == 0) continue;
      out += (out.empty() ? "" : ", ") + path_json(core, i / kMemories, i % kMemories, path);
    }
  }
  return out;
}

std::string pipes_json(const CoreCounters (&cores)[kCoresPerBlock]) {
  std::string out;
  for (int core = 0; core < kCoresPerBlock; ++core) {
    for (int pipe = 0; pipe < kPipes; ++pipe) {
      const PipeCounter& counter = cores[core].pipes[pipe];
      if (counter.instructions == 0) continue;
      out += out.empty() ? "" : ", ";
      out += "{\"core\": " + json_string(core_name(core)) + ", \"pipe\": ";
      out += json_string(pipe_name(static_cast<Pipe>(pipe)));
      out += ", \"instructions\": " + std::to_string(counter.instructions);
      out += ", \"repeats\": " + std::to_string(counter.repeats);
      out += ", \"busy_us\": " + json_number(counter.busy_cycles / chip().clock_ghz / 1000) + "}";
    }
  }
  return out;
}

}  // namespace

GmBytes gm_bytes(const CoreCounters (&cores)[kCoresPerBlock]) {
  GmBytes sum;
  for (const CoreCounters& core : cores) {
    for (const auto& row : core.paths) {
      for (const PathCounter& path : row) sum.add(path.gm);
    }
  }
  return sum;
}

std::string counters_json(const CoreCounters (&cores)[kCoresPerBlock]) {
  uint64_t macs = 0;
  uint64_t peak[kMemories] = {};
  std::string hand_offs;
  for (int core = 0; core < kCoresPerBlock; ++core) {
    macs += cores[core].macs;
    hand_offs += (core == 0 ? "" : ", ") + json_string(core_name(core)) + ": ";
    hand_offs += std::to_string(cores[core].hand_offs);
    for (int i = 0; i < kMemories; ++i) peak[i] = std::max(peak[i], cores[core].peak_bytes[i]);
  }
  std::string peaks;
  for (int i = static_cast<int>(Memory::kUb); i < kMemories; ++i) {
    peaks += (peaks.empty() ? "" : ", ") + json_string(memory_name(static_cast<Memory>(i))) + ": ";
    peaks += std::to_string(peak[i]);
  }
  return "\"paths\": [" + paths_json(cores) + "], \"pipes\": [" + pipes_json(cores) +
         "], \"macs\": " + std::to_string(macs) + ", \"hand_offs\": {" + hand_offs + "}, \"peak_bytes\": {" +
         peaks + "}, \"gm_bytes\": {" + gm_json(gm_bytes(cores)) + "}";
}

}  // namespace twin
