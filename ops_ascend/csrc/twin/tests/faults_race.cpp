// faults_race.cpp -- accesses that no event, barrier or flag orders.
#include "planted.h"

namespace planted {
namespace {

void between_pipes(Registry& r) {
  r.fault("race_mte2_then_v", "race", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 0.0f, 64);
      hand_over<HardEvent::V_MTE2>();
      DataCopy(ub(0), global<float>(gm.in), 64);
      Adds(ub(4096), ub(0), 1.0f, 64);
    });
  });
  r.fault("race_v_then_mte3", "race", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 0.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      Duplicate(ub(0), 1.0f, 64);
      DataCopy(global<float>(gm.out), ub(0), 64);
    });
  });
  r.fault("race_mte3_still_reads", "race with pipe", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 0.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.out), ub(0), 64);
      DataCopy(ub(4096), global<float>(gm.in), 64);
      hand_over<HardEvent::MTE2_V>();
      PipeBarrier<PIPE_V>();
      Duplicate(ub(0), 1.0f, 64);
    });
  });
  r.fault("race_two_writers", "race with pipe", [](const Gm& gm) {
    on_aiv([&] {
      DataCopy(ub(0), global<float>(gm.in), 64);
      Duplicate(ub(0), 1.0f, 64);
    });
  });
}

void inside_pipe(Registry& r) {
#if __NPU_ARCH__ == 2201
  r.fault("race_inside_v", "race with pipe V", [](const Gm&) {
    on_aiv([] {
      Duplicate(ub(0), 1.0f, 64);
      Adds(ub(4096), ub(0), 1.0f, 64);
    });
  });
#else
  r.clean("order_inside_v", [](const Gm&) {
    on_aiv([] {
      Duplicate(ub(0), 1.0f, 64);
      Adds(ub(4096), ub(0), 1.0f, 64);
    });
  });
#endif
  r.fault("race_inside_mte2", "WAW race with pipe MTE2", [](const Gm& gm) {
    on_aiv([&] {
      DataCopy(ub(0), global<float>(gm.in), 64);
      DataCopy(ub(0), global<float>(gm.in), 64);
    });
  });
  r.fault("race_inside_mte3", "WAW race with pipe MTE3", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.out), ub(0), 64);
      DataCopy(global<float>(gm.out)[32], ub(0), 64);
    });
  });
}

void with_scalar(Registry& r) {
  r.fault("race_scalar_read", "race", [](const Gm& gm) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 64);
      hand_over<HardEvent::V_S>();
      PipeBarrier<PIPE_V>();
      Duplicate(ub(0), 2.0f, 64);
      if (ub(0).GetValue(0) > 5.0f) DataCopy(ub(4096), global<float>(gm.in), 8);
    });
  });
  r.clean("order_scalar_read", [](const Gm&) {
    on_aiv([] {
      Duplicate(ub(0), 2.0f, 64);
      hand_over<HardEvent::V_S>();
      ub(0).GetValue(0);
    });
  });
  r.fault("race_scalar_write", "race", [](const Gm&) {
    on_aiv([] {
      ub(0, 8).SetValue(0, 1.0f);
      Duplicate(ub(0), 2.0f, 64);
    });
  });
}

void in_cube(Registry& r) {
  r.fault("race_l0_still_read", "race", [](const Gm&) {
    on_aic([] {
      const LocalTensor<half> l1(TPosition::A1, 0, 1024), a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
      Fill(l1, {1, 64, 0, static_cast<half>(1)});
      hand_over<HardEvent::MTE2_MTE1>();
      LoadData(a, l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
      LoadData(b, l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
      hand_over<HardEvent::MTE1_M>();
      Mmad(LocalTensor<float>(TPosition::CO1, 0, 256), a, b, MmadParams(16, 16, 16, 0, false, true));
      LoadData(a, l1, LoadData2DParams(1, 1, 1, 0, 0, false, 0));
    });
  });
}

// AIV0 writes the workspace, the AIC reads it after `flag` hand-overs.
void through_workspace(const Gm& gm, bool flag) {
  if ASCEND_IS_AIV {
    if (GetSubBlockIdx() == 0) {
      Duplicate(ub(0), 1.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.work), ub(0), 64);
    }
    if (flag) CrossCoreSetFlag<2, PIPE_MTE3>(1);
  } else {
    if (flag) CrossCoreWaitFlag<2, PIPE_S>(1);
    DataCopy(LocalTensor<float>(TPosition::A1, 0, 64), global<float>(gm.work), 64);
  }
}

void between_cores(Registry& r) {
  r.fault("race_aiv_to_aic", "GM work bytes 0..255", [](const Gm& gm) { through_workspace(gm, false); });
  r.clean("order_aiv_to_aic", [](const Gm& gm) { through_workspace(gm, true); });
  r.fault("race_flag_on_wrong_pipe", "race", [](const Gm& gm) {
    if ASCEND_IS_AIV {
      Duplicate(ub(0), 1.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.work)[64 * GetSubBlockIdx()], ub(0), 64);
      CrossCoreSetFlag<2, PIPE_MTE3>(1);
      CrossCoreWaitFlag<2, PIPE_S>(2);
      DataCopy(global<float>(gm.work)[64 * GetSubBlockIdx()], ub(0), 64);
      CrossCoreSetFlag<2, PIPE_V>(1);
    } else {
      CrossCoreWaitFlag<2, PIPE_S>(1);
      CrossCoreSetFlag<2, PIPE_MTE2>(2);
      CrossCoreWaitFlag<2, PIPE_S>(1);
      DataCopy(LocalTensor<float>(TPosition::A1, 0, 64), global<float>(gm.work), 64);
    }
  });
}

void between_vector_cores(Registry& r) {
  r.fault("race_between_aivs", "race", [](const Gm& gm) {
    if ASCEND_IS_AIV {
      Duplicate(ub(0), 1.0f, 64);
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.out), ub(0), 64);
    }
  });
  r.fault(
      "race_between_blocks", "between blocks",
      [](const Gm& gm) {
        on_aiv([&] {
          Duplicate(ub(0), 1.0f, 64);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out)[48 * (GetBlockIdx() / 2)], ub(0), 64);
        });
      },
      2);
  r.clean(
      "order_between_blocks",
      [](const Gm& gm) {
        on_aiv([&] {
          Duplicate(ub(0), 1.0f, 64);
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<float>(gm.out)[64 * (GetBlockIdx() / 2)], ub(0), 64);
        });
      },
      2);
}

}  // namespace

void add_race_faults(Registry& registry) {
  between_pipes(registry);
  inside_pipe(registry);
  with_scalar(registry);
  in_cube(registry);
  between_cores(registry);
  between_vector_cores(registry);
}

}  // namespace planted
