// sync_intf.h -- events, barriers, cross-core flags, and what a core knows about itself.
#pragma once

#include "twin/ascendc/check.h"

namespace twin::api {

inline Pipe pipe_of(pipe_t pipe, const char* instruction) {
  switch (pipe) {
    case PIPE_S:
      return Pipe::kS;
    case PIPE_V:
      return Pipe::kV;
    case PIPE_M:
      return Pipe::kM;
    case PIPE_MTE1:
      return Pipe::kMte1;
    case PIPE_MTE2:
      return Pipe::kMte2;
    case PIPE_MTE3:
      return Pipe::kMte3;
    case PIPE_FIX:
      return Pipe::kFix;
    default:
      refuse(instruction, "pipe", static_cast<int64_t>(pipe), "must name one pipe");
  }
}

struct EventPipes {
  Pipe src, dst;
};

// The two pipes of an event, in the order of the enumeration.
inline EventPipes event_pipes(AscendC::HardEvent event) {
  constexpr Pipe S = Pipe::kS, V = Pipe::kV, M1 = Pipe::kMte1, M2 = Pipe::kMte2, M3 = Pipe::kMte3,
                 M = Pipe::kM, F = Pipe::kFix;
  static constexpr EventPipes kPairs[] = {
      {M2, M1}, {M1, M2}, {M1, M},  {M, M1},  {M2, V}, {V, M2}, {M3, V}, {V, M3}, {M, V},
      {V, M},   {V, V},   {M3, M1}, {M1, M3}, {M1, V}, {M2, M}, {M, M2}, {V, M1}, {M, F},
      {F, M},   {M3, M2}, {M2, M3}, {S, V},   {V, S},  {S, M2}, {M2, S}, {S, M3}, {M3, S},
      {M2, F},  {F, M2},  {F, S},   {M, S},   {F, M3}, {M1, F}, {F, M1}, {F, F},
  };
  static_assert(sizeof(kPairs) / sizeof(kPairs[0]) == static_cast<size_t>(AscendC::HardEvent::MAX),
                "an event has no pipes");
  return kPairs[static_cast<size_t>(event)];
}

}  // namespace twin::api

namespace AscendC {

template <HardEvent event>
__aicore__ inline void SetFlag(int32_t eventID) {
  const auto pipes = twin::api::event_pipes(event);
  twin::current().set_flag(pipes.src, pipes.dst, eventID);
}

template <HardEvent event>
__aicore__ inline void WaitFlag(int32_t eventID) {
  const auto pipes = twin::api::event_pipes(event);
  twin::current().wait_flag(pipes.src, pipes.dst, eventID);
}

template <pipe_t pipe>
__aicore__ inline void PipeBarrier() {
  if constexpr (pipe == PIPE_ALL) {
    twin::current().pipe_barrier_all();
  } else {
    twin::current().pipe_barrier(twin::api::pipe_of(pipe, "PipeBarrier"));
  }
}

template <uint8_t modeId, pipe_t pipe>
__aicore__ inline void CrossCoreSetFlag(uint16_t flagId) {
  if constexpr (pipe == PIPE_ALL) {
    twin::current().cross_set_all_pipes(modeId, flagId);
  } else {
    twin::current().cross_set(modeId, twin::api::pipe_of(pipe, "CrossCoreSetFlag"), flagId);
  }
}

// Modes 0, 1 and 2 share their ids, and the public samples wait for mode 2 with the defaults.
template <uint8_t modeId = 0, pipe_t pipe = PIPE_S>
__aicore__ inline void CrossCoreWaitFlag(uint16_t flagId) {
  twin::current().cross_wait(modeId == 0 ? 2 : modeId, twin::api::pipe_of(pipe, "CrossCoreWaitFlag"), flagId);
}

__aicore__ inline void InitSocState() {}

// AIC: the block; AIV: counts all AIVs of the launch, so it is the block when a block is one AIV.
__aicore__ inline int64_t GetBlockIdx() {
  const twin::Core& core = twin::current();
  return core.kind == twin::CoreKind::kAic ? core.block : core.block * core.aivs + core.sub;
}
__aicore__ inline int64_t GetBlockNum() { return twin::current().blocks; }
__aicore__ inline int64_t GetSubBlockIdx() { return twin::current().sub; }
__aicore__ inline int64_t GetSubBlockNum() {
  return twin::current().kind == twin::CoreKind::kAic ? 1 : twin::current().aivs;
}
__aicore__ inline int64_t GetTaskRatio() {
  return twin::current().kind == twin::CoreKind::kAic ? 1 : twin::current().aivs;
}

template <typename T>
__aicore__ inline void SetAtomicAdd() {
  twin::api::type_allowed<twin::api::kIsOneOf<T, int8_t, int16_t, half, bfloat16_t, int32_t, float>>(
      "SetAtomicAdd", twin::api::type_name<T>());
  twin::current().modes.atomic_add = true;
  twin::current().modes.atomic_type = twin::api::type_name<T>();
}
__aicore__ inline void DisableDmaAtomic() { twin::current().modes.atomic_add = false; }
__aicore__ inline void SetAtomicNone() { DisableDmaAtomic(); }

}  // namespace AscendC
