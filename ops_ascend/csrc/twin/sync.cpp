#include "twin/sync.h"

#include "twin/pipes.h"

namespace twin {
namespace {

std::string pipe_value(Pipe pipe) { return std::string("PIPE_") + pipe_name(pipe); }

std::string event_value(Pipe src, Pipe dst) { return std::string(pipe_name(src)) + "_" + pipe_name(dst); }

// Pairs of pipes that have events. 2201: the tables of its documentation; 3510: any two pipes of the core.
bool event_exists(const Core& core, Pipe src, Pipe dst) {
  if (src == dst || !has_pipe(core, src) || !has_pipe(core, dst)) return false;
  if (kIs3510 || core.kind == CoreKind::kAiv) return true;
  if (src == Pipe::kS || dst == Pipe::kS) return false;
  if (src == Pipe::kM && dst == Pipe::kMte3) return false;
  return !(src == Pipe::kMte3 && dst == Pipe::kM);
}

void check_event(const Core& core, const char* instruction, Pipe src, Pipe dst, int id) {
  if (!event_exists(core, src, dst)) {
    core.fault(instruction, "event", event_value(src, dst), "must be one that this core has");
  }
  if (!kIs3510 && src == Pipe::kFix && dst == Pipe::kMte1) {
    core.fault(instruction, "event", event_value(src, dst),
               "must not be used: it hung on silicon, PIPE_ALL is the way");
  }
  if (id < 0 || id >= kEventIds) {
    core.fault(instruction, "eventID", std::to_string(id), "must be 0 to 5 (6 and 7 are reserved)");
  }
}

void check_cross(const Core& core, const char* instruction, int mode, Pipe pipe, int id) {
  if (core.aivs == 1) {
    core.fault(instruction, "", "",
               "must not be called in a vector-only launch: the block has no other core");
  }
  if (mode == 0 || mode == 1) {
    core.fault(instruction, "modeId", std::to_string(mode),
               "is not in the twin's subset: use 2, or 4 on 3510");
  }
  if (mode != 2 && !(mode == 4 && kIs3510)) {
    core.fault(instruction, "modeId", std::to_string(mode), "must be 2, or 4 on arch 3510");
  }
  if (pipe != Pipe::kS && !has_pipe(core, pipe)) {
    core.fault(instruction, "pipe", pipe_value(pipe), "must be a pipe of this core");
  }
  const bool wide = mode == 4 && core.kind == CoreKind::kAic;
  const int low = wide && id >= kSecondAivIds ? id - kSecondAivIds : id;
  if (low < 0 || low >= kCrossIds) {
    core.fault(instruction, "flagId", std::to_string(id),
               wide ? "must be 0 to 10 for AIV0 or 16 to 26 for AIV1"
                    : "must be 0 to 10 (11 to 14 belong to SyncAll)");
  }
}

// The AIVs that a flag of `core` concerns: both in mode 2, one in mode 4, itself on an AIV.
struct AivRange {
  int first, end, id;
};

AivRange aivs_of(const CoreState& state, int mode, int id) {
  if (state.core.kind == CoreKind::kAiv) return {state.core.sub, state.core.sub + 1, id};
  if (mode == 2) return {0, kSubCores, id};
  const int aiv = id >= kSecondAivIds ? 1 : 0;
  return {aiv, aiv + 1, id - aiv * kSecondAivIds};
}

void schedule(Core& core, Pipe pipe, Entry::Kind kind, const char* instruction, Pipe other, int mode,
              int id) {
  Entry entry;
  entry.kind = kind;
  entry.instruction = instruction;
  entry.other = other;
  entry.mode = mode;
  entry.id = id;
  core.state->machine->push(*core.state, pipe, std::move(entry));
}

// What the pipe's actor knows, itself included: the set comes after everything before it on the pipe.
Knowledge snapshot(Machine& host, const CoreState& state, Pipe pipe, const char* instruction) {
  const int actor = state.actor(pipe);
  Knowledge result = host.known[actor];
  result.epoch[actor] = host.history.next(actor, instruction);
  const int data = state.slot * kActorsPerCore + kScalarData;
  if (pipe == Pipe::kS) result.epoch[data] = host.history.current(data);
  return result;
}

}  // namespace

Wait wait_of(const Entry& entry, Pipe pipe) {
  Wait wait;
  if (entry.kind == Entry::kWaitFlag) wait.kind = Wait::kFlag;
  if (entry.kind == Entry::kCrossWait) wait.kind = Wait::kCredit;
  wait.pipe = entry.other;
  wait.at = pipe;
  wait.id = entry.id;
  wait.mode = entry.mode;
  return wait;
}

bool Machine::ready(const CoreState& state, const Wait& wait) const {
  switch (wait.kind) {
    case Wait::kNothing:
      return true;
    case Wait::kFlag:
      return state.flags[static_cast<int>(wait.pipe)][static_cast<int>(wait.at)][wait.id].set;
    case Wait::kRoom:
      return state.queues[static_cast<int>(wait.pipe)].count < kQueueDepth;
    case Wait::kDrain:
      return state.drained();
    case Wait::kCredit: {
      const AivRange aivs = aivs_of(state, wait.mode, wait.id);
      for (int aiv = aivs.first; aiv < aivs.end; ++aiv) {
        if (channel(wait.mode, aiv, state.core.kind == CoreKind::kAiv, aivs.id).credits.empty()) return false;
      }
      return true;
    }
  }
  return false;
}

Channel& Machine::channel(int mode, int aiv, bool to_aiv, int id) {
  return channels[mode == 4 ? 1 : 0][aiv][to_aiv ? 1 : 0][id];
}

const Channel& Machine::channel(int mode, int aiv, bool to_aiv, int id) const {
  return channels[mode == 4 ? 1 : 0][aiv][to_aiv ? 1 : 0][id];
}

void Machine::set_flag(CoreState& state, Pipe src, Pipe dst, int id, Bound issued) {
  const int actor = state.actor(src);
  Flag& flag = state.flags[static_cast<int>(src)][static_cast<int>(dst)][id];
  // One bit in hardware. That this order of the queues happened to wait first is not enough: the wait must be
  // known.
  if (flag.set || known[actor].epoch[state.actor(dst)] < flag.waited) {
    state.core.fault(
        "SetFlag", "eventID", std::to_string(id),
        "of " + event_value(src, dst) +
            " must not be set again before its WaitFlag is certainly done (an event back, or another id)");
  }
  flag.known = snapshot(*this, state, src, "SetFlag");
  flag.when = timeline.run(actor, "SetFlag", flag_cycles(), false, {issued});
  flag.set = true;
}

void Machine::wait_flag(CoreState& state, Pipe src, Pipe dst, int id, Bound issued) {
  const int actor = state.actor(dst);
  Flag& flag = state.flags[static_cast<int>(src)][static_cast<int>(dst)][id];
  known[actor].join(flag.known);
  flag.waited = history.next(actor, "WaitFlag");
  flag.set = false;
  timeline.run(actor, "WaitFlag", flag_cycles(), false, {issued, flag.when});
}

void Machine::cross_set(CoreState& state, Pipe pipe, int mode, int id, Bound issued) {
  const int actor = state.actor(pipe);
  const Knowledge now = snapshot(*this, state, pipe, "CrossCoreSetFlag");
  Bound when = timeline.run(actor, "CrossCoreSetFlag", flag_cycles(), false, {issued});
  when.cycles += cross_core_cycles();
  ++state.counters->hand_offs;
  const bool to_aiv = state.core.kind == CoreKind::kAic;
  const AivRange aivs = aivs_of(state, mode, id);
  for (int aiv = aivs.first; aiv < aivs.end; ++aiv) {
    Channel& line = channel(mode, aiv, to_aiv, aivs.id);
    while (!line.waits.empty() && line.waits.front().second <= now.epoch[line.waits.front().first]) {
      line.waits.pop_front();
      ++line.seen_waits;
    }
    if (++line.sets - line.seen_waits > kMostCredits) {
      state.core.fault("CrossCoreSetFlag", "flagId", std::to_string(id),
                       "must never be more than 15 sets ahead of the waits that this core knows to be done");
    }
    line.credits.push_back({now, when});
  }
}

void Machine::cross_wait(CoreState& state, Pipe pipe, int mode, int id, Bound issued) {
  const int actor = state.actor(pipe);
  const bool to_aiv = state.core.kind == CoreKind::kAiv;
  const AivRange aivs = aivs_of(state, mode, id);
  const uint32_t epoch = history.next(actor, "CrossCoreWaitFlag");
  Bound latest = issued;
  for (int aiv = aivs.first; aiv < aivs.end; ++aiv) {
    Channel& line = channel(mode, aiv, to_aiv, aivs.id);
    known[actor].join(line.credits.front().known);
    if (line.credits.front().when.cycles > latest.cycles) latest = line.credits.front().when;
    line.credits.pop_front();
    line.waits.push_back({actor, epoch});
  }
  timeline.run(actor, "CrossCoreWaitFlag", flag_cycles(), false, {latest});
}

void Machine::end_block() {
  for (const CoreState& state : cores) {
    for (int i = 0; i < kPipes * kPipes * kEventIds; ++i) {
      const int src = i / (kPipes * kEventIds), dst = i / kEventIds % kPipes, id = i % kEventIds;
      if (!state.flags[src][dst][id].set) continue;
      state.core.fault("SetFlag", "eventID", std::to_string(id),
                       "of " + event_value(static_cast<Pipe>(src), static_cast<Pipe>(dst)) +
                           " must be waited for before the kernel ends");
    }
  }
  for (int mode = 2; mode <= 4; mode += 2) {
    for (int i = 0; i < kSubCores * 2 * kCrossIds; ++i) {
      const int aiv = i / (2 * kCrossIds), to_aiv = i / kCrossIds % 2, id = i % kCrossIds;
      const size_t left = channel(mode, aiv, to_aiv != 0, id).credits.size();
      if (left == 0) continue;
      const int shown = mode == 4 && to_aiv != 0 ? id + aiv * kSecondAivIds : id;
      cores[to_aiv != 0 ? 0 : 1 + aiv].core.fault(
          "CrossCoreSetFlag", "flagId", std::to_string(shown),
          "must be waited for before the kernel ends: " + std::to_string(left) + " left over for " +
              core_name(to_aiv != 0 ? 1 + aiv : 0));
    }
  }
}

void Core::set_flag(Pipe src, Pipe dst, int id) {
  if (!state->machine->enter(*this)) return;
  check_event(*this, "SetFlag", src, dst, id);
  if (src != Pipe::kS) return schedule(*this, src, Entry::kSetFlag, "SetFlag", dst, 0, id);
  state->machine->set_flag(*state, src, dst, id, Bound{});
  state->machine->give_way(*state);
}

void Core::wait_flag(Pipe src, Pipe dst, int id) {
  if (!state->machine->enter(*this)) return;
  check_event(*this, "WaitFlag", src, dst, id);
  if (dst != Pipe::kS) return schedule(*this, dst, Entry::kWaitFlag, "WaitFlag", src, 0, id);
  Wait wait;
  wait.kind = Wait::kFlag;
  wait.pipe = src;
  wait.id = id;
  state->machine->block_until(*state, wait, "WaitFlag");
  state->machine->wait_flag(*state, src, dst, id, Bound{});
}

void Core::pipe_barrier(Pipe pipe) {
  if (!state->machine->enter(*this)) return;
  if (pipe == Pipe::kS || !has_pipe(*this, pipe)) {
    fault("PipeBarrier", "pipe", pipe_value(pipe), "must be a pipe of this core other than PIPE_S");
  }
  schedule(*this, pipe, Entry::kBarrier, "PipeBarrier", pipe, 0, 0);
}

void Core::pipe_barrier_all() {
  Machine& host = *state->machine;
  if (!host.enter(*this)) return;
  Wait wait;
  wait.kind = Wait::kDrain;
  host.block_until(*state, wait, "PipeBarrier<PIPE_ALL>");
  Knowledge all;
  for (int i = 0; i < kPipes; ++i) {
    const auto pipe = static_cast<Pipe>(i);
    all.join(snapshot(host, *state, pipe, "PipeBarrier<PIPE_ALL>"));
    host.timeline.hold(state->actor(Pipe::kS), "PipeBarrier<PIPE_ALL>",
                       host.timeline.now(state->actor(pipe)));
  }
  for (int i = 0; i < kPipes; ++i) host.known[state->actor(static_cast<Pipe>(i))] = all;
}

void Core::cross_set(int mode, Pipe pipe, int id) {
  if (!state->machine->enter(*this)) return;
  check_cross(*this, "CrossCoreSetFlag", mode, pipe, id);
  if (pipe == Pipe::kS && mode != 4) {
    fault("CrossCoreSetFlag", "pipe", "PIPE_S", "must be the pipe whose work is handed over");
  }
  if (pipe != Pipe::kS) return schedule(*this, pipe, Entry::kCrossSet, "CrossCoreSetFlag", pipe, mode, id);
  state->machine->cross_set(*state, pipe, mode, id, Bound{});
  state->machine->give_way(*state);
}

void Core::cross_set_all_pipes(int mode, int id) {
  if (!state->machine->enter(*this)) return;
  check_cross(*this, "CrossCoreSetFlag", mode, Pipe::kS, id);
  fault("CrossCoreSetFlag", "pipe", "PIPE_ALL", "must be the one pipe whose work is handed over");
}

void Core::cross_wait(int mode, Pipe pipe, int id) {
  if (!state->machine->enter(*this)) return;
  check_cross(*this, "CrossCoreWaitFlag", mode, pipe, id);
  if (kIs3510 && pipe != Pipe::kS) {
    return schedule(*this, pipe, Entry::kCrossWait, "CrossCoreWaitFlag", pipe, mode, id);
  }
  Wait wait;
  wait.kind = Wait::kCredit;
  wait.mode = mode;
  wait.id = id;
  state->machine->block_until(*state, wait, "CrossCoreWaitFlag");
  state->machine->cross_wait(*state, Pipe::kS, mode, id, Bound{});
}

namespace {

std::string waits_for(const CoreState& state, const Wait& wait) {
  switch (wait.kind) {
    case Wait::kFlag:
      return "event " + std::to_string(wait.id) + " of " + event_value(wait.pipe, wait.at);
    case Wait::kRoom:
      return std::string("room in the queue of ") + pipe_name(wait.pipe);
    case Wait::kDrain:
      return "its queues to drain";
    case Wait::kNothing:
      return "nothing";
    case Wait::kCredit:
      break;
  }
  const AivRange aivs = aivs_of(state, wait.mode, wait.id);
  std::string from = "the AIC";
  if (state.core.kind == CoreKind::kAic) {
    from.clear();
    for (int aiv = aivs.first; aiv < aivs.end; ++aiv) {
      const bool missing = state.machine->channel(wait.mode, aiv, false, aivs.id).credits.empty();
      if (missing) from += (from.empty() ? "" : " and ") + std::string(core_name(1 + aiv));
    }
  }
  return "flag " + std::to_string(wait.id) + " from " + from;
}

}  // namespace

void Machine::deadlock() const {
  std::string list;
  const CoreState* first = nullptr;
  Wait root;
  const char* instruction = "";
  auto note = [&](const CoreState& state, Pipe pipe, const Wait& wait, const char* name) {
    list += (list.empty() ? "" : ", ") + std::string(core_name(state.slot)) + " " + pipe_name(pipe) + " in " +
            name + " waits for " + waits_for(state, wait);
    const bool consequence = wait.kind == Wait::kRoom || wait.kind == Wait::kDrain;
    if (first != nullptr && consequence) return;
    if (first != nullptr && root.kind != Wait::kRoom && root.kind != Wait::kDrain) return;
    first = &state;
    root = wait;
    instruction = name;
  };
  for (const CoreState& state : cores) {
    if (!state.fiber.finished()) note(state, Pipe::kS, state.waiting, state.waiting_in);
    for (int i = 0; i < kPipes; ++i) {
      const Queue& queue = state.queues[i];
      if (queue.count == 0) continue;
      const Entry& head = queue.entries[queue.head];
      note(state, static_cast<Pipe>(i), wait_of(head, static_cast<Pipe>(i)), head.instruction);
    }
  }
  const char* operand = root.kind == Wait::kCredit ? "flagId" : "eventID";
  first->core.fault(instruction, operand, std::to_string(root.id),
                    "must be set or nothing goes on (deadlock): " + list);
}

}  // namespace twin
