// memory.h -- the bytes of the machine and what is known about each: written, touched by whom, touched
// before.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twin/core.h"
#include "twin/counters.h"
#include "twin/launch.h"
#include "twin/shadow.h"

namespace twin {

// One on-chip memory of one core.
class OnChip {
 public:
  void create(Memory memory, SlotSets* sets);
  void start_block();  // contents become garbage, unwritten, untouched
  uint8_t* data(uint64_t position) { return bytes_.get() + position; }
  uint8_t* written(uint64_t position) { return written_.get() + position; }  // a byte per byte
  void used_up_to(uint64_t end) {
    if (end > block_peak_) block_peak_ = end;
    if (end > peak_) peak_ = end;
  }
  uint64_t peak() const { return peak_; }
  uint64_t capacity() const { return capacity_; }
  Memory memory() const { return memory_; }
  Shadow shadow;

 private:
  Memory memory_ = Memory::kUb;
  uint64_t capacity_ = 0, peak_ = 0, block_peak_ = 0;
  std::unique_ptr<uint8_t[]> bytes_, written_;
};

// One GM buffer. An input is never written, so it has no shadow.
class GmRegion {
 public:
  GmRegion(const GmBuffer& buffer, SlotSets* sets);
  const GmBuffer& buffer() const { return buffer_; }
  const std::string& label() const { return label_; }  // "GM x"
  bool shadowed() const { return buffer_.kind != GmBuffer::kInput; }
  bool starts_written() const { return buffer_.kind == GmBuffer::kInput || buffer_.initialised; }
  uint64_t first_granule(uint64_t position) const { return position >> shift_; }
  uint64_t granules(uint64_t position, uint64_t bytes) const {
    return ((position + bytes - 1) >> shift_) - (position >> shift_) + 1;
  }
  uint64_t granule_bytes() const { return uint64_t{1} << shift_; }
  GmBytes count(uint64_t position, uint64_t bytes);  // and mark as touched
  Shadow shadow;

 private:
  GmBuffer buffer_;
  std::string label_;
  int shift_ = 0;
  std::vector<uint64_t> touched_;  // a bit per granule; none for workspace
};

// Which instruction an epoch was.
class History {
 public:
  void start_block(int block);
  uint32_t next(int actor, const char* instruction);
  const char* instruction(Slot slot) const { return names_[slot_actor(slot)][slot_epoch(slot) - 1]; }
  int block(Slot slot) const;
  const uint32_t* block_start() const { return starts_.back().data(); }
  uint32_t current(int actor) const { return static_cast<uint32_t>(names_[actor].size()); }

 private:
  std::vector<const char*> names_[kActors];
  std::vector<std::array<uint32_t, kActors>> starts_;
  std::vector<int> blocks_;
};

class Memories {
 public:
  explicit Memories(const std::vector<GmBuffer>& buffers);
  void start_block();
  // The memory that `place` names for a core; null when the core cannot reach it.
  OnChip* on_chip(const Core& core, const Place& place);
  GmRegion& gm(uint32_t buffer) { return *regions_[buffer]; }
  uint32_t buffers() const { return static_cast<uint32_t>(regions_.size()); }
  void peaks(CoreCounters (&counters)[kCoresPerBlock]) const;

 private:
  SlotSets on_chip_sets_, gm_sets_;
  OnChip ub_[kSubCores];
  OnChip cube_[kMemories];  // the AIC's, by Memory
  std::vector<std::unique_ptr<GmRegion>> regions_;
};

// The instruction that runs now: who touches, and what it has moved so far.
struct Executing {
  struct Path {
    Memory from, to;
    uint64_t bytes;
  };
  static constexpr int kMaxPaths = 4;

  Memories* memories = nullptr;
  History* history = nullptr;
  Core* core = nullptr;
  int slot = 0;
  Pipe pipe = Pipe::kS;
  const char* instruction = "";
  Toucher toucher;
  GmBytes gm_read, gm_written;
  Path paths[kMaxPaths];
  int path_count = 0;

  void settle(CoreCounters& counters) const;
};

std::string kernel_name();  // of the launch under way
inline int slot_of(const Core& core) { return core.kind == CoreKind::kAic ? 0 : 1 + core.sub; }
std::string sentence(const Core& core, const char* instruction, const std::string& operand,
                     const std::string& value, const std::string& rule);

}  // namespace twin
