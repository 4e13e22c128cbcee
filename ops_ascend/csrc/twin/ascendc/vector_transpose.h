// vector_transpose.h -- TransDataTo5HD: sixteen blocks become the columns of what they held.
#pragma once

#include "twin/ascendc/vector_run.h"

namespace AscendC {

constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;

struct TransDataTo5HDParams {
  __aicore__ TransDataTo5HDParams() {}
  __aicore__ TransDataTo5HDParams(const bool dstHighHalfIn, const bool srcHighHalfIn,
                                  const twin::Wide<uint8_t> repeatTimesIn,
                                  const twin::Wide<uint16_t> dstRepStrideIn,
                                  const twin::Wide<uint16_t> srcRepStrideIn)
      : dstHighHalf(dstHighHalfIn),
        srcHighHalf(srcHighHalfIn),
        repeatTimes(repeatTimesIn),
        dstRepStride(dstRepStrideIn),
        srcRepStride(srcRepStrideIn) {}

  bool dstHighHalf = false;
  bool srcHighHalf = false;
  twin::Wide<uint8_t> repeatTimes = 1;
  twin::Wide<uint16_t> dstRepStride = 0;
  twin::Wide<uint16_t> srcRepStride = 0;
};

}  // namespace AscendC

namespace twin::api {

constexpr int kListed = AscendC::NCHW_CONV_ADDR_LIST_SIZE;

struct BlockLists {
  Operand dst[kListed], src[kListed];
  uint64_t repeats = 1, dst_rep = 0, src_rep = 0;  // strides in bytes
};

template <typename T>
constexpr bool kTransposed =
    kIs3510 ? kIsOneOf<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>
            : kIsOneOf<T, int16_t, uint16_t, half, int32_t, uint32_t, float>;

// No block is written twice, none that is read is written.
inline void lists_apart(const char* name, const BlockLists& lists) {
  BlockSet read, written;
  for (uint64_t r = 0; r < lists.repeats; ++r) {
    for (const Operand& src : lists.src) read.add((src.address() + r * lists.src_rep) / kBlockBytes);
  }
  for (uint64_t r = 0; r < lists.repeats; ++r) {
    for (const Operand& dst : lists.dst) {
      const uint64_t block = (dst.address() + r * lists.dst_rep) / kBlockBytes;
      const auto at = static_cast<int64_t>(block * kBlockBytes);
      if (!written.add(block)) refuse(name, "dstList address", at, "must not be written twice");
      if (read.has(block)) refuse(name, "dstList address", at, "must not be a block of srcList");
    }
  }
}

// 16-bit elements: block c of the destination holds element c of every source block. 32-bit elements: blocks
// 2 c and 2 c + 1 hold element c of the source blocks 0 to 7 and 8 to 15.
template <typename T>
void transpose_lists(uint8_t* const (&to)[kListed], const uint8_t* const (&from)[kListed]) {
  constexpr int kElements = kBlockBytes / sizeof(T), kParts = kListed / kElements;
  for (int i = 0; i < kListed; ++i) {
    auto* out = reinterpret_cast<T*>(to[i]);
    for (int k = 0; k < kElements; ++k) {
      out[k] = reinterpret_cast<const T*>(from[i % kParts * kElements + k])[i / kParts];
    }
  }
}

template <typename T>
void transpose(BlockLists lists, const AscendC::TransDataTo5HDParams& params) {
  const char* const name = "TransDataTo5HD";
  on_vector_core(name);
  type_allowed<kTransposed<T>>(name, type_name<T>());
  require(!params.dstHighHalf, name, "dstHighHalf", 1, "must be false: it is for 8-bit elements");
  require(!params.srcHighHalf, name, "srcHighHalf", 1, "must be false: it is for 8-bit elements");
  in_range(name, "repeatTimes", params.repeatTimes, 1, 255);
  in_range(name, "dstRepStride", params.dstRepStride, 0, 65535);
  in_range(name, "srcRepStride", params.srcRepStride, 0, 65535);
  lists.repeats = params.repeatTimes;
  if (lists.repeats == 1) {
    const char* const rule = "must be 0 when repeatTimes is 1: it would move the blocks";
    require(params.dstRepStride == 0, name, "dstRepStride", params.dstRepStride.given(), rule);
    require(params.srcRepStride == 0, name, "srcRepStride", params.srcRepStride.given(), rule);
  }
  lists.dst_rep = uint64_t{params.dstRepStride} * kBlockBytes;
  lists.src_rep = uint64_t{params.srcRepStride} * kBlockBytes;
  for (const Operand& dst : lists.dst) lives_in(name, dst, Memory::kUb, kBlockBytes);
  for (const Operand& src : lists.src) lives_in(name, src, Memory::kUb, kBlockBytes);
  lists_apart(name, lists);
  if constexpr (kTransposed<T>) {
    current().issue(Pipe::kV, name, vector_cost(VectorOp::kTranspose, lists.repeats), [=](Access& access) {
      uint8_t* to[kListed];
      const uint8_t* from[kListed];
      const auto dst_step = static_cast<int64_t>(lists.dst_rep);
      const auto src_step = static_cast<int64_t>(lists.src_rep);
      for (int i = 0; i < kListed; ++i) {
        const Operand& src = lists.src[i];
        from[i] =
            access.read_rows(src.place, src.offset, lists.repeats, kBlockBytes, src_step, "srcList block");
      }
      for (int i = 0; i < kListed; ++i) {
        const Operand& dst = lists.dst[i];
        to[i] =
            access.write_rows(dst.place, dst.offset, lists.repeats, kBlockBytes, dst_step, "dstList block");
      }
      for (uint64_t r = 0; r < lists.repeats; ++r) {
        transpose_lists<T>(to, from);
        for (int i = 0; i < kListed; ++i) to[i] += dst_step, from[i] += src_step;
      }
    });
  }
}

// An address says nothing about its tensor, so only the end of the UB bounds it.
inline Operand ub_address(uint64_t address, const char* name) {
  return Operand{Place{Memory::kUb, 0, 0, capacity_bytes(Memory::kUb)}, address, name, true};
}

}  // namespace twin::api

namespace AscendC {

template <typename T>
__aicore__ inline void TransDataTo5HD(const LocalTensor<T> (&dstList)[NCHW_CONV_ADDR_LIST_SIZE],
                                      const LocalTensor<T> (&srcList)[NCHW_CONV_ADDR_LIST_SIZE],
                                      const TransDataTo5HDParams& nchwconvParams) {
  twin::api::BlockLists lists;
  for (int i = 0; i < NCHW_CONV_ADDR_LIST_SIZE; ++i) {
    lists.dst[i] = twin::api::TensorView::of(dstList[i], "dstList");
    lists.src[i] = twin::api::TensorView::of(srcList[i], "srcList");
  }
  twin::api::transpose<T>(lists, nchwconvParams);
}

template <typename T>
__aicore__ inline void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE],
                                      uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE],
                                      const TransDataTo5HDParams& nchwconvParams) {
  twin::api::BlockLists lists;
  for (int i = 0; i < NCHW_CONV_ADDR_LIST_SIZE; ++i) {
    lists.dst[i] = twin::api::ub_address(dstList[i], "dstList");
    lists.src[i] = twin::api::ub_address(srcList[i], "srcList");
  }
  twin::api::transpose<T>(lists, nchwconvParams);
}

}  // namespace AscendC
