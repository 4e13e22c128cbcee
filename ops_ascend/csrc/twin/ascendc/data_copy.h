// data_copy.h -- DataCopy: contiguous and strided moves between GM, UB and L1.
#pragma once

#include "twin/ascendc/burst.h"
#include "twin/ascendc/params.h"

namespace twin::api {

template <typename T>
void copy_count(const Operand& dst, const Operand& src, uint32_t count) {
  const char* const name = "DataCopy";
  const Pipe pipe = route(name, dst, src);
  const uint64_t bytes = uint64_t{count} * sizeof(T);
  for (const Operand* operand : {&dst, &src}) {
    if (operand->place.memory != Memory::kGm) aligned(name, *operand, kBlockBytes);
  }
  require(bytes % kBlockBytes == 0, name, "count in bytes", static_cast<int64_t>(bytes),
          "must be a multiple of 32: the rest would be dropped");
  const Bursts bursts{dst, src, 1, bytes, static_cast<int64_t>(bytes), static_cast<int64_t>(bytes)};
  disjoint(name, bursts);
  issue_bursts<T>(name, pipe, bursts);
}

template <typename T>
void copy_blocks(const Operand& dst, const Operand& src, const AscendC::DataCopyParams& params) {
  const char* const name = "DataCopy";
  const Pipe pipe = route(name, dst, src);
  for (const Operand* operand : {&dst, &src}) {
    if (operand->place.memory != Memory::kGm) aligned(name, *operand, kBlockBytes);
  }
  in_range(name, "blockCount", params.blockCount, 0, 4095);
  in_range(name, "blockLen", params.blockLen, 0, 65535);
  in_range(name, "srcGap", params.srcGap, 0, 65535);
  in_range(name, "dstGap", params.dstGap, 0, 65535);
  const uint64_t bytes = uint64_t{params.blockLen} * kBlockBytes;
  const auto stride = [bytes](uint64_t gap) { return static_cast<int64_t>(bytes + gap * kBlockBytes); };
  const Bursts bursts{dst, src, params.blockCount, bytes, stride(params.dstGap), stride(params.srcGap)};
  disjoint(name, bursts);
  issue_bursts<T>(name, pipe, bursts);
}

}  // namespace twin::api

namespace AscendC {

template <typename T>
__aicore__ inline void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const uint32_t count) {
  twin::api::copy_count<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                           count);
}

template <typename T>
__aicore__ inline void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count) {
  twin::api::copy_count<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                           count);
}

template <typename T>
__aicore__ inline void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count) {
  twin::api::copy_count<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                           count);
}

template <typename T>
__aicore__ inline void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                                const DataCopyParams& repeatParams) {
  twin::api::copy_blocks<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                            repeatParams);
}

template <typename T>
__aicore__ inline void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src,
                                const DataCopyParams& repeatParams) {
  twin::api::copy_blocks<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                            repeatParams);
}

template <typename T>
__aicore__ inline void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                const DataCopyParams& repeatParams) {
  twin::api::copy_blocks<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"),
                            repeatParams);
}

}  // namespace AscendC
