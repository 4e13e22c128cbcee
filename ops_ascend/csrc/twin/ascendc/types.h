// types.h -- the language extension of Ascend C on the host: keywords, scalar types, enumerations.
//
// Names and enumerators are those of the public headers (what a kernel spells); `half` and `bfloat16_t` are
// compiler types there.
#pragma once

#include <cstdint>
#include <cstring>

#include "twin/core.h"

#define __aicore__
#define __gm__
#define __global__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __cube__
#define __vector__
#define __mix__(cube, vector)
#define GM_ADDR __gm__ uint8_t*
#define ASCEND_IS_AIC (::twin::current().kind == ::twin::CoreKind::kAic)
#define ASCEND_IS_AIV (::twin::current().kind == ::twin::CoreKind::kAiv)
#define KERNEL_TASK_TYPE_DEFAULT(type)

using half = _Float16;

// The upper half of a float. Storage only, as on the chips: no arithmetic, conversions round to nearest even.
struct bfloat16_t {
  uint16_t bits;

  bfloat16_t() = default;
  bfloat16_t(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }

  explicit operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_ALL, PIPE_FIX = 10 };
enum event_t { EVENT_ID0 = 0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };
enum QuantMode_t { NoQuant = 0, F322F16 = 1, F322BF16 = 16 };
enum KernelMetaType {
  KERNEL_TYPE_AIV_ONLY,
  KERNEL_TYPE_AIC_ONLY,
  KERNEL_TYPE_MIX_AIC_1_1,
  KERNEL_TYPE_MIX_AIC_1_2
};

namespace AscendC {

constexpr uint32_t ONE_BLK_SIZE = 32;

enum class TPosition : uint8_t {
  GM,
  A1,
  A2,
  B1,
  B2,
  C1,
  C2,
  CO1,
  CO2,
  VECIN,
  VECOUT,
  VECCALC,
  LCM = VECCALC,
  SPM,
  SHM = SPM,
  TSCM,
  C2PIPE2GM,
  C2PIPE2LOCAL,
  MAX,
};
using QuePosition = TPosition;

enum class HardEvent : uint8_t {
  MTE2_MTE1,
  MTE1_MTE2,
  MTE1_M,
  M_MTE1,
  MTE2_V,
  V_MTE2,
  MTE3_V,
  V_MTE3,
  M_V,
  V_M,
  V_V,
  MTE3_MTE1,
  MTE1_MTE3,
  MTE1_V,
  MTE2_M,
  M_MTE2,
  V_MTE1,
  M_FIX,
  FIX_M,
  MTE3_MTE2,
  MTE2_MTE3,
  S_V,
  V_S,
  S_MTE2,
  MTE2_S,
  S_MTE3,
  MTE3_S,
  MTE2_FIX,
  FIX_MTE2,
  FIX_S,
  M_S,
  FIX_MTE3,
  MTE1_FIX,
  FIX_MTE1,
  FIX_FIX,
  MAX,
};

enum class RoundMode : uint8_t {
  CAST_NONE = 0,
  CAST_RINT,
  CAST_FLOOR,
  CAST_CEIL,
  CAST_ROUND,
  CAST_TRUNC,
  CAST_ODD
};
enum class CacheMode {
  CACHE_MODE_DISABLE = 0,
  CACHE_MODE_NORMAL = 1,
  CACHE_MODE_LAST = 2,
  CACHE_MODE_PERSISTENT = 4
};
enum class CacheRwMode { READ = 1, WRITE = 2, RW = 3 };
enum class HF32Mode { ENABLE, DISABLE };
enum class HF32TransMode { NEAREST_ZERO, NEAREST_EVEN };

#if __NPU_ARCH__ == 3510
enum class PaddingMode : uint8_t { Normal = 0, Compact };
enum class ExpAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
enum class LnAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
enum class SqrtAlgo {
  INTRINSIC = 0,
  FAST_INVERSE,
  PRECISION_1ULP_FTZ_TRUE,
  PRECISION_0ULP_FTZ_FALSE,
  PRECISION_1ULP_FTZ_FALSE,
};
enum class DivAlgo {
  INTRINSIC = 0,
  DIFF_COMPENSATION,
  PRECISION_1ULP_FTZ_TRUE,
  PRECISION_0ULP_FTZ_TRUE,
  PRECISION_0ULP_FTZ_FALSE,
  PRECISION_1ULP_FTZ_FALSE,
};
struct ExpConfig {
  ExpAlgo algo = ExpAlgo::INTRINSIC;
};
struct LnConfig {
  LnAlgo algo = LnAlgo::INTRINSIC;
};
struct SqrtConfig {
  SqrtAlgo algo = SqrtAlgo::INTRINSIC;
};
struct DivConfig {
  DivAlgo algo = DivAlgo::INTRINSIC;
};
constexpr ExpConfig DEFAULT_EXP_CONFIG = {ExpAlgo::INTRINSIC};
constexpr LnConfig DEFAULT_LN_CONFIG = {LnAlgo::INTRINSIC};
constexpr SqrtConfig DEFAULT_SQRT_CONFIG = {SqrtAlgo::INTRINSIC};
constexpr DivConfig DEFAULT_DIV_CONFIG = {DivAlgo::INTRINSIC};
#endif

inline float ToFloat(const bfloat16_t& value) { return static_cast<float>(value); }
inline bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }

}  // namespace AscendC

namespace twin {

// A parameter of an instruction that remembers what it was given, so that a value that does not fit its field
// is reported instead of silently cut off. Reads as the field's public type.
template <typename T>
class Wide {
 public:
  constexpr Wide() = default;
  template <typename I, typename = decltype(static_cast<int64_t>(I{}))>
  constexpr Wide(I value) : value_(static_cast<int64_t>(value)) {}
  constexpr operator T() const { return static_cast<T>(value_); }
  constexpr int64_t given() const { return value_; }
  constexpr bool fits() const { return static_cast<int64_t>(static_cast<T>(value_)) == value_; }
  Wide& operator+=(T more) { return *this = Wide(value_ + more); }
  Wide& operator-=(T less) { return *this = Wide(value_ - less); }
  Wide& operator++() { return *this = Wide(value_ + 1); }

 private:
  int64_t value_ = 0;
};

}  // namespace twin
