// modes.h -- sticky settings of a core that an instruction captures when it is issued.
#pragma once

#include <cstdint>

namespace twin {

struct Modes {
  bool atomic_add = false;         // SetAtomicAdd: stores to GM add
  const char* atomic_type = "";    // its element type, as ascendc/check.h names types
  bool hf32 = false;               // SetHF32Mode
  bool hf32_half_to_zero = false;  // SetHF32TransMode(NEAREST_ZERO): ties go to zero, not to even
};

}  // namespace twin
