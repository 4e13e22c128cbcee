#include "twin/pipes.h"

#include <exception>
#include <stdexcept>
#include <utility>

namespace twin {
namespace {

thread_local Machine* under_way = nullptr;
thread_local Core* running = nullptr;

}  // namespace

Machine& machine() {
  if (under_way == nullptr) throw std::logic_error("there is no launch under way");
  return *under_way;
}

void use_machine(Machine* machine) {
  under_way = machine;
  running = nullptr;
}

Core& current() {
  if (running == nullptr) throw std::logic_error("no core runs now");
  return *running;
}

bool in_launch() { return running != nullptr; }
std::string kernel_name() { return machine().kernel; }

bool has_pipe(const Core& core, Pipe pipe) {
  switch (pipe) {
    case Pipe::kV:
      return core.kind == CoreKind::kAiv;
    case Pipe::kMte3:
      return core.kind == CoreKind::kAiv || !kIs3510;  // L1 -> GM is gone on 3510
    case Pipe::kMte1:
    case Pipe::kM:
    case Pipe::kFix:
      return core.kind == CoreKind::kAic;
    case Pipe::kS:
    case Pipe::kMte2:
      return true;
  }
  return false;
}

bool CoreState::drained() const {
  for (const Queue& queue : queues) {
    if (queue.count != 0) return false;
  }
  return true;
}

Machine::Machine(const char* name, int blocks, const std::vector<GmBuffer>& buffers, uint64_t seed,
                 bool only_vector)
    : kernel(name), vector_only(only_vector), memories(buffers), scheduler(seed) {
  for (int slot = 0; slot < kCoresPerBlock; ++slot) {
    CoreState& state = cores[slot];
    state.slot = slot;
    state.machine = this;
    state.counters = &counters[slot];
    state.core.state = &state;
    state.core.kind = slot == 0 ? CoreKind::kAic : CoreKind::kAiv;
    state.core.sub = slot == 0 ? 0 : slot - 1;
    state.core.blocks = blocks;
    state.core.aivs = vector_only ? 1 : kSubCores;
  }
}

void Machine::start_block(int block, const std::function<void()>& program) {
  memories.start_block();
  history.start_block(block);
  for (Knowledge& knowledge : known) {
    for (int i = 0; i < kActors; ++i) knowledge.epoch[i] = history.block_start()[i];
  }
  for (CoreState& state : cores) {
    state.core.block = block;
    state.core.modes = Modes{};
    state.waiting = Wait{};
    for (Queue& queue : state.queues) {
      queue.head = queue.count = 0;
      for (Bound& left : queue.left) left = Bound{};
    }
    if (vector_only && state.slot != 1) continue;  // its program never starts, so it counts as finished
    state.fiber.start([this, &state, &program] {
      try {
        if (!cancelling) program();
      } catch (const Cancelled&) {
      } catch (const Fault& fault) {
        program_fault = fault.what();
      } catch (const std::exception& error) {
        program_fault = sentence(state.core, "scalar program", "", "", std::string("threw: ") + error.what());
      }
    });
  }
}

double Machine::run_block(int block, bool record, const std::function<void()>& program) {
  start_block(block, program);
  timeline.start_block(record);
  std::exception_ptr failure;
  try {
    for (uint32_t choice = runnable(); choice != 0; choice = runnable()) step(scheduler.pick(choice));
    for (const CoreState& state : cores) {
      if (!state.fiber.finished() || !state.drained()) deadlock();
    }
    end_block();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) {
    cancel();
    std::rethrow_exception(failure);
  }
  return timeline.end_cycles();
}

uint32_t Machine::runnable() const {
  uint32_t choice = 0;
  for (const CoreState& state : cores) {
    if (!state.fiber.finished() && ready(state, state.waiting)) choice |= 1u << state.actor(Pipe::kS);
    for (int i = 0; i < kPipes; ++i) {
      const Queue& queue = state.queues[i];
      if (queue.count == 0) continue;
      const auto pipe = static_cast<Pipe>(i);
      if (ready(state, wait_of(queue.entries[queue.head], pipe))) choice |= 1u << state.actor(pipe);
    }
  }
  return choice;
}

void Machine::step(int actor) {
  CoreState& state = cores[actor / kActorsPerCore];
  const auto pipe = static_cast<Pipe>(actor % kActorsPerCore);
  const int burst = scheduler.burst(pipe == Pipe::kS);
  if (pipe == Pipe::kS) {
    state.quantum = burst;
    resume(state);
    if (!program_fault.empty()) throw Fault(program_fault);
    return;
  }
  const Queue& queue = state.queues[static_cast<int>(pipe)];
  for (int i = 0; i < burst && queue.count != 0; ++i) {
    if (!ready(state, wait_of(queue.entries[queue.head], pipe))) return;
    run_head(state, pipe);
  }
}

void Machine::resume(CoreState& state) {
  running = &state.core;
  in_program = true;
  state.fiber.resume();
  in_program = false;
  running = nullptr;
}

void Machine::cancel() {
  cancelling = true;
  for (CoreState& state : cores) {
    if (!state.fiber.finished()) resume(state);
  }
}

void Machine::run_head(CoreState& state, Pipe pipe) {
  Queue& queue = state.queues[static_cast<int>(pipe)];
  Entry& entry = queue.entries[queue.head];
  known[state.actor(pipe)].join(entry.inherited);
  running = &state.core;
  switch (entry.kind) {
    case Entry::kWork:
      run_work(state, pipe, entry);
      break;
    case Entry::kSetFlag:
      set_flag(state, pipe, entry.other, entry.id, entry.issued);
      break;
    case Entry::kWaitFlag:
      wait_flag(state, entry.other, pipe, entry.id, entry.issued);
      break;
    case Entry::kCrossSet:
      cross_set(state, pipe, entry.mode, entry.id, entry.issued);
      break;
    case Entry::kCrossWait:
      cross_wait(state, pipe, entry.mode, entry.id, entry.issued);
      break;
    case Entry::kBarrier: {
      const int actor = state.actor(pipe);
      known[actor].epoch[actor] = history.next(actor, entry.instruction);
      timeline.run(actor, entry.instruction, flag_cycles(), false, {entry.issued});
      break;
    }
  }
  running = nullptr;
  queue.left[queue.head] = timeline.now(state.actor(pipe));
  if (entry.kind == Entry::kWork) {
    queue.left[queue.head].cycles -= entry.cost.cycles;  // room is made when it starts
    entry.work = nullptr;
  }
  queue.head = (queue.head + 1) % kQueueDepth;
  --queue.count;
}

Executing Machine::executing(CoreState& state, Pipe pipe, const char* instruction) {
  Executing now;
  now.memories = &memories;
  now.history = &history;
  now.core = &state.core;
  now.slot = state.slot;
  now.pipe = pipe;
  now.instruction = instruction;
  const bool scalar = pipe == Pipe::kS;
  now.toucher.actor = scalar ? state.slot * kActorsPerCore + kScalarData : state.actor(pipe);
  now.toucher.epoch = history.next(now.toucher.actor, instruction);
  // 950PR's vector unit keeps dependent instructions in order by itself; 910B3's needs PipeBarrier<PIPE_V>.
  now.toucher.orders_itself = scalar || pipe == Pipe::kM || (pipe == Pipe::kV && kIs3510);
  now.toucher.known = &known[state.actor(pipe)];
  now.toucher.block_start = history.block_start();
  return now;
}

void Machine::run_work(CoreState& state, Pipe pipe, Entry& entry) {
  Executing now = executing(state, pipe, entry.instruction);
  Access access(now);
  entry.work(access);
  now.settle(*state.counters);
  PipeCounter& counter = state.counters->pipes[static_cast<int>(pipe)];
  ++counter.instructions;
  counter.repeats += entry.cost.repeats;
  counter.busy_cycles += entry.cost.cycles;
  state.counters->macs += entry.cost.macs;
  timeline.run(state.actor(pipe), entry.instruction, entry.cost.cycles, true, {entry.issued});
}

bool Machine::enter(Core&) {
  // A destructor of the kernel may issue while its program is being unwound.
  if (std::uncaught_exceptions() > 0) return false;
  if (cancelling) throw Cancelled{};
  if (!in_program) throw std::logic_error("an instruction must not issue another");
  return true;
}

void Machine::block_until(CoreState& state, const Wait& wait, const char* instruction) {
  while (!ready(state, wait)) {
    state.waiting = wait;
    state.waiting_in = instruction;
    state.fiber.yield();
    if (cancelling) throw Cancelled{};
  }
  state.waiting = Wait{};
}

void Machine::give_way(CoreState& state) {
  if (--state.quantum > 0) return;
  state.fiber.yield();
  if (cancelling) throw Cancelled{};
}

void Machine::push(CoreState& state, Pipe pipe, Entry entry) {
  Queue& queue = state.queues[static_cast<int>(pipe)];
  Wait room;
  room.kind = Wait::kRoom;
  room.pipe = pipe;
  block_until(state, room, entry.instruction);
  const uint32_t place = (queue.head + queue.count) % kQueueDepth;
  const int scalar = state.actor(Pipe::kS);
  timeline.hold(scalar, "queue full", queue.left[place]);
  timeline.spend(scalar, issue_cycles());
  entry.issued = timeline.now(scalar);
  entry.inherited = known[scalar];
  entry.inherited.epoch[scalar] = history.current(scalar);
  queue.entries[place] = std::move(entry);
  ++queue.count;
  give_way(state);
}

void Core::issue(Pipe pipe, const char* instruction, const Cost& cost, std::function<void(Access&)> work) {
  Machine& host = *state->machine;
  if (!host.enter(*this)) return;
  if (pipe == Pipe::kS || !has_pipe(*this, pipe)) {
    fault(instruction, "", "",
          std::string("must run on a core with pipe ") + pipe_name(pipe) +
              " (elsewhere it is silently nothing on silicon)");
  }
  Entry entry;
  entry.instruction = instruction;
  entry.cost = cost;
  entry.work = std::move(work);
  host.push(*state, pipe, std::move(entry));
}

namespace {

template <typename Use>
auto scalar_access(CoreState& state, const Place& place, uint64_t bytes, const char* instruction, Use use) {
  Machine& host = *state.machine;
  host.timeline.spend(state.actor(Pipe::kS), scalar_access_cycles(place.memory));
  Executing now = host.executing(state, Pipe::kS, instruction);
  Access access(now);
  auto* address = use(access);
  if (place.memory == Memory::kGm) access.count_path(Memory::kGm, Memory::kGm, bytes);
  now.settle(*state.counters);
  ++state.counters->pipes[static_cast<int>(Pipe::kS)].instructions;
  return address;
}

}  // namespace

const uint8_t* Core::scalar_read(const Place& place, uint64_t offset, uint64_t bytes,
                                 const char* instruction) {
  static const uint8_t kNothing[64] = {};
  if (!state->machine->enter(*this)) return kNothing;
  return scalar_access(*state, place, bytes, instruction,
                       [&](Access& access) { return access.read(place, offset, bytes, "source"); });
}

uint8_t* Core::scalar_write(const Place& place, uint64_t offset, uint64_t bytes, const char* instruction) {
  static thread_local uint8_t nowhere[64];
  if (!state->machine->enter(*this)) return nowhere;
  return scalar_access(*state, place, bytes, instruction,
                       [&](Access& access) { return access.write(place, offset, bytes, "destination"); });
}

void Core::fault(const char* instruction, const std::string& operand, const std::string& value,
                 const std::string& rule) const {
  throw Fault(sentence(*this, instruction, operand, value, rule));
}

}  // namespace twin
