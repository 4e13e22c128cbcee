// check.h -- the static checks that every instruction makes when it is called, and the operand they look at.
#pragma once

#include <string>
#include <type_traits>

#include "twin/ascendc/types.h"

namespace twin::api {

// A tensor as an instruction sees it.
struct Operand {
  Place place;
  uint64_t offset = 0;  // bytes from place.begin
  const char* name = "";
  bool bound = false;

  uint64_t address() const { return place.begin + offset; }
};

template <typename T, typename... Allowed>
constexpr bool kIsOneOf = (std::is_same_v<T, Allowed> || ...);

template <typename T>
constexpr bool kIsFloating = kIsOneOf<T, float, half, bfloat16_t>;

template <typename T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, float>) return "float";
  if constexpr (std::is_same_v<T, half>) return "half";
  if constexpr (std::is_same_v<T, bfloat16_t>) return "bfloat16_t";
  if constexpr (std::is_same_v<T, int8_t>) return "int8_t";
  if constexpr (std::is_same_v<T, uint8_t>) return "uint8_t";
  if constexpr (std::is_same_v<T, int16_t>) return "int16_t";
  if constexpr (std::is_same_v<T, uint16_t>) return "uint16_t";
  if constexpr (std::is_same_v<T, int32_t>) return "int32_t";
  if constexpr (std::is_same_v<T, uint32_t>) return "uint32_t";
  if constexpr (std::is_same_v<T, int64_t>) return "int64_t";
  if constexpr (std::is_same_v<T, uint64_t>) return "uint64_t";
  return "another type";
}

[[noreturn]] inline void refuse(const char* instruction, const std::string& operand, const std::string& value,
                                const std::string& rule) {
  current().fault(instruction, operand, value, rule);
}

[[noreturn]] inline void refuse(const char* instruction, const std::string& operand, int64_t value,
                                const std::string& rule) {
  current().fault(instruction, operand, std::to_string(value), rule);
}

inline void require(bool holds, const char* instruction, const char* operand, int64_t value,
                    const char* rule) {
  if (!holds) refuse(instruction, operand, value, rule);
}

inline void in_range(const char* instruction, const char* operand, int64_t value, int64_t low, int64_t high) {
  if (value < low) refuse(instruction, operand, value, "must be at least " + std::to_string(low));
  if (value > high) refuse(instruction, operand, value, "must be at most " + std::to_string(high));
}

template <typename T>
void in_range(const char* instruction, const char* operand, const Wide<T>& value, int64_t low, int64_t high) {
  in_range(instruction, operand, value.given(), low, high);
}

// The call exists for one kind of core only; on the other the silicon drops it without a word.
inline void on_vector_core(const char* instruction) {
  if (current().kind != CoreKind::kAiv)
    refuse(instruction, "", 0, "must run on an AIV: an AIC drops it silently");
}

inline void on_cube_core(const char* instruction) {
  if (current().kind != CoreKind::kAic)
    refuse(instruction, "", 0, "must run on an AIC: an AIV drops it silently");
}

inline void bound(const char* instruction, const Operand& operand) {
  if (!operand.bound) refuse(instruction, operand.name, "no buffer", "must be bound to memory before use");
}

inline void aligned(const char* instruction, const Operand& operand, uint32_t bytes) {
  if (operand.address() % bytes != 0) {
    refuse(instruction, std::string(operand.name) + " address", static_cast<int64_t>(operand.address()),
           "must be a multiple of " + std::to_string(bytes) + " bytes");
  }
}

inline void lives_in(const char* instruction, const Operand& operand, Memory memory, uint32_t alignment) {
  bound(instruction, operand);
  if (operand.place.memory != memory) {
    refuse(instruction, operand.name, memory_name(operand.place.memory),
           std::string("must be in ") + memory_name(memory));
  }
  aligned(instruction, operand, alignment);
}

template <bool allowed>
void type_allowed(const char* instruction, const char* type) {
  if constexpr (!allowed) {
    refuse(instruction, "element type", type,
           std::string("is not supported on ") + (kIs3510 ? "3510" : "2201"));
  } else {
    (void)instruction;
    (void)type;
  }
}

constexpr uint64_t ceil_div(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit; }
constexpr uint64_t align_up(uint64_t value, uint64_t unit) { return ceil_div(value, unit) * unit; }

}  // namespace twin::api
