#include "twin/memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace twin {

void OnChip::create(Memory memory, SlotSets* sets) {
  memory_ = memory;
  capacity_ = capacity_bytes(memory);
  bytes_ = std::make_unique<uint8_t[]>(capacity_ + kBlockBytes);
  written_ = std::make_unique<uint8_t[]>(capacity_ + kBlockBytes);
  shadow.create(capacity_ / kBlockBytes + 1, sets);
  block_peak_ = capacity_;
}

void OnChip::start_block() {
  if (block_peak_ == 0) return;
  std::memset(bytes_.get(), 0xff, block_peak_);  // NaN in every float format
  std::memset(written_.get(), 0, block_peak_);
  shadow.forget((block_peak_ + kBlockBytes - 1) / kBlockBytes);
  block_peak_ = 0;
}

GmRegion::GmRegion(const GmBuffer& buffer, SlotSets* sets)
    : buffer_(buffer), label_(std::string("GM ") + buffer.name) {
  if (buffer.granule == 0 || (buffer.granule & (buffer.granule - 1)) != 0) {
    throw std::logic_error(std::string("granule of GM buffer ") + buffer.name + " must be a power of two");
  }
  while ((1u << shift_) < buffer.granule) ++shift_;
  const uint64_t granules = (buffer.bytes >> shift_) + 1;
  if (shadowed()) shadow.create(granules, sets);
  if (buffer.kind != GmBuffer::kWorkspace) touched_.resize(granules / 64 + 1);
}

GmBytes GmRegion::count(uint64_t position, uint64_t bytes) {
  GmBytes counted;
  if (buffer_.kind == GmBuffer::kWorkspace) {
    counted.ring = bytes;
    return counted;
  }
  const uint64_t first = first_granule(position);
  const uint64_t end = first + granules(position, bytes);
  uint64_t fresh = 0;
  for (uint64_t i = first; i < end;) {
    const uint64_t stop = std::min(end, (i | 63) + 1);
    const uint64_t width = stop - i;
    const uint64_t mask = (width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1) << (i & 63);
    uint64_t& word = touched_[i >> 6];
    fresh += static_cast<uint64_t>(__builtin_popcountll(mask & ~word));
    word |= mask;
    i = stop;
  }
  counted.compulsory = std::min(bytes, fresh << shift_);
  counted.other = bytes - counted.compulsory;
  return counted;
}

void History::start_block(int block) {
  std::array<uint32_t, kActors> start;
  for (int i = 0; i < kActors; ++i) start[i] = current(i);
  starts_.push_back(start);
  blocks_.push_back(block);
}

uint32_t History::next(int actor, const char* instruction) {
  names_[actor].push_back(instruction);
  if (current(actor) > kMaxEpoch)
    throw std::length_error("the launch is too long for the twin: simulate fewer blocks");
  return current(actor);
}

int History::block(Slot slot) const {
  const int actor = slot_actor(slot);
  auto later = std::partition_point(
      starts_.begin(), starts_.end(),
      [&](const std::array<uint32_t, kActors>& start) { return start[actor] < slot_epoch(slot); });
  return blocks_[static_cast<size_t>(later - starts_.begin()) - 1];
}

Memories::Memories(const std::vector<GmBuffer>& buffers) {
  for (OnChip& ub : ub_) ub.create(Memory::kUb, &on_chip_sets_);
  for (int i = static_cast<int>(Memory::kL1); i < kMemories; ++i) {
    cube_[i].create(static_cast<Memory>(i), &on_chip_sets_);
  }
  for (const GmBuffer& buffer : buffers) regions_.push_back(std::make_unique<GmRegion>(buffer, &gm_sets_));
}

void Memories::start_block() {
  for (OnChip& ub : ub_) ub.start_block();
  for (int i = static_cast<int>(Memory::kL1); i < kMemories; ++i) cube_[i].start_block();
  on_chip_sets_.clear();
}

OnChip* Memories::on_chip(const Core& core, const Place& place) {
  const bool aic = core.kind == CoreKind::kAic;
  if (place.memory == Memory::kGm) return nullptr;
  if (place.memory == Memory::kUb) {
    if (!aic) return &ub_[core.sub];
    return kIs3510 && place.buffer < kSubCores ? &ub_[place.buffer] : nullptr;
  }
  if (!aic && !(kIs3510 && place.memory == Memory::kL1)) return nullptr;
  return &cube_[static_cast<int>(place.memory)];
}

void Memories::peaks(CoreCounters (&counters)[kCoresPerBlock]) const {
  for (int i = 0; i < kSubCores; ++i)
    counters[1 + i].peak_bytes[static_cast<int>(Memory::kUb)] = ub_[i].peak();
  for (int i = static_cast<int>(Memory::kL1); i < kMemories; ++i) counters[0].peak_bytes[i] = cube_[i].peak();
}

void Executing::settle(CoreCounters& counters) const {
  const auto gm = static_cast<int>(Memory::kGm);
  PathCounter* in = gm_read.sum() != 0 ? &counters.paths[gm][gm] : nullptr;
  PathCounter* out = gm_written.sum() != 0 ? &counters.paths[gm][gm] : nullptr;
  for (int i = 0; i < path_count; ++i) {
    PathCounter& path = counters.paths[static_cast<int>(paths[i].from)][static_cast<int>(paths[i].to)];
    path.bytes += paths[i].bytes;
    ++path.calls;
    if (paths[i].from == Memory::kGm && in != nullptr) in = &path;
    if (paths[i].to == Memory::kGm && out != nullptr) out = &path;
  }
  if (in != nullptr) in->gm.add(gm_read);
  if (out != nullptr) out->gm.add(gm_written);
}

std::string sentence(const Core& core, const char* instruction, const std::string& operand,
                     const std::string& value, const std::string& rule) {
  const std::string where = ", block " + std::to_string(core.block) + " " + core_name(slot_of(core)) + ", ";
  const std::string what = operand.empty() ? "" : operand + " (" + value + ") ";
  return kernel_name() + where + instruction + ": " + what + rule;
}

}  // namespace twin
