// vector_reduce.h -- sums over the lanes of a block (BlockReduceSum) or of a repeat (WholeReduceSum).
#pragma once

#include "twin/ascendc/vector_run.h"

namespace twin::api {

// What a sum leaves: `sums` consecutive elements per repeat, of `group` lanes each, `rep` bytes from repeat
// to repeat.
struct Sums {
  Operand at;
  uint32_t sums = 0, group = 0;
  uint64_t rep = 0;
  std::vector<LaneRun> runs;  // of the sums that are written
};

// 3510 writes zero for a group without a chosen lane, 2201 leaves the destination as it was.
inline std::vector<LaneRun> written_sums(const Shape& shape, uint32_t sums, uint32_t group) {
  if (kIs3510) return {{0, sums}};
  std::vector<LaneRun> runs;
  for (const LaneRun& run : shape.runs) {
    const uint32_t begin = run.begin / group, end = (run.end - 1) / group + 1;
    if (!runs.empty() && runs.back().end >= begin) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end});
    }
  }
  return runs;
}

// The documents allow no overlap of a reduction's operands.
inline void sums_apart(const Shape& shape, const Sums& dst, uint32_t size, const Strided& src) {
  const uint64_t begin = dst.at.address();
  const Extent to{begin, begin + (shape.repeats - 1) * dst.rep + uint64_t{dst.sums} * size};
  if (!extent(shape, src).meets(to)) return;
  BlockSet read;
  std::vector<uint64_t> blocks;
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    repeat_blocks(shape, src, r, &blocks);
    for (uint64_t block : blocks) read.add(block);
  }
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    const uint64_t first = begin + r * dst.rep;
    for (uint64_t block = first / kBlockBytes; block * kBlockBytes < first + dst.sums * size; ++block) {
      if (read.has(block)) refuse(shape.instruction, "src", "overlap", "must not overlap dst");
    }
  }
}

// Neighbours are added in pairs, then the sums of neighbours, each rounded to T; a lane outside the mask
// counts as zero. The lanes of `values` are used up.
template <typename T>
T pairwise_sum(T* values, uint32_t n) {
  for (; n > 1; n /= 2) {
    for (uint32_t i = 0; i < n / 2; ++i) values[i] = static_cast<T>(values[2 * i] + values[2 * i + 1]);
  }
  return values[0];
}

template <typename T>
bool all_finite(const T* values, uint32_t n) {
  return std::all_of(values, values + n, [](T value) { return std::isfinite(to_float(value)); });
}

template <typename T>
void issue_sums(const Shape& shape, VectorOp op, const Sums& dst, const Strided& src) {
  current().issue(Pipe::kV, shape.instruction, vector_cost(op, shape.repeats), [=](Access& access) {
    const uint8_t* from = touch(access, shape, src, Touching::kRead);
    uint8_t* to = nullptr;
    for (const LaneRun& run : dst.runs) {
      const uint64_t offset = uint64_t{run.begin} * sizeof(T);
      const uint64_t bytes = uint64_t{run.end - run.begin} * sizeof(T);
      to = access.write_rows(dst.at.place, dst.at.offset + offset, shape.repeats, bytes,
                             static_cast<int64_t>(dst.rep), dst.at.name) -
           offset;
    }
    bool nan = false;
    for (uint64_t r = 0; r < shape.repeats; ++r) {
      T values[kRepeatBytes / sizeof(T)] = {};
      for_pieces(shape, src.blk != kBlockBytes, sizeof(T), [&](uint32_t begin, uint32_t end) {
        std::memcpy(values + begin, from + r * src.rep + src.lane_offset(begin), (end - begin) * sizeof(T));
      });
      auto* out = reinterpret_cast<T*>(to + r * dst.rep);
      for (const LaneRun& run : dst.runs) {
        for (uint32_t i = run.begin; i < run.end; ++i) {
          T* group = values + i * dst.group;
          const bool finite = all_finite(group, dst.group);
          out[i] = pairwise_sum(group, dst.group);
          nan = nan || (finite && std::isnan(to_float(out[i])));
        }
      }
    }
    access.check_nan(nan, nan, dst.at.name);
  });
}

template <typename T>
constexpr bool kSummed = kIsOneOf<T, half, float>;

struct ReduceStrides {
  int32_t dst_rep, src_blk, src_rep;
};

// One sum per `group` lanes, `sums` of them per repeat; the destination's repeat stride counts in those.
template <typename T, typename M>
void reduce_sum(const char* name, VectorOp op, uint32_t sums, const AscendC::LocalTensor<T>& dst,
                const AscendC::LocalTensor<T>& src, M mask, int32_t repeats, const ReduceStrides& strides) {
  type_allowed<kSummed<T>>(name, type_name<T>());
  const Shape shape = masked_shape(name, mask, Wide<uint8_t>(repeats), sizeof(T));
  in_range(name, "dstRepStride", strides.dst_rep, 0, 65535);
  if (strides.dst_rep == 0 && repeats > 1) {
    refuse(name, "dstRepStride", 0, "must not let a repeat write what another wrote");
  }
  const Strided from = strided(name, TensorView::of(src, "src"), sizeof(T), Wide<uint16_t>(strides.src_blk),
                               Wide<uint16_t>(strides.src_rep), "srcBlkStride", "srcRepStride", 65535);
  const uint32_t group = shape.lanes / sums;
  Sums to{TensorView::of(dst, "dst"), sums, group, uint64_t(strides.dst_rep) * sums * sizeof(T),
          written_sums(shape, sums, group)};
  lives_in(name, to.at, Memory::kUb, sums * sizeof(T));
  lives_in(name, from.at, Memory::kUb, kBlockBytes);
  sums_apart(shape, to, sizeof(T), from);
  if constexpr (kSummed<T>) issue_sums<T>(shape, op, to, from);
}

template <typename T>
constexpr VectorOp kBlockSum = sizeof(T) == 2 ? VectorOp::kBlockReduceHalf : VectorOp::kBlockReduce;

constexpr uint32_t kBlocksOfRepeat = kRepeatBytes / kBlockBytes;

}  // namespace twin::api

namespace AscendC {

// Deprecated in the documents for ReduceDataBlock, which takes the mask first.
template <typename T, bool isSetMask = true>
__aicore__ inline void BlockReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                      const int32_t repeatTime, const int32_t mask,
                                      const int32_t dstRepStride, const int32_t srcBlkStride,
                                      const int32_t srcRepStride) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::reduce_sum<T>("BlockReduceSum", twin::api::kBlockSum<T>, twin::api::kBlocksOfRepeat, dst, src,
                           static_cast<uint64_t>(int64_t{mask}), repeatTime,
                           {dstRepStride, srcBlkStride, srcRepStride});
}

template <typename T, bool isSetMask = true>
__aicore__ inline void BlockReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                      const int32_t repeatTime, const uint64_t mask[],
                                      const int32_t dstRepStride, const int32_t srcBlkStride,
                                      const int32_t srcRepStride) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::reduce_sum<T>("BlockReduceSum", twin::api::kBlockSum<T>, twin::api::kBlocksOfRepeat, dst, src,
                           mask, repeatTime, {dstRepStride, srcBlkStride, srcRepStride});
}

// 3510 adds the destination's type; the twin knows only equal types.
#if __NPU_ARCH__ == 3510
#define TWIN_SUM_TYPES typename T, bool isSetMask = true, typename U = T
#else
#define TWIN_SUM_TYPES typename T, bool isSetMask = true
#endif

template <TWIN_SUM_TYPES>
__aicore__ inline void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                      const uint64_t mask[], const int32_t repeatTime,
                                      const int32_t dstRepStride, const int32_t srcBlkStride,
                                      const int32_t srcRepStride) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::reduce_sum<T>("WholeReduceSum", twin::VectorOp::kRepeatReduce, 1, dst, src, mask, repeatTime,
                           {dstRepStride, srcBlkStride, srcRepStride});
}

template <TWIN_SUM_TYPES>
__aicore__ inline void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                      const int32_t mask, const int32_t repeatTime,
                                      const int32_t dstRepStride, const int32_t srcBlkStride,
                                      const int32_t srcRepStride) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::reduce_sum<T>("WholeReduceSum", twin::VectorOp::kRepeatReduce, 1, dst, src,
                           static_cast<uint64_t>(int64_t{mask}), repeatTime,
                           {dstRepStride, srcBlkStride, srcRepStride});
}

#undef TWIN_SUM_TYPES

}  // namespace AscendC
