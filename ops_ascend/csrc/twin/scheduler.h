// scheduler.h -- which runnable actor goes next: any legal order, chosen to hurt, the same for the same seed.
#pragma once

#include <cstdint>

#include "twin/chips.h"

namespace twin {

class Scheduler {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  // One of the actors in `runnable` (bit = actor; the S pipe stands for the scalar program). Never called
  // with 0.
  int pick(uint32_t runnable);
  // How many instructions in a row the picked one may run.
  int burst(bool scalar_program);

 private:
  uint64_t next();
  void change_policy();
  uint64_t random_;
  uint32_t favoured_ = 0;  // run first
  uint32_t starved_ = 0;   // run only when nothing else can
  int picks_left_ = 0;
};

}  // namespace twin
