// shadow.h -- who touched each granule of a memory last, and whether that touch happens before the present
// one.
//
// An actor is one pipe of one core of the block; its instructions are numbered by epochs that go on growing
// over the blocks of a launch. An actor knows, for every actor, the last epoch that is certainly complete.
// Two touches of a granule, one of them a write, race unless the earlier one is known to the actor of the
// later one.
//
// A slot is one 32-bit word per granule for the last write and one for the reads since (FastTrack's idea: one
// epoch is nearly always enough, a vector only when reads are concurrent).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "twin/chips.h"

namespace twin {

using Slot =
    uint32_t;  // 0: nobody. bit 31: index of a SlotSet; else bit 30: atomic, 25..29: actor, 0..24: epoch

constexpr Slot kSetBit = 1u << 31;
constexpr Slot kAtomicBit = 1u << 30;
// In a read slot: the same pipe had read the granule before, unordered; the reader must not write it as well.
constexpr Slot kDisplacedBit = kAtomicBit;
constexpr uint32_t kMaxEpoch = (1u << 25) - 1;

inline Slot make_slot(int actor, uint32_t epoch, bool atomic) {
  return (atomic ? kAtomicBit : 0) | static_cast<uint32_t>(actor) << 25 | epoch;
}
inline int slot_actor(Slot slot) { return static_cast<int>(slot >> 25 & 31); }
inline uint32_t slot_epoch(Slot slot) { return slot & kMaxEpoch; }

struct Knowledge {
  uint32_t epoch[kActors] = {};

  void join(const Knowledge& other) {
    for (int i = 0; i < kActors; ++i) epoch[i] = epoch[i] > other.epoch[i] ? epoch[i] : other.epoch[i];
  }
};

// The instruction that touches memory now.
struct Toucher {
  int actor = 0;
  uint32_t epoch = 0;
  bool orders_itself = false;  // the hardware orders this pipe's own instructions: S, M, and V on 3510
  bool atomic = false;         // of the present access
  const Knowledge* known = nullptr;
  const uint32_t* block_start = nullptr;  // epochs up to these belong to earlier blocks

  Slot slot() const { return make_slot(actor, epoch, atomic); }
  bool orders(int other, uint32_t other_epoch) const {
    const uint32_t start = block_start[other];
    if (other == actor && other_epoch > start && (orders_itself || other_epoch == epoch)) return true;
    return other_epoch - start - 1 < known->epoch[other] - start;
  }
};

// Touches of one granule by several actors, none ordered with all others.
struct SlotSet {
  uint32_t epoch[kActors];
  uint64_t granules;  // that point here
  bool atomic;
  bool foreign;    // an epoch of an earlier block was overwritten by a newer one of the same actor
  Slot base;       // the plain write under these atomic adds, 0: none
  Slot displacer;  // the instruction here that displaced an unordered touch by its own pipe
};

class SlotSets {
 public:
  bool ordered(Slot slot, const Toucher& toucher) const;
  // Whether toucher may write over `slot`: ordered after it, or both are atomic adds over an ordered base.
  bool admits(Slot slot, const Toucher& toucher) const;
  // Whether toucher's own read of this granule displaced an earlier one that toucher is not ordered after.
  bool displaced(Slot slot, const Toucher& toucher) const;
  Slot displace(Slot slot, const Toucher& toucher);
  bool atomic(Slot slot) const {
    return slot & kSetBit ? sets_[slot & ~kSetBit].atomic : (slot & kAtomicBit) != 0;
  }
  // The slot for `granules` granules that held `slot`, once toucher is added to it.
  Slot add(Slot slot, uint64_t granules, const Toucher& toucher);
  // The slot for granules whose `slot` admits the atomic add of toucher.
  Slot add_atomic(Slot slot, uint64_t granules, const Toucher& toucher);
  void drop(Slot slot, uint64_t granules);
  // One epoch of `slot` that toucher is not ordered after, as a plain slot.
  Slot culprit(Slot slot, const Toucher& toucher) const;
  void clear();

 private:
  uint32_t fresh();
  uint32_t alone(uint32_t index, uint64_t granules);  // a set that only these granules of `index` point to
  Slot last_displaced_ = 0;
  std::vector<SlotSet> sets_;
  std::vector<uint32_t> free_;
};

struct Conflict {
  enum Kind { kNone, kNeverWritten, kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite } kind = kNone;
  uint64_t granule = 0;  // first
  uint64_t granules = 0;
  Slot earlier = 0;
};

class Shadow {
 public:
  Shadow() = default;
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  ~Shadow();

  void create(uint64_t granules, SlotSets* sets);
  // must_be_written: a granule without a write is a finding (GM; on chip the bytes have a map of their own).
  bool read(const Toucher& toucher, uint64_t first, uint64_t granules, bool must_be_written,
            Conflict* conflict);
  bool write(const Toucher& toucher, uint64_t first, uint64_t granules, bool must_be_written,
             Conflict* conflict);
  // The first granule whose last write is by toucher's own actor and not behind a barrier; false: none.
  bool unfenced(const Toucher& toucher, uint64_t first, uint64_t granules, Conflict* conflict) const;
  void forget(uint64_t granules);  // the first that many, between blocks

 private:
  void note_reads(const Toucher& toucher, Slot* reads, uint64_t granules);
  void note_atomic(const Toucher& toucher, Slot* writes, uint64_t granules);
  Slot* writes_ = nullptr;
  Slot* reads_ = nullptr;
  SlotSets* sets_ = nullptr;
};

}  // namespace twin
