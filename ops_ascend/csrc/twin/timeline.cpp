#include "twin/timeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "twin/counters.h"

namespace twin {
namespace {

constexpr size_t kMostSegments = 4u << 20;  // past this the first block is too long to keep a path of

double us(double cycles) { return cycles / chip().clock_ghz / 1000; }

}  // namespace

void Timeline::start_block(bool record) {
  recording_ = record;
  for (int i = 0; i < kActors; ++i) {
    clock_[i] = 0;
    last_[i] = -1;
  }
}

int32_t Timeline::record(const Segment& segment) {
  if (!recording_ || segments_.size() >= kMostSegments) return -1;
  segments_.push_back(segment);
  return static_cast<int32_t>(segments_.size() - 1);
}

Bound Timeline::run(int actor, const char* name, double cycles, bool busy,
                    std::initializer_list<Bound> causes) {
  Bound start = now(actor);
  for (const Bound& cause : causes) {
    if (cause.cycles > start.cycles) start = cause;
  }
  clock_[actor] = start.cycles + cycles;
  last_[actor] = record({name, start.cycles, clock_[actor], start.segment, static_cast<int8_t>(actor), busy});
  return now(actor);
}

void Timeline::hold(int actor, const char* name, Bound cause) {
  if (cause.cycles > clock_[actor]) run(actor, name, 0, false, {cause});
}

double Timeline::end_cycles() const { return *std::max_element(clock_, clock_ + kActors); }

std::string Timeline::critical_path_json() const {
  if (segments_.empty() || segments_.size() >= kMostSegments) return "[]";
  // Ties go to the lower actor: the order of recording depends on the seed, the path must not.
  auto last = std::max_element(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) {
    return a.end < b.end || (a.end == b.end && a.actor > b.actor);
  });
  std::map<std::pair<int, std::string>, double> spent;
  auto at = static_cast<int32_t>(last - segments_.begin());
  while (at >= 0) {
    const Segment& segment = segments_[static_cast<size_t>(at)];
    spent[{segment.actor, segment.name}] += segment.end - segment.start;
    const Segment* before = segment.before >= 0 ? &segments_[static_cast<size_t>(segment.before)] : nullptr;
    const double gap = segment.start - (before != nullptr ? before->end : 0);
    const int core = segment.actor / kActorsPerCore;
    const bool crossed = before != nullptr && before->actor / kActorsPerCore != core;
    // Between two segments the scalar unit was issuing, or a flag was on its way to another core.
    if (gap > 0)
      spent[{crossed ? segment.actor : core * kActorsPerCore, crossed ? "hand-off" : "issue"}] += gap;
    at = segment.before;
  }
  std::vector<std::pair<double, std::pair<int, std::string>>> order;
  for (const auto& [what, cycles] : spent) order.push_back({-cycles, what});
  std::sort(order.begin(), order.end());
  std::string out;
  for (const auto& [negative, what] : order) {
    if (negative == 0) continue;
    out += out.empty() ? "" : ", ";
    out += "{\"core\": " + json_string(core_name(what.first / kActorsPerCore)) + ", \"pipe\": ";
    out += json_string(pipe_name(static_cast<Pipe>(what.first % kActorsPerCore)));
    out += ", \"instruction\": " + json_string(what.second) + ", \"us\": " + json_number(us(-negative)) + "}";
  }
  return "[" + out + "]";
}

std::string Timeline::trace_json(const char* kernel) const {
  std::string out = "{\"otherData\": {\"kernel\": " + json_string(kernel) +
                    ", \"chip\": " + json_string(chip().name) +
                    ", \"times\": \"modelled\"}, \"traceEvents\": [";
  for (int actor = 0; actor < kActors; ++actor) {
    if (actor % kActorsPerCore == kScalarData) continue;
    const std::string pipe = pipe_name(static_cast<Pipe>(actor % kActorsPerCore));
    const std::string name = std::string(core_name(actor / kActorsPerCore)) + " " + pipe;
    out += actor == 0 ? "" : ",\n";
    out += "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": " + std::to_string(actor) +
           ", \"args\": {\"name\": " + json_string(name + " (modelled)") + "}}";
  }
  std::vector<Segment> ordered = segments_;
  std::stable_sort(ordered.begin(), ordered.end(), [](const Segment& a, const Segment& b) {
    return a.start < b.start || (a.start == b.start && a.actor < b.actor);
  });
  for (const Segment& segment : ordered) {
    if (segment.end <= segment.start) continue;
    out += ",\n{\"name\": " + json_string(segment.name) + ", \"ph\": \"X\", \"pid\": 0, \"tid\": ";
    out += std::to_string(segment.actor) + ", \"ts\": " + json_number(us(segment.start));
    out += ", \"dur\": " + json_number(us(segment.end - segment.start)) + ", \"cat\": ";
    out += segment.busy ? "\"work\"}" : "\"sync\"}";
  }
  return out + "]}";
}

}  // namespace twin
