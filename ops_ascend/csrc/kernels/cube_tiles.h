// cube_tiles.h -- the cube core's tools: operand tiles on their way through L1 into L0, and the products of
// what is there.
//
// An L1 stream slot and an L0 pair (one left, one right operand) each have their own events, so that the next
// tiles load while the cube multiplies.
#ifndef VMAMBA2_CUBE_TILES_H
#define VMAMBA2_CUBE_TILES_H

#include "arch.h"

namespace vmamba2 {

template <typename Op>
class CubeTiles {
 public:
  static constexpr int32_t kOperandBytes = 32 * 1024;  // of one L0A or L0B slot: two of them fill the buffer
  static constexpr int32_t kPairs = 2;

  __aicore__ inline void Init(const SsdForwardTiling* tiling) {
    t_ = tiling;
    stream_ = left_right_ = 0;
  }

  __aicore__ inline void GrantFreeSlots() {
    for (int32_t slot = 0; slot < kStreamSlots; ++slot) {
      Release(slot);
    }
    for (int32_t pair = 0; pair < kPairs; ++pair) {
      AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(pair);
    }
  }

  __aicore__ inline void TakeBackFreeSlots() {
    for (int32_t slot = 0; slot < kStreamSlots; ++slot) {
      AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(slot);
    }
    for (int32_t pair = 0; pair < kPairs; ++pair) {
      AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(pair);
    }
  }

  __aicore__ inline void CopyBurst(const AscendC::LocalTensor<Op>& dst, const AscendC::GlobalTensor<Op>& src,
                                   int32_t elements) {
    const int32_t blocks = elements * static_cast<int32_t>(sizeof(Op)) / kBlockBytes;
    AscendC::DataCopy(dst, src, AscendC::DataCopyParams(1, blocks, 0, 0));
  }

  // Brings an operand tile into the next L1 slot; the caller loads it into L0 and calls Release.
  __aicore__ inline AscendC::LocalTensor<Op> Fetch(const AscendC::GlobalTensor<Op>& src, int32_t elements,
                                                   int32_t* slot) {
    *slot = stream_;
    stream_ = (stream_ + 1) % kStreamSlots;
    AscendC::LocalTensor<Op> tile(AscendC::TPosition::A1, t_->l1.stream + *slot * t_->l1.stream_slot,
                                  static_cast<uint32_t>(t_->l1.stream_slot / sizeof(Op)));
    AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(*slot);
    CopyBurst(tile, src, elements);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE1>(*slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE1>(*slot);
    return tile;
  }

  __aicore__ inline void Release(int32_t slot) { AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(slot); }

  __aicore__ inline AscendC::LocalTensor<Op> Left() const {
    return AscendC::LocalTensor<Op>(AscendC::TPosition::A2, left_right_ * kOperandBytes,
                                    kOperandBytes / sizeof(Op));
  }
  __aicore__ inline AscendC::LocalTensor<Op> Right() const {
    return AscendC::LocalTensor<Op>(AscendC::TPosition::B2, left_right_ * kOperandBytes,
                                    kOperandBytes / sizeof(Op));
  }

  __aicore__ inline void OperandsBegin() { AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(left_right_); }

  // Multiplies the pair of operands that was just loaded.
  __aicore__ inline void Multiply(const AscendC::LocalTensor<float>& into, int32_t m, int32_t n, int32_t k,
                                  bool first) {
    AscendC::SetFlag<AscendC::HardEvent::MTE1_M>(left_right_);
    AscendC::WaitFlag<AscendC::HardEvent::MTE1_M>(left_right_);
    AscendC::MmadParams product;
    product.m = m;
    product.n = n;
    product.k = k;
    product.cmatrixInitVal = first;
    constexpr int32_t kFractalsThatHideTheAccumulation = 10;
    if (!first && (m / kFractalRows) * (n / kFractalRows) < kFractalsThatHideTheAccumulation) {
      AscendC::PipeBarrier<PIPE_M>();
    }
    AscendC::Mmad(into, Left(), Right(), product);
    AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(left_right_);
    left_right_ = 1 - left_right_;
  }

 private:
  const SsdForwardTiling* t_;
  int32_t stream_, left_right_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_CUBE_TILES_H
