// cube_results.h -- where products grow in L0C until they are stored: two small slots, and one or two large
// ones for several heads side by side.
//
// Begin before the first product of a slot, Ready before its store, Stored after it. A large slot stays open
// while small ones come and go.
#ifndef VMAMBA2_CUBE_RESULTS_H
#define VMAMBA2_CUBE_RESULTS_H

#include "kernel_operator.h"

namespace vmamba2 {

class CubeResults {
 public:
  static constexpr int32_t kSmallBytes = 32 * 1024;
  static constexpr int32_t kSmallSlots = 2;

  // The large slots share the `large_bytes` behind the small ones; each has to hold `needed_bytes`.
  __aicore__ inline void Init(int32_t large_bytes, int32_t needed_bytes) {
    large_slots_ = large_bytes / needed_bytes > 1 ? 2 : 1;
    large_bytes_ = large_bytes / large_slots_;
    small_ = large_ = 0;
  }

  __aicore__ inline void GrantFreeSlots() {
    for (int32_t id = 0; id < kEvents; ++id) {
      AscendC::SetFlag<AscendC::HardEvent::FIX_M>(id);
    }
  }

  __aicore__ inline void TakeBackFreeSlots() {
    for (int32_t id = 0; id < kEvents; ++id) {
      AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(id);
    }
  }

  __aicore__ inline AscendC::LocalTensor<float> BeginSmall() const {
    AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(small_);
    return Region(small_ * kSmallBytes, kSmallBytes);
  }
  __aicore__ inline void SmallReady() const { Ready(small_); }
  __aicore__ inline void SmallStored() {
    AscendC::SetFlag<AscendC::HardEvent::FIX_M>(small_);
    small_ = 1 - small_;
  }

  // Where the large result will grow; nothing may be written there before BeginLarge.
  __aicore__ inline AscendC::LocalTensor<float> Large() const {
    return Region(kSmallSlots * kSmallBytes + large_ * large_bytes_, large_bytes_);
  }
  __aicore__ inline void BeginLarge() const {
    AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(kSmallSlots + large_);
  }
  __aicore__ inline void LargeReady() const { Ready(kSmallSlots + large_); }
  __aicore__ inline void LargeStored() {
    AscendC::SetFlag<AscendC::HardEvent::FIX_M>(kSmallSlots + large_);
    large_ = (large_ + 1) % large_slots_;
  }

 private:
  static constexpr int32_t kEvents = kSmallSlots + 2;

  __aicore__ inline AscendC::LocalTensor<float> Region(int32_t at, int32_t bytes) const {
    return AscendC::LocalTensor<float>(AscendC::TPosition::CO1, at, bytes / 4);
  }
  __aicore__ inline void Ready(int32_t id) const {
    AscendC::SetFlag<AscendC::HardEvent::M_FIX>(id);
    AscendC::WaitFlag<AscendC::HardEvent::M_FIX>(id);
  }

  int32_t large_slots_, large_bytes_;
  int32_t small_, large_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_CUBE_RESULTS_H
