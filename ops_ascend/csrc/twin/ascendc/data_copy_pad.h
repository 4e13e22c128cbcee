// data_copy_pad.h -- DataCopyPad: moves whose bursts need not be whole 32-byte blocks.
//
// Into the UB every burst takes whole blocks: left padding, the burst, right padding, then dummy bytes up to
// the block's end.
//   no padding             dummy = the burst's first element
//   padding, isPad         padding and dummy = paddingValue
//   padding, not isPad     padding and dummy are undefined: reading them is a finding
#pragma once

#include "twin/ascendc/burst.h"
#include "twin/ascendc/params.h"

namespace twin::api {

constexpr int64_t kMaxCopyBytes = (1 << 21) - 1;
constexpr int64_t kMaxGmGap = kIs3510 ? (int64_t{1} << 40) - 1 : (int64_t{1} << 32) - 1;
constexpr int64_t kMaxUbGap = kIs3510 ? 65535 : (int64_t{1} << 32) - 1;

template <typename T>
struct PadBytes {
  uint64_t left = 0, right = 0;
  bool fill = false;
  T value{};
};

template <typename T>
void check_ext(const char* name, const AscendC::DataCopyExtParams& params) {
  in_range(name, "blockCount", params.blockCount, 0, 4095);
  in_range(name, "blockLen", params.blockLen, 0, kMaxCopyBytes);
  require(params.blockLen.given() % sizeof(T) == 0, name, "blockLen", params.blockLen.given(),
          "must be a multiple of the element's bytes");
  require(params.rsv.given() == 0, name, "rsv", params.rsv.given(), "must be 0");
}

// One burst's row in the UB: everything but the burst itself.
template <typename T>
void pad_row(Access& access, const Bursts& b, const PadBytes<T>& pad, uint64_t row_offset,
             const uint8_t* burst) {
  const uint64_t end = align_up(pad.left + b.bytes + pad.right, kBlockBytes);
  const uint64_t after = pad.left + b.bytes;
  const bool padded = pad.left + pad.right != 0;
  const uint64_t spans[2][2] = {{0, pad.left}, {after, end}};
  for (const auto& span : spans) {
    const uint64_t bytes = span[1] - span[0];
    if (bytes == 0) continue;
    if (padded && !pad.fill) {
      access.forget(b.dst.place, row_offset + span[0], bytes, "dst padding");
      continue;
    }
    uint8_t* to = access.write(b.dst.place, row_offset + span[0], bytes, b.dst.name);
    const void* value = padded ? static_cast<const void*>(&pad.value) : burst;
    for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) std::memcpy(to + i, value, sizeof(T));
  }
}

template <typename T>
void pad_into_ub(const Operand& dst, const Operand& src, const AscendC::DataCopyExtParams& params,
                 const AscendC::DataCopyPadExtParams<T>& padding) {
  const char* const name = "DataCopyPad";
  const Pipe pipe = route(name, dst, src);
  lives_in(name, dst, Memory::kUb, kBlockBytes);
  check_ext<T>(name, params);
  in_range(name, "srcStride", params.srcStride, kIs3510 ? -params.blockLen.given() : 0, kMaxGmGap);
  in_range(name, "dstStride", params.dstStride, 0, kMaxUbGap);
  const PadBytes<T> pad{uint64_t{padding.leftPadding} * sizeof(T), uint64_t{padding.rightPadding} * sizeof(T),
                        padding.isPad, padding.paddingValue};
  in_range(name, "leftPadding in bytes", padding.leftPadding.given() * sizeof(T), 0, kBlockBytes);
  in_range(name, "rightPadding in bytes", padding.rightPadding.given() * sizeof(T), 0, kBlockBytes);
  if constexpr (sizeof(T) == 8) {
    require(padding.paddingValue == T{}, name, "paddingValue", 1, "must be 0 for 64-bit elements");
  }
  const uint64_t row = align_up(pad.left + params.blockLen + pad.right, kBlockBytes);
  Bursts bursts{dst, src, params.blockCount, params.blockLen, 0, 0};
  bursts.dst.offset += pad.left;
  bursts.dst_stride = static_cast<int64_t>(row) + params.dstStride.given() * kBlockBytes;
  bursts.src_stride = params.blockLen.given() + params.srcStride.given();
  if (bursts.count == 0 || bursts.bytes == 0) return;
  current().issue(pipe, name, dma_cost(Memory::kGm, Memory::kUb, bursts.bytes * bursts.count, bursts.count),
                  [bursts, pad, row](Access& access) {
                    const uint8_t* burst = run_bursts<T>(access, bursts, false);
                    if (row == bursts.bytes) return;
                    for (uint64_t i = 0; i < bursts.count; ++i, burst += bursts.src_stride) {
                      pad_row<T>(access, bursts, pad, bursts.dst.offset - pad.left + i * bursts.dst_stride,
                                 burst);
                    }
                  });
}

template <typename T>
void pad_into_gm(const Operand& dst, const Operand& src, const AscendC::DataCopyExtParams& params) {
  const char* const name = "DataCopyPad";
  const Pipe pipe = route(name, dst, src);
  lives_in(name, src, Memory::kUb, kBlockBytes);
  check_ext<T>(name, params);
  in_range(name, "srcStride", params.srcStride, 0, kMaxUbGap);
  in_range(name, "dstStride", params.dstStride, 0, kMaxGmGap);
  const uint64_t row = align_up(params.blockLen, kBlockBytes);
  const Bursts bursts{dst,
                      src,
                      params.blockCount,
                      params.blockLen,
                      params.blockLen.given() + params.dstStride.given(),
                      static_cast<int64_t>(row) + params.srcStride.given() * kBlockBytes};
  issue_bursts<T>(name, pipe, bursts);
}

}  // namespace twin::api

namespace AscendC {

#if __NPU_ARCH__ == 3510
template <typename T, PaddingMode mode = PaddingMode::Normal>
#else
template <typename T>
#endif
__aicore__ inline void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                                   const DataCopyExtParams& dataCopyParams,
                                   const DataCopyPadExtParams<T>& padParams) {
#if __NPU_ARCH__ == 3510
  static_assert(mode == PaddingMode::Normal, "the compact mode is outside the twin's subset");
#endif
  twin::api::pad_into_ub<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                            dataCopyParams, padParams);
}

#if __NPU_ARCH__ == 3510
template <typename T, PaddingMode mode = PaddingMode::Normal>
#else
template <typename T>
#endif
__aicore__ inline void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src,
                                   const DataCopyExtParams& dataCopyParams) {
#if __NPU_ARCH__ == 3510
  static_assert(mode == PaddingMode::Normal, "the compact mode is outside the twin's subset");
#endif
  twin::api::pad_into_gm<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                            dataCopyParams);
}

}  // namespace AscendC
