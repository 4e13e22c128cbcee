// vector_tiles.h -- the vector core's tools: barriers, row-wise operands and the pools of tiles that DMA
// fills and empties.
#ifndef VMAMBA2_VECTOR_TILES_H
#define VMAMBA2_VECTOR_TILES_H

#include "arch.h"

namespace vmamba2 {

constexpr int32_t kLanes = 64;       // float32 elements of one repeat
constexpr int32_t kBlockFloats = 8;  // float32 elements of one block
constexpr int32_t kTileBytes = kTileElements * 4;

// Ids of the events between V and MTE2, and between V and MTE3, that do not belong to a slot of a pool. Every
// set of kLoadEvent is directly followed by its wait.
constexpr int32_t kCbEvent = 4;
constexpr int32_t kCopyEvent = 4;
constexpr int32_t kLoadEvent = 5;
static_assert(kInSlots <= kCbEvent && kOutSlots <= kCopyEvent, "a pool's slots must not use another's event");

template <typename E>
__aicore__ inline AscendC::LocalTensor<E> Ub(uint32_t bytes_offset, int32_t elements) {
  return AscendC::LocalTensor<E>(AscendC::TPosition::VECCALC, bytes_offset, static_cast<uint32_t>(elements));
}

// Every vector instruction that needs the result of an earlier one is behind this.
__aicore__ inline void Settle() { AscendC::PipeBarrier<PIPE_V>(); }

// Tiles that travel between global memory and the vector unit. A slot's events are its own: `filled` says
// that DMA wrote it, `emptied` that the vector unit is done with it (and the other way round on the way out).
class TilePool {
 public:
  __aicore__ inline void Init(uint32_t base, int32_t slots) {
    base_ = base;
    slots_ = slots;
    next_ = 0;
  }
  __aicore__ inline int32_t Next() {
    const int32_t slot = next_;
    next_ = next_ + 1 == slots_ ? 0 : next_ + 1;
    return slot;
  }
  template <typename E>
  __aicore__ inline AscendC::LocalTensor<E> Tile(int32_t slot) const {
    return Ub<E>(base_ + slot * kTileBytes, kTileBytes / static_cast<int32_t>(sizeof(E)));
  }

 private:
  uint32_t base_;
  int32_t slots_, next_;
};

__aicore__ inline AscendC::BinaryRepeatParams RowWise(int32_t dst_block, int32_t dst_repeat,
                                                      int32_t src0_block, int32_t src0_repeat,
                                                      int32_t src1_block, int32_t src1_repeat) {
  return AscendC::BinaryRepeatParams(dst_block, src0_block, src1_block, dst_repeat, src0_repeat, src1_repeat);
}

}  // namespace vmamba2

#endif  // VMAMBA2_VECTOR_TILES_H
