// sync.h -- events inside a core and credits between the cores of a block.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "twin/chips.h"
#include "twin/shadow.h"
#include "twin/timeline.h"

namespace twin {

constexpr int kEventIds = 6;       // 6 and 7 are reserved
constexpr int kCrossIds = 11;      // 11 to 14 belong to SyncAll
constexpr int kSecondAivIds = 16;  // mode 4 on the AIC: ids 16 to 26 are AIV1's 0 to 10
constexpr uint64_t kMostCredits = 15;

// One (source pipe, destination pipe, id) of a core: a single bit in hardware.
struct Flag {
  bool set = false;
  uint32_t waited = 0;  // epoch of the destination's last wait
  Knowledge known;      // of the source when it set
  Bound when;
};

// Credits of one id in one direction between the AIC and one AIV.
struct Channel {
  struct Credit {
    Knowledge known;
    Bound when;
  };
  std::deque<Credit> credits;
  std::deque<std::pair<int, uint32_t>> waits;  // (actor, epoch) of waits that no setter is known to know of
  uint64_t sets = 0, seen_waits = 0;
};

// What a scalar program or the head of a queue waits for.
struct Wait {
  enum Kind : uint8_t { kNothing, kFlag, kCredit, kRoom, kDrain } kind = kNothing;
  Pipe pipe = Pipe::kS;  // flag: source; room: the full queue
  Pipe at = Pipe::kS;    // flag: destination
  int id = 0;
  int mode = 0;
};

}  // namespace twin
