// timeline.h -- the modelled clock of every actor, what bound each start, and the critical path.
//
// The times depend on costs and on the order that events force, not on the order in which the twin happened
// to run the queues. Contention between cores for HBM is not in them: the launch's report states that bound
// beside them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "twin/chips.h"

namespace twin {

// A moment that something had to wait for. segment -1: none recorded.
struct Bound {
  double cycles = 0;
  int32_t segment = -1;
};

class Timeline {
 public:
  void start_block(bool record);
  Bound now(int actor) const { return {clock_[actor], last_[actor]}; }
  // An instruction of `cycles` on `actor` that starts when the actor is free and every cause has passed.
  Bound run(int actor, const char* name, double cycles, bool busy, std::initializer_list<Bound> causes);
  // The scalar unit spends cycles between instructions: no segment of its own.
  void spend(int actor, double cycles) { clock_[actor] += cycles; }
  // `actor` was held up until `cause`.
  void hold(int actor, const char* name, Bound cause);
  double end_cycles() const;

  // After the recorded block.
  std::string critical_path_json() const;  // a list of {"core", "pipe", "instruction", "us"}, largest first
  std::string trace_json(const char* kernel) const;

 private:
  struct Segment {
    const char* name;
    double start, end;
    int32_t before;  // the segment that bound the start
    int8_t actor;
    bool busy;
  };
  int32_t record(const Segment& segment);
  double clock_[kActors] = {};
  int32_t last_[kActors] = {};
  bool recording_ = false;
  std::vector<Segment> segments_;
};

}  // namespace twin
