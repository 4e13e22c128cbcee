// access.cpp -- every touch of memory by an instruction: inside, written, ordered, counted.
#include <algorithm>
#include <cstring>

#include "twin/core.h"
#include "twin/memory.h"

namespace twin {
namespace {

enum class Touch { kRead, kWrite, kUpdate };

struct Rows {
  uint64_t first;  // position of the first row, in bytes of the memory or buffer
  uint64_t rows;
  uint64_t bytes;  // of a row
  int64_t stride;
  uint64_t low, high;  // the extent of all rows, high exclusive
};

std::string range(const char* memory, uint64_t first, uint64_t end) {
  return std::string(memory) + " bytes " + std::to_string(static_cast<int64_t>(first)) + ".." +
         std::to_string(static_cast<int64_t>(end) - 1);
}

[[noreturn]] void fail(const Executing& e, const char* operand, const std::string& value,
                       const std::string& rule) {
  throw Fault(sentence(*e.core, e.instruction, operand, value, rule));
}

// `memory` as printed, and the bytes of the granules in conflict.
[[noreturn]] void report(const Executing& e, const char* operand, const std::string& memory,
                         uint64_t granule_bytes, const Conflict& conflict) {
  const std::string value = range(memory.c_str(), conflict.granule * granule_bytes,
                                  (conflict.granule + conflict.granules) * granule_bytes);
  if (conflict.kind == Conflict::kNeverWritten) fail(e, operand, value, "must be written before it is read");
  const int actor = slot_actor(conflict.earlier);
  const char* verb = conflict.kind == Conflict::kWriteAfterRead ? "read" : "write";
  const char* kind = conflict.kind == Conflict::kReadAfterWrite   ? "RAW"
                     : conflict.kind == Conflict::kWriteAfterRead ? "WAR"
                                                                  : "WAW";
  const bool foreign = slot_epoch(conflict.earlier) <= e.toucher.block_start[actor];
  std::string where = std::string(core_name(actor / kActorsPerCore)) + " " +
                      pipe_name(static_cast<Pipe>(actor % kActorsPerCore));
  if (foreign) where = "block " + std::to_string(e.history->block(conflict.earlier)) + " " + where;
  fail(e, operand, value,
       std::string("must be ordered after the ") + verb + " by " + e.history->instruction(conflict.earlier) +
           " on " + where + " (" + kind + " race with pipe " + pipe_name(e.pipe) +
           (foreign ? " between blocks)" : ")"));
}

Rows rows_of(uint64_t first, uint64_t rows, uint64_t bytes, int64_t stride) {
  if (stride == static_cast<int64_t>(bytes)) {
    bytes *= rows;
    rows = 1;
  }
  if (stride == 0) rows = 1;
  const uint64_t last = first + (rows - 1) * static_cast<uint64_t>(stride);
  return {first, rows, bytes, stride, stride < 0 ? last : first, (stride < 0 ? first : last) + bytes};
}

// The map holds a 0 or a 1 per byte. Null when all are 1.
const uint8_t* first_hole(const uint8_t* written, uint64_t bytes) {
  constexpr uint64_t kAllOnes = 0x0101010101010101u, kShort = 64;
  if (bytes <= kShort && bytes % sizeof kAllOnes == 0) {
    uint64_t all = kAllOnes;
    for (uint64_t i = 0; i < bytes; i += sizeof kAllOnes) {
      uint64_t word;
      std::memcpy(&word, written + i, sizeof word);
      all &= word;
    }
    if (all == kAllOnes) return nullptr;
  }
  return static_cast<const uint8_t*>(std::memchr(written, 0, bytes));
}

uint8_t* touch_on_chip(Executing& e, Touch touch, OnChip& memory, const Rows& rows, const char* operand) {
  memory.used_up_to(rows.high);
  uint64_t position = rows.first;
  Conflict conflict;
  for (uint64_t row = 0; row < rows.rows; ++row, position += static_cast<uint64_t>(rows.stride)) {
    uint8_t* written = memory.written(position);
    if (touch != Touch::kWrite) {
      const uint8_t* hole = first_hole(written, rows.bytes);
      if (hole != nullptr) {
        const uint64_t at = position + static_cast<uint64_t>(hole - written);
        uint64_t end = at + 1;
        while (end < position + rows.bytes && *memory.written(end) == 0) ++end;
        fail(e, operand, range(memory_name(memory.memory()), at, end), "must be written before it is read");
      }
    }
    const uint64_t first = position / kBlockBytes;
    const uint64_t granules = (position + rows.bytes - 1) / kBlockBytes - first + 1;
    const bool fine = touch == Touch::kRead
                          ? memory.shadow.read(e.toucher, first, granules, false, &conflict)
                          : memory.shadow.write(e.toucher, first, granules, false, &conflict);
    if (!fine) report(e, operand, memory_name(memory.memory()), kBlockBytes, conflict);
    if (touch == Touch::kWrite) std::memset(written, 1, rows.bytes);
  }
  return memory.data(rows.first);
}

void check_gm(const Executing& e, Touch touch, const GmRegion& region, const Rows& rows,
              const char* operand) {
  const std::string& name = region.label();
  if (rows.low > rows.high || rows.high > region.buffer().bytes) {
    fail(e, operand, range(name.c_str(), rows.low, rows.high),
         "must stay inside the buffer of " + std::to_string(region.buffer().bytes) + " bytes");
  }
  if (touch != Touch::kRead && region.buffer().kind == GmBuffer::kInput) {
    fail(e, operand, range(name.c_str(), rows.low, rows.high), "must not be written: it is an input");
  }
  if (e.pipe == Pipe::kS && region.shadowed()) {
    // Its cache is not coherent with the DMA engines, and the calls that clean it are outside the subset.
    fail(e, operand, range(name.c_str(), rows.low, rows.high),
         "must be an input: the scalar unit's cache does not see or show what the launch writes");
  }
}

uint8_t* touch_gm(Executing& e, Touch touch, GmRegion& region, const Rows& rows, const char* operand) {
  check_gm(e, touch, region, rows, operand);
  GmBytes& counted = touch == Touch::kRead ? e.gm_read : e.gm_written;
  uint64_t position = rows.first;
  Conflict conflict;
  Toucher toucher = e.toucher;
  toucher.atomic = touch == Touch::kUpdate;
  for (uint64_t row = 0; row < rows.rows; ++row, position += static_cast<uint64_t>(rows.stride)) {
    counted.add(region.count(position, rows.bytes));
    if (!region.shadowed()) continue;
    const uint64_t first = region.first_granule(position);
    const uint64_t granules = region.granules(position, rows.bytes);
    const bool must_be_written = touch != Touch::kWrite && !region.starts_written();
    const bool fine = touch == Touch::kRead
                          ? region.shadow.read(toucher, first, granules, must_be_written, &conflict)
                          : region.shadow.write(toucher, first, granules, must_be_written, &conflict);
    if (!fine) report(e, operand, region.label(), region.granule_bytes(), conflict);
  }
  return static_cast<uint8_t*>(region.buffer().data) + rows.first;
}

uint8_t* touch_rows(Executing& e, Touch touch, const Place& place, uint64_t offset, uint64_t row_count,
                    uint64_t bytes, int64_t stride, const char* operand) {
  const bool nothing = row_count == 0 || bytes == 0;
  const Rows rows = nothing ? Rows{place.begin + offset, 0, 0, 0, 0, 0}
                            : rows_of(place.begin + offset, row_count, bytes, stride);
  if (place.memory == Memory::kGm) {
    GmRegion& region = e.memories->gm(place.buffer);
    if (nothing) return static_cast<uint8_t*>(region.buffer().data);
    return touch_gm(e, touch, region, rows, operand);
  }
  OnChip* memory = e.memories->on_chip(*e.core, place);
  const char* name = memory_name(place.memory);
  if (memory == nullptr) fail(e, operand, name, "must be a memory that this core reaches");
  if (nothing) return memory->data(0);
  const uint64_t end = place.begin + place.bytes;
  if (rows.low < place.begin || rows.low > rows.high || rows.high > end) {
    fail(e, operand, range(name, rows.low, rows.high),
         "must stay inside the tensor, " + range(name, place.begin, end));
  }
  if (rows.high > memory->capacity()) {
    fail(e, operand, range(name, rows.low, rows.high),
         std::string("must stay inside ") + name + " of " + std::to_string(memory->capacity()) + " bytes");
  }
  return touch_on_chip(e, touch, *memory, rows, operand);
}

}  // namespace

const uint8_t* Access::read(const Place& place, uint64_t offset, uint64_t bytes, const char* operand) {
  return touch_rows(executing_, Touch::kRead, place, offset, 1, bytes, 0, operand);
}

uint8_t* Access::write(const Place& place, uint64_t offset, uint64_t bytes, const char* operand) {
  return touch_rows(executing_, Touch::kWrite, place, offset, 1, bytes, 0, operand);
}

uint8_t* Access::update(const Place& place, uint64_t offset, uint64_t bytes, const char* operand) {
  return touch_rows(executing_, Touch::kUpdate, place, offset, 1, bytes, 0, operand);
}

const uint8_t* Access::read_rows(const Place& place, uint64_t offset, uint64_t rows, uint64_t bytes,
                                 int64_t stride_bytes, const char* operand) {
  return touch_rows(executing_, Touch::kRead, place, offset, rows, bytes, stride_bytes, operand);
}

uint8_t* Access::write_rows(const Place& place, uint64_t offset, uint64_t rows, uint64_t bytes,
                            int64_t stride_bytes, const char* operand) {
  return touch_rows(executing_, Touch::kWrite, place, offset, rows, bytes, stride_bytes, operand);
}

uint8_t* Access::update_rows(const Place& place, uint64_t offset, uint64_t rows, uint64_t bytes,
                             int64_t stride_bytes, const char* operand) {
  return touch_rows(executing_, Touch::kUpdate, place, offset, rows, bytes, stride_bytes, operand);
}

void Access::forget(const Place& place, uint64_t offset, uint64_t bytes, const char* operand) {
  write(place, offset, bytes, operand);
  OnChip* memory =
      place.memory == Memory::kGm ? nullptr : executing_.memories->on_chip(*executing_.core, place);
  if (memory != nullptr && bytes > 0) std::memset(memory->written(place.begin + offset), 0, bytes);
}

void Access::count_path(Memory from, Memory to, uint64_t bytes) {
  if (executing_.path_count == Executing::kMaxPaths)
    throw std::logic_error("an instruction counts too many paths");
  executing_.paths[executing_.path_count++] = {from, to, bytes};
}

void Access::mmad_accumulate(const Place& place, uint64_t offset, uint64_t bytes, uint32_t m, uint32_t n) {
  // The rule of the Mmad documentation: larger products hide the write-to-read distance by themselves.
  constexpr uint32_t kSafeFractals = 10;
  if ((m / 16) * (n / 16) >= kSafeFractals || bytes == 0) return;
  OnChip* memory = executing_.memories->on_chip(*executing_.core, place);
  if (memory == nullptr || place.begin + offset + bytes > memory->capacity()) return;  // update() reports it
  const uint64_t first = (place.begin + offset) / kBlockBytes;
  const uint64_t granules = (place.begin + offset + bytes - 1) / kBlockBytes - first + 1;
  Conflict conflict;
  if (!memory->shadow.unfenced(executing_.toucher, first, granules, &conflict)) return;
  fail(executing_, "(m/16)*(n/16)", std::to_string((m / 16) * (n / 16)),
       "below 10 must have a PipeBarrier<PIPE_M> between this accumulation and the Mmad before it");
}

void Access::fault(const std::string& operand, const std::string& value, const std::string& rule) const {
  throw Fault(sentence(*executing_.core, executing_.instruction, operand, value, rule));
}

Core& Access::core() const { return *executing_.core; }

}  // namespace twin
