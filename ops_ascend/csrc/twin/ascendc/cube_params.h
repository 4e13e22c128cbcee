// cube_params.h -- parameter structures of the cube's loads, products and stores, with the public names and
// constructors.
#pragma once

#include "twin/ascendc/types.h"

namespace AscendC {

struct LoadData2DParams {
  __aicore__ LoadData2DParams() {}
  __aicore__ LoadData2DParams(const twin::Wide<uint16_t> startIndexIn,
                              const twin::Wide<uint8_t> repeatTimesIn, const twin::Wide<uint16_t> srcStrideIn,
                              const twin::Wide<uint8_t> sidIn, const twin::Wide<uint16_t> dstGapIn,
                              const bool ifTransposeIn, const twin::Wide<uint8_t> addrModeIn)
      : startIndex(startIndexIn),
        dstGap(dstGapIn),
        srcStride(srcStrideIn),
        ifTranspose(ifTransposeIn),
        repeatTimes(repeatTimesIn),
        sid(sidIn),
        addrMode(addrModeIn) {}

  twin::Wide<uint16_t> startIndex = 0;
  twin::Wide<uint16_t> dstGap = 0;
  twin::Wide<uint16_t> srcStride = 0;
  bool ifTranspose = 0;
  twin::Wide<uint8_t> repeatTimes = 0;
  twin::Wide<uint8_t> sid = 0;
  twin::Wide<uint8_t> addrMode = 0;
};

struct LoadData2DParamsV2 {
  __aicore__ LoadData2DParamsV2() {}
  __aicore__ LoadData2DParamsV2(const twin::Wide<uint32_t> mStartPositionIn,
                                const twin::Wide<uint32_t> kStartPositionIn,
                                const twin::Wide<uint16_t> mStepIn, const twin::Wide<uint16_t> kStepIn,
                                const twin::Wide<int32_t> srcStrideIn, const twin::Wide<uint16_t> dstStrideIn,
                                const bool ifTransposeIn, const twin::Wide<uint8_t> sidIn)
      : mStartPosition(mStartPositionIn),
        kStartPosition(kStartPositionIn),
        mStep(mStepIn),
        kStep(kStepIn),
        srcStride(srcStrideIn),
        dstStride(dstStrideIn),
        ifTranspose(ifTransposeIn),
        sid(sidIn) {}

  twin::Wide<uint32_t> mStartPosition = 0;
  twin::Wide<uint32_t> kStartPosition = 0;
  twin::Wide<uint16_t> mStep = 0;
  twin::Wide<uint16_t> kStep = 0;
  twin::Wide<int32_t> srcStride = 0;
  twin::Wide<uint16_t> dstStride = 0;
  bool ifTranspose = false;
  twin::Wide<uint8_t> sid = 0;
};

struct LoadData2dTransposeParams {
  __aicore__ LoadData2dTransposeParams() {}
  __aicore__ LoadData2dTransposeParams(const twin::Wide<uint16_t> startIndexIn,
                                       const twin::Wide<uint8_t> repeatTimesIn,
                                       const twin::Wide<uint16_t> srcStrideIn,
                                       const twin::Wide<uint16_t> dstGapIn,
                                       const twin::Wide<uint16_t> dstfracGapIn,
                                       const twin::Wide<uint8_t> addrModeIn)
      : startIndex(startIndexIn),
        repeatTimes(repeatTimesIn),
        srcStride(srcStrideIn),
        dstGap(dstGapIn),
        dstFracGap(dstfracGapIn),
        addrMode(addrModeIn) {}
  __aicore__ LoadData2dTransposeParams(const twin::Wide<uint16_t> startIndexIn,
                                       const twin::Wide<uint8_t> repeatTimesIn,
                                       const twin::Wide<uint16_t> srcStrideIn,
                                       const twin::Wide<uint16_t> dstGapIn,
                                       const twin::Wide<uint16_t> dstfracGapIn)
      : LoadData2dTransposeParams(startIndexIn, repeatTimesIn, srcStrideIn, dstGapIn, dstfracGapIn, 0) {}

  twin::Wide<uint16_t> startIndex = 0;
  twin::Wide<uint8_t> repeatTimes = 0;
  twin::Wide<uint16_t> srcStride = 0;
  twin::Wide<uint16_t> dstGap = 0;
  twin::Wide<uint16_t> dstFracGap = 0;
  twin::Wide<uint8_t> addrMode = 0;
};

template <typename T>
struct InitConstValueParams {
  __aicore__ InitConstValueParams() {}
  __aicore__ InitConstValueParams(const twin::Wide<uint16_t> repeatTimesIn,
                                  const twin::Wide<uint16_t> blockNumIn, const twin::Wide<uint16_t> dstGapIn,
                                  const T initValueIn)
      : repeatTimes(repeatTimesIn), blockNum(blockNumIn), dstGap(dstGapIn), initValue(initValueIn) {}

  twin::Wide<uint16_t> repeatTimes = 0;
  twin::Wide<uint16_t> blockNum = 0;
  twin::Wide<uint16_t> dstGap = 0;
  T initValue = 0;
};

struct MmadParams {
  __aicore__ MmadParams() {}
  __aicore__ MmadParams(const twin::Wide<uint16_t> mIn, const twin::Wide<uint16_t> nIn,
                        const twin::Wide<uint16_t> kIn, const twin::Wide<uint8_t> unitFlagIn,
                        const bool cmatrixSourceIn, const bool cmatrixInitValIn)
      : m(mIn),
        n(nIn),
        k(kIn),
        unitFlag(unitFlagIn),
        cmatrixSource(cmatrixSourceIn),
        cmatrixInitVal(cmatrixInitValIn) {}

  twin::Wide<uint16_t> m = 0;
  twin::Wide<uint16_t> n = 0;
  twin::Wide<uint16_t> k = 0;
  bool isBias = false;
  int32_t fmOffset = 0;
  bool enSsparse = false;
  bool enWinogradA = false;
  bool enWinogradB = false;
  twin::Wide<uint8_t> unitFlag = 0;
  bool kDirectionAlign = false;
  bool cmatrixSource = false;
  bool cmatrixInitVal = true;
#if __NPU_ARCH__ == 3510
  bool disableGemv = false;
#endif
};

enum class CO2Layout : uint8_t { NZ = 0, ROW_MAJOR, COLUMN_MAJOR };

struct FixpipeConfig {
  CO2Layout format;
#if __NPU_ARCH__ == 3510
  bool isToUB;
  __aicore__ constexpr inline FixpipeConfig(CO2Layout format_) : format(format_), isToUB(false) {}
  __aicore__ constexpr inline FixpipeConfig(CO2Layout format_, bool isToUB_)
      : format(format_), isToUB(isToUB_) {}
#else
  __aicore__ constexpr inline FixpipeConfig(CO2Layout format_) : format(format_) {}
  __aicore__ constexpr inline FixpipeConfig(CO2Layout format_, bool) : format(format_) {}
#endif
};

constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ};
constexpr FixpipeConfig CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};

#if __NPU_ARCH__ == 3510
struct Nz2NdParams {
  __aicore__ Nz2NdParams() {}
  __aicore__ Nz2NdParams(const twin::Wide<uint16_t> ndNumIn, const twin::Wide<uint16_t> srcNdStrideIn,
                         const twin::Wide<uint32_t> dstNdStrideIn)
      : ndNum(ndNumIn), srcNdStride(srcNdStrideIn), dstNdStride(dstNdStrideIn) {}

  twin::Wide<uint16_t> ndNum = 1;
  twin::Wide<uint16_t> srcNdStride = 0;
  twin::Wide<uint32_t> dstNdStride = 0;
};

template <CO2Layout format>
struct TransformParams {};
template <>
struct TransformParams<CO2Layout::NZ> {
  using PARAMS = uint8_t;
};
template <>
struct TransformParams<CO2Layout::ROW_MAJOR> {
  using PARAMS = Nz2NdParams;
};

template <CO2Layout format = CO2Layout::ROW_MAJOR>
struct FixpipeParamsArch3510 {
  __aicore__ FixpipeParamsArch3510() {}
  __aicore__ FixpipeParamsArch3510(const twin::Wide<uint16_t> nSizeIn, const twin::Wide<uint16_t> mSizeIn,
                                   const twin::Wide<uint16_t> srcStrideIn,
                                   const twin::Wide<uint32_t> dstStrideIn)
      : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn) {}

  twin::Wide<uint16_t> nSize = 0;
  twin::Wide<uint16_t> mSize = 0;
  twin::Wide<uint16_t> srcStride = 0;
  twin::Wide<uint32_t> dstStride = 0;
  QuantMode_t quantPre = QuantMode_t::NoQuant;
  uint64_t deqScalar = 0;
  bool reluEn = false;
  twin::Wide<uint8_t> unitFlag = 0;
  twin::Wide<uint8_t> dualDstCtl = 0;
  bool subBlockId = false;
  typename TransformParams<format>::PARAMS params{};
  bool isChannelSplit = false;
};
#else
struct FixpipeParamsV220 {
  __aicore__ FixpipeParamsV220() {}
  __aicore__ FixpipeParamsV220(const twin::Wide<uint16_t> nSizeIn, const twin::Wide<uint16_t> mSizeIn,
                               const twin::Wide<uint16_t> srcStrideIn, const twin::Wide<uint32_t> dstStrideIn,
                               const bool reluEnIn)
      : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn), reluEn(reluEnIn) {}

  twin::Wide<uint16_t> nSize = 0;
  twin::Wide<uint16_t> mSize = 0;
  twin::Wide<uint16_t> srcStride = 0;
  twin::Wide<uint32_t> dstStride = 0;
  QuantMode_t quantPre = QuantMode_t::NoQuant;
  uint64_t deqScalar = 0;
  twin::Wide<uint16_t> ndNum = 1;
  twin::Wide<uint16_t> srcNdStride = 0;
  twin::Wide<uint16_t> dstNdStride = 0;
  bool reluEn = false;
  twin::Wide<uint8_t> unitFlag = 0;
  bool isChannelSplit = false;
};
#endif

}  // namespace AscendC
