#include "twin/shadow.h"

#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <new>

namespace twin {
namespace {

static_assert(sizeof(wchar_t) == sizeof(Slot), "fill() relies on wmemset writing 32-bit words");

void fill(Slot* slots, uint64_t granules, Slot value) {
  constexpr uint64_t kShort = 8;  // a call costs more than these stores
  if (granules <= kShort) {
    for (uint64_t i = 0; i < granules; ++i) slots[i] = value;
    return;
  }
  std::wmemset(reinterpret_cast<wchar_t*>(slots), static_cast<wchar_t>(value), granules);
}

// How many slots from the first on are equal to it. Nearly every access meets one or two such runs.
uint64_t run_length(const Slot* slots, uint64_t granules) {
  if (granules == 1) return 1;
  const Slot value = slots[0];
  const uint64_t pair = uint64_t{value} << 32 | value;
  uint64_t i = 1;
  for (; i + 8 <= granules; i += 8) {
    uint64_t words[4];
    std::memcpy(words, slots + i, sizeof words);
    if (((words[0] ^ pair) | (words[1] ^ pair) | (words[2] ^ pair) | (words[3] ^ pair)) != 0) break;
  }
  while (i < granules && slots[i] == value) ++i;
  return i;
}

// A touch by the same actor in this block: a newer one may stand for it, since whoever knows the newer knows
// the older.
bool is_own(Slot slot, const Toucher& toucher) {
  return (slot & kSetBit) == 0 && slot_actor(slot) == toucher.actor &&
         slot_epoch(slot) > toucher.block_start[toucher.actor];
}

}  // namespace

bool SlotSets::ordered(Slot slot, const Toucher& toucher) const {
  if (slot == 0) return true;
  if ((slot & kSetBit) == 0) return toucher.orders(slot_actor(slot), slot_epoch(slot));
  const SlotSet& set = sets_[slot & ~kSetBit];
  if (set.foreign) return false;
  for (int i = 0; i < kActors; ++i) {
    if (set.epoch[i] != 0 && !toucher.orders(i, set.epoch[i])) return false;
  }
  return true;
}

uint32_t SlotSets::fresh() {
  if (free_.empty()) {
    sets_.emplace_back();
    return static_cast<uint32_t>(sets_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

bool SlotSets::admits(Slot slot, const Toucher& toucher) const {
  if (!toucher.atomic || !atomic(slot)) return ordered(slot, toucher);
  return (slot & kSetBit) == 0 || ordered(sets_[slot & ~kSetBit].base, toucher);
}

bool SlotSets::displaced(Slot slot, const Toucher& toucher) const {
  if ((slot & kSetBit) == 0) return slot == (toucher.slot() | kDisplacedBit);
  return sets_[slot & ~kSetBit].displacer == toucher.slot();
}

Slot SlotSets::displace(Slot slot, const Toucher& toucher) {
  if (toucher.orders(slot_actor(slot), slot_epoch(slot))) return toucher.slot();
  last_displaced_ = slot & ~kDisplacedBit;
  return toucher.slot() | kDisplacedBit;
}

uint32_t SlotSets::alone(uint32_t index, uint64_t granules) {
  if (sets_[index].granules == granules) return index;
  sets_[index].granules -= granules;
  const uint32_t copy = fresh();
  sets_[copy] = sets_[index];
  sets_[copy].granules = granules;
  return copy;
}

Slot SlotSets::add(Slot slot, uint64_t granules, const Toucher& toucher) {
  uint32_t index = slot & ~kSetBit;
  if ((slot & kSetBit) == 0) {
    index = fresh();
    SlotSet& set = sets_[index];
    set = SlotSet{};
    set.epoch[slot_actor(slot)] = slot_epoch(slot);
    set.granules = granules;
    set.atomic = toucher.atomic;
  } else if (sets_[index].epoch[toucher.actor] == toucher.epoch) {
    return slot;
  } else {
    index = alone(index, granules);
  }
  SlotSet& set = sets_[index];
  uint32_t& own = set.epoch[toucher.actor];
  if (own != 0 && own <= toucher.block_start[toucher.actor]) set.foreign = true;
  if (own != 0 && !toucher.orders(toucher.actor, own)) {
    last_displaced_ = make_slot(toucher.actor, own, false);
    set.displacer = toucher.slot();
  }
  own = toucher.epoch;
  return kSetBit | index;
}

Slot SlotSets::add_atomic(Slot slot, uint64_t granules, const Toucher& toucher) {
  const bool over_plain = slot != 0 && !atomic(slot);
  const bool is_set = (slot & kSetBit) != 0;
  if (!over_plain && !is_set) {
    return slot == 0 || is_own(slot, toucher) || ordered(slot, toucher) ? toucher.slot()
                                                                        : add(slot, granules, toucher);
  }
  if (is_set && !ordered(slot, toucher)) return add(slot, granules, toucher);
  // Ordered after all of it: only the base must be kept, for atomic adds that are concurrent with this one.
  SlotSet set{};
  set.granules = granules;
  set.atomic = true;
  set.epoch[toucher.actor] = toucher.epoch;
  set.base = over_plain ? slot : sets_[slot & ~kSetBit].base;
  const uint32_t index = is_set ? alone(slot & ~kSetBit, granules) : fresh();
  sets_[index] = set;
  return kSetBit | index;
}

void SlotSets::drop(Slot slot, uint64_t granules) {
  if ((slot & kSetBit) == 0) return;
  const uint32_t index = slot & ~kSetBit;
  sets_[index].granules -= granules;
  if (sets_[index].granules == 0) free_.push_back(index);
}

Slot SlotSets::culprit(Slot slot, const Toucher& toucher) const {
  if (displaced(slot, toucher)) return last_displaced_;
  if ((slot & kSetBit) == 0) return slot;
  const SlotSet& set = sets_[slot & ~kSetBit];
  if (!ordered(set.base, toucher)) return set.base;
  for (int i = 0; i < kActors; ++i) {
    if (set.epoch[i] != 0 && !toucher.orders(i, set.epoch[i])) return make_slot(i, set.epoch[i], set.atomic);
  }
  return make_slot(toucher.actor, set.epoch[toucher.actor], set.atomic);
}

void SlotSets::clear() {
  sets_.clear();
  free_.clear();
}

Shadow::~Shadow() {
  std::free(writes_);
  std::free(reads_);
}

void Shadow::create(uint64_t granules, SlotSets* sets) {
  sets_ = sets;
  // calloc: the pages of a buffer that the simulated blocks never touch cost nothing.
  writes_ = static_cast<Slot*>(std::calloc(granules + 1, sizeof(Slot)));
  reads_ = static_cast<Slot*>(std::calloc(granules + 1, sizeof(Slot)));
  if (writes_ == nullptr || reads_ == nullptr) throw std::bad_alloc();
}

void Shadow::forget(uint64_t granules) {
  fill(writes_, granules, 0);
  fill(reads_, granules, 0);
}

bool Shadow::read(const Toucher& toucher, uint64_t first, uint64_t granules, bool must_be_written,
                  Conflict* conflict) {
  const Slot* writes = writes_ + first;
  for (uint64_t i = 0; i < granules;) {
    const uint64_t run = run_length(writes + i, granules - i);
    const Slot slot = writes[i];
    if (slot == 0 && must_be_written) {
      *conflict = {Conflict::kNeverWritten, first + i, run, 0};
      return false;
    }
    if (!sets_->ordered(slot, toucher)) {
      *conflict = {Conflict::kReadAfterWrite, first + i, run, sets_->culprit(slot, toucher)};
      return false;
    }
    i += run;
  }
  note_reads(toucher, reads_ + first, granules);
  return true;
}

void Shadow::note_reads(const Toucher& toucher, Slot* reads, uint64_t granules) {
  for (uint64_t i = 0; i < granules;) {
    const uint64_t run = run_length(reads + i, granules - i);
    const Slot slot = reads[i];
    if (is_own(slot, toucher)) {
      if (slot_epoch(slot) != toucher.epoch) fill(reads + i, run, sets_->displace(slot, toucher));
    } else if (sets_->ordered(slot, toucher)) {
      sets_->drop(slot, run);
      fill(reads + i, run, toucher.slot());
    } else {
      fill(reads + i, run, sets_->add(slot, run, toucher));
    }
    i += run;
  }
}

bool Shadow::write(const Toucher& toucher, uint64_t first, uint64_t granules, bool must_be_written,
                   Conflict* conflict) {
  Slot* writes = writes_ + first;
  Slot* reads = reads_ + first;
  for (uint64_t i = 0; i < granules;) {
    const uint64_t run = run_length(writes + i, granules - i);
    const Slot slot = writes[i];
    if (slot == 0 && must_be_written) {
      *conflict = {Conflict::kNeverWritten, first + i, run, 0};
      return false;
    }
    if (!sets_->admits(slot, toucher)) {
      *conflict = {Conflict::kWriteAfterWrite, first + i, run, sets_->culprit(slot, toucher)};
      return false;
    }
    if (!toucher.atomic) sets_->drop(slot, run);
    i += run;
  }
  for (uint64_t i = 0; i < granules;) {
    const uint64_t run = run_length(reads + i, granules - i);
    const Slot slot = reads[i];
    if (!sets_->ordered(slot, toucher) || sets_->displaced(slot, toucher)) {
      *conflict = {Conflict::kWriteAfterRead, first + i, run, sets_->culprit(slot, toucher)};
      return false;
    }
    if (!toucher.atomic) sets_->drop(slot, run);
    i += run;
  }
  if (toucher.atomic) {
    note_atomic(toucher, writes, granules);
  } else {
    fill(writes, granules, toucher.slot());
    fill(reads, granules, 0);
  }
  return true;
}

// Reads stay on record: a second, concurrent atomic add must be ordered after them too.
void Shadow::note_atomic(const Toucher& toucher, Slot* writes, uint64_t granules) {
  for (uint64_t i = 0; i < granules;) {
    const uint64_t run = run_length(writes + i, granules - i);
    fill(writes + i, run, sets_->add_atomic(writes[i], run, toucher));
    i += run;
  }
}

bool Shadow::unfenced(const Toucher& toucher, uint64_t first, uint64_t granules, Conflict* conflict) const {
  const Slot* writes = writes_ + first;
  for (uint64_t i = 0; i < granules;) {
    const uint64_t run = run_length(writes + i, granules - i);
    const Slot slot = writes[i];
    if (is_own(slot, toucher) && slot_epoch(slot) != toucher.epoch &&
        slot_epoch(slot) > toucher.known->epoch[toucher.actor]) {
      *conflict = {Conflict::kWriteAfterWrite, first + i, run, slot};
      return true;
    }
    i += run;
  }
  return false;
}

}  // namespace twin
