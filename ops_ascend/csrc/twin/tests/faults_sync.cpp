// faults_sync.cpp -- events, barriers, cross-core flags, deadlock.
#include "planted.h"

namespace planted {
namespace {

void events(Registry& r) {
  r.fault("event_set_twice", "must not be set again before its WaitFlag", [](const Gm&) {
    on_aiv([] {
      SetFlag<HardEvent::MTE2_V>(0);
      SetFlag<HardEvent::MTE2_V>(0);
      WaitFlag<HardEvent::MTE2_V>(0);
      WaitFlag<HardEvent::MTE2_V>(0);
    });
  });
  r.fault("event_set_before_wait_is_known", "must not be set again before its WaitFlag is certainly done",
          [](const Gm&) {
            on_aiv([] {
              hand_over<HardEvent::MTE2_V>();
              hand_over<HardEvent::MTE2_V>();
            });
          });
  r.fault("event_left_over", "must be waited for before the kernel ends",
          [](const Gm&) { on_aiv([] { SetFlag<HardEvent::MTE2_V>(3); }); });
  r.fault("event_reserved_id", "eventID (6) must be 0 to 5",
          [](const Gm&) { on_aiv([] { SetFlag<HardEvent::MTE2_V>(6); }); });
  r.fault("event_of_other_core", "must be one that this core has",
          [](const Gm&) { on_aiv([] { SetFlag<HardEvent::M_FIX>(0); }); });
  r.fault("event_never_set", "deadlock", [](const Gm&) { on_aiv([] { WaitFlag<HardEvent::MTE2_V>(0); }); });
  r.fault("event_wrong_id", "deadlock", [](const Gm&) {
    on_aiv([] {
      SetFlag<HardEvent::MTE2_V>(0);
      WaitFlag<HardEvent::MTE2_V>(1);
    });
  });
#if __NPU_ARCH__ == 2201
  r.fault("event_fix_mte1", "must not be used",
          [](const Gm&) { on_aic([] { SetFlag<HardEvent::FIX_MTE1>(0); }); });
#endif
  r.fault("barrier_of_scalar_pipe", "must be a pipe of this core other than PIPE_S",
          [](const Gm&) { on_aiv([] { PipeBarrier<PIPE_S>(); }); });
  r.fault("barrier_of_other_core", "must be a pipe of this core",
          [](const Gm&) { on_aiv([] { PipeBarrier<PIPE_M>(); }); });
  r.clean("events_paired", [](const Gm&) {
    on_aiv([] {
      for (int i = 0; i < 4; ++i) {
        hand_over<HardEvent::MTE2_V>();
        hand_over<HardEvent::V_MTE2>();
      }
    });
  });
}

// The AIC hands over to both AIVs n times on flag id; each AIV takes `takes`.
void broadcast(int n, int takes, int32_t id) {
  if ASCEND_IS_AIC {
    for (int i = 0; i < n; ++i) CrossCoreSetFlag<2, PIPE_FIX>(id);
  } else {
    for (int i = 0; i < takes; ++i) CrossCoreWaitFlag<2, PIPE_S>(id);
  }
}

void flags(Registry& r) {
  r.clean("flags_paired", [](const Gm&) { broadcast(5, 5, 1); });
  r.fault("flags_left_over", "left over for", [](const Gm&) { broadcast(5, 4, 1); });
  r.fault("flags_never_set", "deadlock", [](const Gm&) { broadcast(1, 2, 1); });
  r.fault("flags_overflow", "must never be more than 15 sets ahead", [](const Gm&) { broadcast(16, 16, 1); });
  r.fault("flags_reserved_id", "flagId (11) must be 0 to 10", [](const Gm&) { broadcast(1, 1, 11); });
  r.fault("flags_on_scalar_pipe", "must be the pipe whose work is handed over",
          [](const Gm&) { on_aic([] { CrossCoreSetFlag<2, PIPE_S>(1); }); });
  r.fault("flags_on_all_pipes", "must be the one pipe whose work is handed over",
          [](const Gm&) { on_aic([] { CrossCoreSetFlag<2, PIPE_ALL>(1); }); });
  r.fault("flags_mode_0", "is not in the twin's subset",
          [](const Gm&) { on_aic([] { CrossCoreSetFlag<0, PIPE_FIX>(1); }); });
  r.fault("flags_one_aiv_missing", "deadlock", [](const Gm&) {
    on_aiv([] { CrossCoreSetFlag<2, PIPE_MTE3>(1); });
    on_aic([] { CrossCoreWaitFlag<2, PIPE_S>(1); });
  });
  r.clean("flags_default_wait", [](const Gm&) {
    if ASCEND_IS_AIC {
      CrossCoreWaitFlag(4);
    } else {
      CrossCoreSetFlag<2, PIPE_MTE3>(4);
    }
  });
#if __NPU_ARCH__ == 3510
  r.clean("flags_one_aiv", [](const Gm&) {
    on_aiv([] { CrossCoreWaitFlag<4, PIPE_MTE2>(3); });
    on_aic([] { CrossCoreSetFlag<4, PIPE_FIX>(3); });
  });
  r.fault("flags_one_aiv_id", "must be 0 to 10 for AIV0 or 16 to 26 for AIV1",
          [](const Gm&) { on_aic([] { CrossCoreSetFlag<4, PIPE_FIX>(12); }); });
#else
  r.fault("flags_mode_4", "must be 2, or 4 on arch 3510",
          [](const Gm&) { on_aic([] { CrossCoreSetFlag<4, PIPE_FIX>(3); }); });
#endif
}

}  // namespace

void add_sync_faults(Registry& registry) {
  events(registry);
  flags(registry);
}

}  // namespace planted
