// chips.h -- the names of a chip's parts and the constants of the two chips.
//
// The library is compiled once per chip: __NPU_ARCH__ is 2201 (910B3) or 3510 (950PR).
#pragma once

#include <cstdint>

#if !defined(__NPU_ARCH__) || (__NPU_ARCH__ != 2201 && __NPU_ARCH__ != 3510)
#error "__NPU_ARCH__ must be 2201 (910B3) or 3510 (950PR)"
#endif

namespace twin {

enum class Memory : uint8_t { kGm, kUb, kL1, kL0a, kL0b, kL0c, kBt, kFb };
enum class Pipe : uint8_t { kS, kV, kMte1, kMte2, kMte3, kM, kFix };
enum class CoreKind : uint8_t { kAic, kAiv };

constexpr int kMemories = 8;
constexpr int kPipes = 7;
constexpr int kSubCores = 2;                   // AIVs of a block
constexpr int kCoresPerBlock = 1 + kSubCores;  // slot 0 is the AIC, 1 and 2 the AIVs
// An actor is one pipe of one core of the block. The scalar unit is two: its loads and stores are complete
// for the queues only after an event, while its waits hold for everything that it issues later.
constexpr int kActorsPerCore = kPipes + 1;
constexpr int kScalarData = kPipes;
constexpr int kActors = kCoresPerBlock * kActorsPerCore;
constexpr uint32_t kBlockBytes = 32;  // granule of every on-chip memory
constexpr bool kIs3510 = __NPU_ARCH__ == 3510;

struct Chip {
  const char* name;
  int arch;
  int aic_cores;
  uint32_t ub_bytes, l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes, bt_bytes, fb_bytes;
  double clock_ghz;
};

const Chip& chip();                      // of this library
uint32_t capacity_bytes(Memory memory);  // of one core's memory; 0 for GM
const char* memory_name(Memory memory);  // "UB"
const char* pipe_name(Pipe pipe);        // "MTE2"

}  // namespace twin
