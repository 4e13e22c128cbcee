// pipes.h -- the machine: three scalar programs, their queues, and the order in which all of it runs.
//
// A launch simulates its blocks one after another. Within a block the scheduler picks among the runnable
// scalar programs and queue heads; an instruction is done at once when it is picked, and what it is allowed
// to rely on is decided by happens-before knowledge, not by that order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "twin/core.h"
#include "twin/fiber.h"
#include "twin/memory.h"
#include "twin/scheduler.h"
#include "twin/sync.h"
#include "twin/timeline.h"

namespace twin {

constexpr uint32_t kQueueDepth =
    32;  // MTE1 and M: public documents of 2201; the other pipes are assumed alike

struct Entry {
  enum Kind : uint8_t { kWork, kSetFlag, kWaitFlag, kBarrier, kCrossSet, kCrossWait } kind = kWork;
  Pipe other = Pipe::kS;  // the flag's other pipe
  int id = 0;
  int mode = 0;
  const char* instruction = "";
  Cost cost;
  std::function<void(Access&)> work;
  Knowledge inherited;  // what the scalar program knew when it issued this
  Bound issued;
};

struct Queue {
  Entry entries[kQueueDepth];
  Bound
      left[kQueueDepth];  // when the entry that had this place started: only then is there room for the next
  uint32_t head = 0, count = 0;
};

struct Machine;

struct CoreState {
  Core core;
  int slot = 0;
  Machine* machine = nullptr;
  Fiber fiber;
  Queue queues[kPipes];
  Flag flags[kPipes][kPipes][kEventIds];
  Wait waiting;  // of the scalar program
  const char* waiting_in = "";
  int quantum = 0;
  CoreCounters* counters = nullptr;

  int actor(Pipe pipe) const { return slot * kActorsPerCore + static_cast<int>(pipe); }
  bool drained() const;
};

struct Machine {
  Machine(const char* kernel, int blocks, const std::vector<GmBuffer>& buffers, uint64_t seed,
          bool vector_only);

  // Returns the block's modelled cycles; throws Fault.
  double run_block(int block, bool record, const std::function<void()>& program);

  // For the methods of Core, inside a fiber.
  bool enter(Core& core);  // false: the program is being unwound, do nothing
  void block_until(CoreState& state, const Wait& wait, const char* instruction);
  void push(CoreState& state, Pipe pipe, Entry entry);
  void give_way(CoreState& state);

  // One step of an actor, run at once: from a queue or from the scalar program.
  void set_flag(CoreState& state, Pipe src, Pipe dst, int id, Bound issued);
  void wait_flag(CoreState& state, Pipe src, Pipe dst, int id, Bound issued);
  void cross_set(CoreState& state, Pipe pipe, int mode, int id, Bound issued);
  void cross_wait(CoreState& state, Pipe pipe, int mode, int id, Bound issued);
  bool ready(const CoreState& state, const Wait& wait) const;
  Channel& channel(int mode, int aiv, bool to_aiv, int id);
  const Channel& channel(int mode, int aiv, bool to_aiv, int id) const;
  Executing executing(CoreState& state, Pipe pipe, const char* instruction);

  const char* kernel;
  const bool vector_only;
  Memories memories;
  History history;
  Timeline timeline;
  Scheduler scheduler;
  CoreCounters counters[kCoresPerBlock];
  Knowledge known[kActors];
  CoreState cores[kCoresPerBlock];
  Channel channels[2][kSubCores][2][kCrossIds];  // [mode 4][AIV][to the AIV][id]
  bool cancelling = false;
  bool in_program = false;    // a scalar program runs, not an instruction
  std::string program_fault;  // of a scalar program

 private:
  void start_block(int block, const std::function<void()>& program);
  uint32_t runnable() const;
  void step(int actor);
  void run_head(CoreState& state, Pipe pipe);
  void run_work(CoreState& state, Pipe pipe, Entry& entry);
  void resume(CoreState& state);
  void cancel();
  void end_block();
  [[noreturn]] void deadlock() const;
};

Wait wait_of(const Entry& entry, Pipe pipe);  // kNothing when the entry waits for nothing
bool has_pipe(const Core& core, Pipe pipe);
Machine& machine();  // of the launch under way
void use_machine(Machine* under_way);

}  // namespace twin
