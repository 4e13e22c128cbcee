// params.h -- parameter structures of the moves and vector instructions, with the public field names and
// constructors.
#pragma once

#include "twin/ascendc/types.h"

namespace AscendC {

struct DataCopyParams {
  __aicore__ DataCopyParams() {}
  __aicore__ DataCopyParams(const twin::Wide<uint16_t> count, const twin::Wide<uint16_t> len,
                            const twin::Wide<uint16_t> srcStrideIn, const twin::Wide<uint16_t> dstStrideIn)
      : blockCount(count), blockLen(len), srcStride(srcStrideIn), dstStride(dstStrideIn) {}

  twin::Wide<uint16_t> blockCount = 1;
  twin::Wide<uint16_t> blockLen = 0;
  union {
    twin::Wide<uint16_t> srcGap = 0;
    twin::Wide<uint16_t> srcStride;
  };
  union {
    twin::Wide<uint16_t> dstGap = 0;
    twin::Wide<uint16_t> dstStride;
  };
};

#if __NPU_ARCH__ == 3510
using CopyStride = int64_t;
#else
using CopyStride = uint32_t;
#endif

struct DataCopyExtParams {
  __aicore__ DataCopyExtParams() {}
  __aicore__ DataCopyExtParams(const twin::Wide<uint16_t> count, const twin::Wide<uint32_t> len,
                               const twin::Wide<CopyStride> srcStrideIn,
                               const twin::Wide<CopyStride> dstStrideIn, const twin::Wide<uint32_t> rsvIn)
      : blockCount(count), blockLen(len), srcStride(srcStrideIn), dstStride(dstStrideIn), rsv(rsvIn) {}

  twin::Wide<uint16_t> blockCount = 1;
  twin::Wide<uint32_t> blockLen = 0;
  twin::Wide<CopyStride> srcStride = 0;
  twin::Wide<CopyStride> dstStride = 0;
  twin::Wide<uint32_t> rsv = 0;
};

template <typename T>
struct DataCopyPadExtParams {
  __aicore__ DataCopyPadExtParams() {}
  __aicore__ DataCopyPadExtParams(const bool isPadValue, const twin::Wide<uint8_t> leftPadValue,
                                  const twin::Wide<uint8_t> rightPadValue, T padValue)
      : isPad(isPadValue), leftPadding(leftPadValue), rightPadding(rightPadValue), paddingValue(padValue) {}

  bool isPad = false;
  twin::Wide<uint8_t> leftPadding = 0;
  twin::Wide<uint8_t> rightPadding = 0;
  T paddingValue = 0;
};

struct Nd2NzParams {
#if __NPU_ARCH__ == 3510
  using Count = uint32_t;
  using Pitch = uint64_t;
  using MatrixStride = uint32_t;
#else
  using Count = uint16_t;
  using Pitch = uint16_t;
  using MatrixStride = uint16_t;
#endif
  __aicore__ Nd2NzParams() {}
  __aicore__ Nd2NzParams(const twin::Wide<uint16_t> ndNumIn, const twin::Wide<uint16_t> nValueIn,
                         const twin::Wide<Count> dValueIn, const twin::Wide<Pitch> srcNdMatrixStrideIn,
                         const twin::Wide<Pitch> srcDValueIn, const twin::Wide<uint16_t> dstNzC0StrideIn,
                         const twin::Wide<uint16_t> dstNzNStrideIn,
                         const twin::Wide<MatrixStride> dstNzMatrixStrideIn)
      : ndNum(ndNumIn),
        nValue(nValueIn),
        dValue(dValueIn),
        srcNdMatrixStride(srcNdMatrixStrideIn),
        srcDValue(srcDValueIn),
        dstNzC0Stride(dstNzC0StrideIn),
        dstNzNStride(dstNzNStrideIn),
        dstNzMatrixStride(dstNzMatrixStrideIn) {}

  twin::Wide<uint16_t> ndNum = 0;
  twin::Wide<uint16_t> nValue = 0;
  twin::Wide<Count> dValue = 0;
  twin::Wide<Pitch> srcNdMatrixStride = 0;
  twin::Wide<Pitch> srcDValue = 0;
  twin::Wide<uint16_t> dstNzC0Stride = 0;
  twin::Wide<uint16_t> dstNzNStride = 0;
  twin::Wide<MatrixStride> dstNzMatrixStride = 0;
};

struct UnaryRepeatParams {
  __aicore__ UnaryRepeatParams() {}
  __aicore__ UnaryRepeatParams(const twin::Wide<uint16_t> dstBlkStrideIn,
                               const twin::Wide<uint16_t> srcBlkStrideIn,
                               const twin::Wide<uint8_t> dstRepStrideIn,
                               const twin::Wide<uint8_t> srcRepStrideIn)
      : dstBlkStride(dstBlkStrideIn),
        srcBlkStride(srcBlkStrideIn),
        dstRepStride(dstRepStrideIn),
        srcRepStride(srcRepStrideIn) {}

  twin::Wide<uint16_t> dstBlkStride = 1;
  twin::Wide<uint16_t> srcBlkStride = 1;
  twin::Wide<uint8_t> dstRepStride = 8;
  twin::Wide<uint8_t> srcRepStride = 8;
};

struct BinaryRepeatParams {
  __aicore__ BinaryRepeatParams() {}
  __aicore__ BinaryRepeatParams(const twin::Wide<uint8_t> dstBlkStrideIn,
                                const twin::Wide<uint8_t> src0BlkStrideIn,
                                const twin::Wide<uint8_t> src1BlkStrideIn,
                                const twin::Wide<uint8_t> dstRepStrideIn,
                                const twin::Wide<uint8_t> src0RepStrideIn,
                                const twin::Wide<uint8_t> src1RepStrideIn)
      : dstBlkStride(dstBlkStrideIn),
        src0BlkStride(src0BlkStrideIn),
        src1BlkStride(src1BlkStrideIn),
        dstRepStride(dstRepStrideIn),
        src0RepStride(src0RepStrideIn),
        src1RepStride(src1RepStrideIn) {}

  twin::Wide<uint8_t> dstBlkStride = 1;
  twin::Wide<uint8_t> src0BlkStride = 1;
  twin::Wide<uint8_t> src1BlkStride = 1;
  twin::Wide<uint8_t> dstRepStride = 8;
  twin::Wide<uint8_t> src0RepStride = 8;
  twin::Wide<uint8_t> src1RepStride = 8;
};

struct BrcbRepeatParams {
  __aicore__ BrcbRepeatParams() {}
  __aicore__ BrcbRepeatParams(const twin::Wide<uint16_t> dstBlkStrideIn,
                              const twin::Wide<uint16_t> dstRepStrideIn)
      : dstRepStride(dstRepStrideIn), dstBlkStride(dstBlkStrideIn) {}

  twin::Wide<uint16_t> dstRepStride = 8;
  twin::Wide<uint16_t> dstBlkStride = 1;
};

struct CopyRepeatParams {
  __aicore__ CopyRepeatParams() {}
  __aicore__ CopyRepeatParams(const twin::Wide<uint16_t> dstStrideIn, const twin::Wide<uint16_t> srcStrideIn,
                              twin::Wide<uint16_t> dstRepeatSizeIn, twin::Wide<uint16_t> srcRepeatSizeIn)
      : dstStride(dstStrideIn),
        srcStride(srcStrideIn),
        dstRepeatSize(dstRepeatSizeIn),
        srcRepeatSize(srcRepeatSizeIn) {}

  twin::Wide<uint16_t> dstStride = 0;
  twin::Wide<uint16_t> srcStride = 0;
  twin::Wide<uint16_t> dstRepeatSize = 8;
  twin::Wide<uint16_t> srcRepeatSize = 8;
};

}  // namespace AscendC
