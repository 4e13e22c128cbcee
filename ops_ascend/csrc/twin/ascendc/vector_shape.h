// vector_shape.h -- which elements of which operands a vector instruction touches, and the checks on that.
//
// A repeat is 256 bytes: 8 blocks of 32. Lane l of an operand lies in block l / (32 / size), its blocks blk
// bytes apart and its repeats rep bytes apart. The count form is one dense run.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "twin/ascendc/params.h"
#include "twin/ascendc/tensor.h"

namespace twin::api {

constexpr uint32_t kRepeatBytes = 256;

struct LaneRun {
  uint32_t begin, end;
};

// A vector operand. size: bytes of an element.
struct Strided {
  Operand at;
  uint32_t size = 0;
  uint64_t blk = kBlockBytes, rep = kRepeatBytes;

  uint64_t lane_offset(uint64_t lane) const {
    const uint64_t per_block = kBlockBytes / size;
    return lane / per_block * blk + lane % per_block * size;
  }
};

struct Shape {
  const char* instruction = "";
  bool flat = false;
  uint64_t count = 0;    // flat: elements
  uint64_t repeats = 0;  // of 256 bytes of the widest element
  uint32_t lanes = 0;    // of a full repeat
  std::vector<LaneRun> runs;

  bool full() const { return runs.size() == 1 && runs[0].begin == 0 && runs[0].end == lanes; }
};

inline Shape flat_shape(const char* instruction, int64_t count, uint32_t widest) {
  on_vector_core(instruction);
  require(count >= 1, instruction, "count", count, "must be at least 1");
  Shape shape;
  shape.instruction = instruction;
  shape.flat = true;
  shape.count = static_cast<uint64_t>(count);
  shape.lanes = kRepeatBytes / widest;
  shape.repeats = ceil_div(shape.count, shape.lanes);
  return shape;
}

inline Shape repeat_shape(const char* instruction, const Wide<uint8_t>& repeats, uint32_t widest) {
  on_vector_core(instruction);
  // 0 does nothing on 2201, is undefined on 3510, and is what a literal 256 becomes.
  in_range(instruction, "repeatTime", repeats, 1, 255);
  Shape shape;
  shape.instruction = instruction;
  shape.repeats = repeats;
  shape.lanes = kRepeatBytes / widest;
  return shape;
}

inline Shape masked_shape(const char* instruction, uint64_t mask, const Wide<uint8_t>& repeats,
                          uint32_t widest) {
  Shape shape = repeat_shape(instruction, repeats, widest);
  in_range(instruction, "mask", static_cast<int64_t>(mask), 1, shape.lanes);
  shape.runs.push_back({0, static_cast<uint32_t>(mask)});
  return shape;
}

inline Shape masked_shape(const char* instruction, const uint64_t mask[], const Wide<uint8_t>& repeats,
                          uint32_t widest) {
  Shape shape = repeat_shape(instruction, repeats, widest);
  const uint64_t high = shape.lanes > 64 ? mask[1] : 0;
  if (mask[0] == 0 && high == 0) refuse(instruction, "mask", 0, "must select at least one lane");
  for (uint32_t lane = 0; lane < shape.lanes; ++lane) {
    if (((lane < 64 ? mask[0] : high) >> (lane % 64) & 1) == 0) continue;
    if (shape.runs.empty() || shape.runs.back().end != lane) shape.runs.push_back({lane, lane});
    ++shape.runs.back().end;
  }
  return shape;
}

inline Strided dense(const Operand& at, uint32_t size) {
  Strided operand{at, size};
  return operand;
}

template <typename B, typename R>
Strided strided(const char* instruction, const Operand& at, uint32_t size, const Wide<B>& blk,
                const Wide<R>& rep, const char* blk_name, const char* rep_name, int64_t rep_max = 255) {
  in_range(instruction, blk_name, blk, 0, static_cast<B>(~B{0}));
  in_range(instruction, rep_name, rep, 0, rep_max);
  return Strided{at, size, uint64_t{blk} * kBlockBytes, uint64_t{rep} * kBlockBytes};
}

// dst, src0 and src1 of the repeat form.
template <typename T, typename U>
std::array<Strided, 3> binary_operands(const char* name, const AscendC::LocalTensor<T>& dst,
                                       const AscendC::LocalTensor<U>& src0,
                                       const AscendC::LocalTensor<U>& src1,
                                       const AscendC::BinaryRepeatParams& p) {
  return {strided(name, TensorView::of(dst, "dst"), sizeof(T), p.dstBlkStride, p.dstRepStride, "dstBlkStride",
                  "dstRepStride"),
          strided(name, TensorView::of(src0, "src0"), sizeof(U), p.src0BlkStride, p.src0RepStride,
                  "src0BlkStride", "src0RepStride"),
          strided(name, TensorView::of(src1, "src1"), sizeof(U), p.src1BlkStride, p.src1RepStride,
                  "src1BlkStride", "src1RepStride")};
}

// The contiguous pieces of one repeat, in lanes, cut where any operand jumps from block to block.
template <typename F>
void for_pieces(const Shape& shape, bool cut, uint32_t widest, F f) {
  const uint32_t step = kBlockBytes / widest;
  for (const LaneRun& run : shape.runs) {
    if (!cut) {
      f(run.begin, run.end);
      continue;
    }
    for (uint32_t lane = run.begin; lane < run.end;) {
      const uint32_t end = std::min(run.end, (lane / step + 1) * step);
      f(lane, end);
      lane = end;
    }
  }
}

// Marks 32-byte blocks of the UB; used when operands come close to each other.
class BlockSet {
 public:
  BlockSet() : taken_(capacity_bytes(Memory::kUb) / kBlockBytes + 1) {}
  bool add(uint64_t block) {
    if (block >= taken_.size()) return true;  // the access itself reports it
    const bool fresh = !taken_[block];
    taken_[block] = true;
    return fresh;
  }
  bool has(uint64_t block) const { return block < taken_.size() && taken_[block]; }

 private:
  std::vector<bool> taken_;
};

// Blocks that repeat r of an operand touches, in lane order.
inline void repeat_blocks(const Shape& shape, const Strided& operand, uint64_t r,
                          std::vector<uint64_t>* blocks) {
  blocks->clear();
  const uint64_t first = operand.at.address() + r * operand.rep;
  for (const LaneRun& run : shape.runs) {
    const uint32_t step = kBlockBytes / operand.size;
    for (uint32_t lane = run.begin / step * step; lane < run.end; lane += step) {
      const uint64_t block = (first + operand.lane_offset(lane)) / kBlockBytes;
      if (blocks->empty() || blocks->back() != block) blocks->push_back(block);
    }
  }
}

struct Extent {
  uint64_t begin, end;
  bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
};

inline Extent extent(const Shape& shape, const Strided& operand) {
  const uint64_t begin = operand.at.address();
  if (shape.flat) return {begin, begin + shape.count * operand.size};
  const uint64_t last = shape.runs.back().end - 1;
  return {begin, begin + (shape.repeats - 1) * operand.rep + operand.lane_offset(last) + operand.size};
}

inline bool same_place(const Strided& a, const Strided& b) {
  return a.at.address() == b.at.address() && a.size == b.size && a.blk == b.blk && a.rep == b.rep;
}

// No repeat writes a block that another repeat wrote.
inline void repeats_apart(const Shape& shape, const Strided& dst) {
  const uint64_t span = dst.lane_offset(shape.runs.back().end - 1) + dst.size;
  if (shape.repeats == 1 || dst.rep >= align_up(span, kBlockBytes)) return;
  BlockSet written;
  std::vector<uint64_t> blocks;
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    repeat_blocks(shape, dst, r, &blocks);
    for (uint64_t block : blocks) {
      if (!written.add(block)) {
        refuse(shape.instruction, "dstRepStride", static_cast<int64_t>(dst.rep / kBlockBytes),
               "must not let a repeat write what another wrote");
      }
    }
  }
}

// Inside a repeat src and dst are the same blocks or none in common; no repeat reads what an earlier one
// wrote.
inline void no_overlap(const Shape& shape, const Strided& dst, const Strided& src) {
  const std::string name = src.at.name;
  if (!extent(shape, dst).meets(extent(shape, src))) return;
  if (same_place(dst, src)) return;
  if (shape.flat) refuse(shape.instruction, "dst", name, "must be the same tensor or not overlap");
  BlockSet written;
  std::vector<uint64_t> from, to;
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    repeat_blocks(shape, src, r, &from);
    repeat_blocks(shape, dst, r, &to);
    for (uint64_t block : from) {
      if (written.has(block))
        refuse(shape.instruction, name, "overlap", "must not read what an earlier repeat wrote to dst");
    }
    BlockSet now;
    for (uint64_t block : to) now.add(block), written.add(block);
    bool meets = false;
    for (uint64_t block : from) meets = meets || now.has(block);
    if (meets && (from != to || src.size != dst.size)) {
      refuse(shape.instruction, name, "overlap", "must be exactly dst inside a repeat or not overlap it");
    }
  }
}

// Position, alignment, strides and overlap of a vector instruction. `accumulates`: dst may also be the
// operand src1 with repeat stride 0 (Add, Sub, Mul, Max, Min), which makes the repeats a running sum.
inline void check_operands(const Shape& shape, const Strided& dst,
                           std::initializer_list<const Strided*> sources,
                           const Strided* accumulates = nullptr) {
  lives_in(shape.instruction, dst.at, Memory::kUb, kBlockBytes);
  for (const Strided* src : sources) lives_in(shape.instruction, src->at, Memory::kUb, kBlockBytes);
  const bool running = accumulates != nullptr && !shape.flat && dst.rep == 0 && same_place(dst, *accumulates);
  if (!shape.flat) {
    require(dst.blk != 0, shape.instruction, "dstBlkStride", 0, "must be at least 1");
    if (!running) repeats_apart(shape, dst);
  }
  for (const Strided* src : sources) {
    if (running && src == accumulates) continue;
    no_overlap(shape, dst, *src);
  }
}

}  // namespace twin::api
