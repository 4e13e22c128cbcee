// burst.h -- what all DMA moves share: the route between two memories, and a copy of equally spaced bursts.
#pragma once

#include <cstring>
#include <utility>

#include "twin/ascendc/convert.h"
#include "twin/ascendc/tensor.h"

namespace twin::api {

// count bursts of `bytes`, source and destination each with their own distance from start to start.
struct Bursts {
  Operand dst, src;
  uint64_t count = 0, bytes = 0;
  int64_t dst_stride = 0, src_stride = 0;
};

// The pipe that moves between two memories, after checking that the path exists on this chip and this kind of
// core.
inline Pipe route(const char* instruction, const Operand& dst, const Operand& src) {
  bound(instruction, dst);
  bound(instruction, src);
  const Memory from = src.place.memory, to = dst.place.memory;
  const auto is = [&](Memory a, Memory b) { return from == a && to == b; };
  if (is(Memory::kGm, Memory::kUb)) return on_vector_core(instruction), Pipe::kMte2;
  if (is(Memory::kUb, Memory::kGm)) return on_vector_core(instruction), Pipe::kMte3;
  if (is(Memory::kUb, Memory::kUb)) return on_vector_core(instruction), Pipe::kV;
  if (is(Memory::kGm, Memory::kL1)) return on_cube_core(instruction), Pipe::kMte2;
  if (is(Memory::kUb, Memory::kL1) && kIs3510) return on_vector_core(instruction), Pipe::kMte3;
  if (is(Memory::kL1, Memory::kGm) && !kIs3510) return on_cube_core(instruction), Pipe::kMte3;
  refuse(instruction, "path", std::string(memory_name(from)) + " to " + memory_name(to),
         std::string("does not exist on ") + (kIs3510 ? "3510" : "2201"));
}

inline const uint8_t* read_bursts(Access& access, const Bursts& b) {
  if (b.src_stride == static_cast<int64_t>(b.bytes)) {
    return access.read(b.src.place, b.src.offset, b.bytes * b.count, b.src.name);
  }
  return access.read_rows(b.src.place, b.src.offset, b.count, b.bytes, b.src_stride, b.src.name);
}

inline uint8_t* write_bursts(Access& access, const Bursts& b, bool add) {
  if (b.dst_stride == static_cast<int64_t>(b.bytes)) {
    const uint64_t bytes = b.bytes * b.count;
    return add ? access.update(b.dst.place, b.dst.offset, bytes, b.dst.name)
               : access.write(b.dst.place, b.dst.offset, bytes, b.dst.name);
  }
  return add ? access.update_rows(b.dst.place, b.dst.offset, b.count, b.bytes, b.dst_stride, b.dst.name)
             : access.write_rows(b.dst.place, b.dst.offset, b.count, b.bytes, b.dst_stride, b.dst.name);
}

// SetAtomicAdd<T> before a store to GM: refused when the store's elements are of another type.
template <typename T>
bool adds_to_memory(const char* instruction, const Operand& dst) {
  const Modes& modes = current().modes;
  if (!modes.atomic_add || dst.place.memory != Memory::kGm) return false;
  if (std::strcmp(modes.atomic_type, type_name<T>()) != 0) {
    refuse(instruction, "element type", type_name<T>(),
           std::string("must be the type of SetAtomicAdd (") + modes.atomic_type + ")");
  }
  return true;
}

// Returns the address of the first source burst.
template <typename T>
const uint8_t* run_bursts(Access& access, const Bursts& b, bool add) {
  const uint8_t* const first = read_bursts(access, b);
  const uint8_t* from = first;
  uint8_t* to = write_bursts(access, b, add);
  for (uint64_t i = 0; i < b.count; ++i, from += b.src_stride, to += b.dst_stride) {
    if (add) {
      add_elements<T>(to, from, b.bytes / sizeof(T));
    } else {
      std::memmove(to, from, b.bytes);
    }
  }
  access.count_path(b.src.place.memory, b.dst.place.memory, b.bytes * b.count);
  return first;
}

template <typename T>
void issue_bursts(const char* instruction, Pipe pipe, const Bursts& b) {
  if (b.count == 0 || b.bytes == 0) return;
  const bool add = adds_to_memory<T>(instruction, b.dst);
  current().issue(pipe, instruction,
                  dma_cost(b.src.place.memory, b.dst.place.memory, b.bytes * b.count, b.count),
                  [b, add](Access& access) { run_bursts<T>(access, b, add); });
}

// Source and destination of a move inside one memory must not meet.
inline void disjoint(const char* instruction, const Bursts& b) {
  if (b.src.place.memory != b.dst.place.memory || b.count == 0) return;
  const uint64_t src_end = b.src.address() + (b.count - 1) * b.src_stride + b.bytes;
  const uint64_t dst_end = b.dst.address() + (b.count - 1) * b.dst_stride + b.bytes;
  if (b.src.address() < dst_end && b.dst.address() < src_end) {
    refuse(instruction, "dst address", static_cast<int64_t>(b.dst.address()), "must not overlap src");
  }
}

}  // namespace twin::api
