#include "twin/chips.h"

namespace twin {
namespace {

// Sizes that a kernel may use; sources in ops_ascend/README.md. 2201 keeps 256 B of its UB for
// itself. The clock of 3510 is published nowhere: 1.8 GHz is assumed, so every time of that chip is doubly
// modelled. Of 3510's die variants (28, 32 or 36 cores) the middle one is taken.
constexpr uint32_t kKib = 1024;
#if __NPU_ARCH__ == 2201
constexpr Chip kChip = {"910B3",   2201,       20,       192 * kKib - 256, 512 * kKib, 64 * kKib,
                        64 * kKib, 128 * kKib, 1 * kKib, 2 * kKib,         1.8};
#else
constexpr Chip kChip = {"950PR",   3510,       32,       248 * kKib, 512 * kKib, 64 * kKib,
                        64 * kKib, 256 * kKib, 4 * kKib, 4 * kKib,   1.8};
#endif

}  // namespace

const Chip& chip() { return kChip; }

uint32_t capacity_bytes(Memory memory) {
  switch (memory) {
    case Memory::kGm:
      return 0;
    case Memory::kUb:
      return chip().ub_bytes;
    case Memory::kL1:
      return chip().l1_bytes;
    case Memory::kL0a:
      return chip().l0a_bytes;
    case Memory::kL0b:
      return chip().l0b_bytes;
    case Memory::kL0c:
      return chip().l0c_bytes;
    case Memory::kBt:
      return chip().bt_bytes;
    case Memory::kFb:
      return chip().fb_bytes;
  }
  return 0;
}

const char* memory_name(Memory memory) {
  static const char* const kNames[kMemories] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB"};
  return kNames[static_cast<int>(memory)];
}

const char* pipe_name(Pipe pipe) {
  static const char* const kNames[kActorsPerCore] = {"S", "V", "MTE1", "MTE2", "MTE3", "M", "FIX", "S"};
  return kNames[static_cast<int>(pipe)];
}

}  // namespace twin
