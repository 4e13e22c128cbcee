#include "twin/launch.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "twin/pipes.h"

namespace twin {
namespace {

constexpr size_t kListedBlocks = 64;

double us(double cycles) { return cycles / chip().clock_ghz / 1000; }

// Blocks start in order, each on the core that is free first.
double makespan_us(const std::vector<double>& block_us, int cores) {
  std::priority_queue<double, std::vector<double>, std::greater<double>> free_at;
  for (int i = 0; i < cores; ++i) free_at.push(0);
  double last = 0;
  for (double duration : block_us) {
    const double end = free_at.top() + duration;
    free_at.pop();
    free_at.push(end);
    last = std::max(last, end);
  }
  return last;
}

std::string timeline_json(const Machine& host, const std::vector<double>& block_us) {
  const GmBytes gm = gm_bytes(host.counters);
  const int cores = chip().aic_cores * (host.vector_only ? kSubCores : 1);
  const double cores_us = makespan_us(block_us, cores);
  const double hbm_us = static_cast<double>(gm.compulsory + gm.other) / hbm_bytes_per_us();
  const double ring_us = static_cast<double>(gm.ring) * ring_us_per_byte();
  double total = 0, least = 0, most = 0;
  std::string list;
  for (size_t i = 0; i < block_us.size(); ++i) {
    total += block_us[i];
    least = i == 0 ? block_us[i] : std::min(least, block_us[i]);
    most = std::max(most, block_us[i]);
    if (i < kListedBlocks) list += (i == 0 ? "" : ", ") + json_number(block_us[i]);
  }
  const double mean = block_us.empty() ? 0 : total / static_cast<double>(block_us.size());
  std::string out = "\"label\": \"modelled\", \"clock_ghz\": " + json_number(chip().clock_ghz);
  out += ", \"clock_assumed\": " + std::string(kIs3510 ? "true" : "false");
  out += ", \"cores\": " + std::to_string(cores) + ", \"cores_us\": " + json_number(cores_us);
  out += ", \"hbm_us\": " + json_number(hbm_us) + ", \"ring_us\": " + json_number(ring_us);
  out += ", \"duration_us\": " + json_number(std::max(cores_us, hbm_us));
  out += ", \"block_us\": {\"least\": " + json_number(least) + ", \"mean\": " + json_number(mean);
  out += ", \"most\": " + json_number(most) + ", \"first\": [" + list + "]}";
  return out + ", \"critical_path\": " + host.timeline.critical_path_json();
}

std::string report_json(const Machine& host, int blocks, uint64_t seed, const std::vector<double>& block_us) {
  return "{\"kernel\": " + json_string(host.kernel) + ", \"chip\": " + json_string(chip().name) +
         ", \"arch\": " + std::to_string(chip().arch) + ", \"blocks\": " + std::to_string(blocks) +
         ", \"blocks_simulated\": " + std::to_string(block_us.size()) +
         ", \"seed\": " + std::to_string(seed) + ", " + counters_json(host.counters) + ", \"timeline\": {" +
         timeline_json(host, block_us) + "}}";
}

// Gives the machine back its thread whatever happens.
struct UnderWay {
  explicit UnderWay(Machine* machine) { use_machine(machine); }
  ~UnderWay() { use_machine(nullptr); }
};

}  // namespace

Report launch(const char* kernel, int blocks, const std::vector<GmBuffer>& buffers, const Options& options,
              const std::function<void()>& program) {
  Report report;
  if (in_launch()) throw std::logic_error("a launch must not start inside another");
  if (blocks < 1) {
    report.fault =
        std::string(kernel) + ", launch: blocks (" + std::to_string(blocks) + ") must be at least 1";
    return report;
  }
  auto host = std::make_unique<Machine>(kernel, blocks, buffers, options.seed, options.vector_only);
  UnderWay under_way(host.get());
  std::vector<double> block_us;
  const int simulated = options.only_blocks > 0 ? std::min(blocks, options.only_blocks) : blocks;
  try {
    for (int block = 0; block < simulated; ++block) {
      block_us.push_back(us(host->run_block(block, block == 0, program)));
    }
  } catch (const Fault& fault) {
    report.fault = fault.what();
  } catch (const std::exception& error) {
    report.fault = std::string(kernel) + ", the twin itself failed: " + error.what();
  }
  host->memories.peaks(host->counters);
  report.json = report_json(*host, blocks, options.seed, block_us);
  if (options.trace) report.trace_json = host->timeline.trace_json(kernel);
  return report;
}

uint32_t find_buffer(const void* address, const char* instruction) {
  Machine& host = machine();
  const auto at = reinterpret_cast<uintptr_t>(address);
  // Tensors that are views of one storage overlap as ranges; each is known by its own first address.
  for (uint32_t i = 0; i < host.memories.buffers(); ++i) {
    if (host.memories.gm(i).buffer().data == address) return i;
  }
  for (uint32_t i = 0; i < host.memories.buffers(); ++i) {
    const GmBuffer& buffer = host.memories.gm(i).buffer();
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
    if (at >= begin && at - begin < std::max<uint64_t>(buffer.bytes, 1)) return i;
  }
  current().fault(instruction, "address", std::to_string(at), "must lie in a GM buffer of the launch");
}

uint64_t buffer_bytes(uint32_t buffer) { return machine().memories.gm(buffer).buffer().bytes; }

uint64_t buffer_offset(uint32_t buffer, const void* address) {
  const auto begin = reinterpret_cast<uintptr_t>(machine().memories.gm(buffer).buffer().data);
  return reinterpret_cast<uintptr_t>(address) - begin;
}

uint8_t* buffer_data(uint32_t buffer) {
  return static_cast<uint8_t*>(machine().memories.gm(buffer).buffer().data);
}

const char* buffer_name(uint32_t buffer) { return machine().memories.gm(buffer).buffer().name; }

}  // namespace twin
