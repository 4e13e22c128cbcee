// fractal_tiles.h -- float32 products of the cube on a vector core: its 32 of 64 rows, [columns / 8][32][8].
#ifndef VMAMBA2_FRACTAL_TILES_H
#define VMAMBA2_FRACTAL_TILES_H

#include "vector_tiles.h"

namespace vmamba2 {

// Row by row through the blocks of a fractal tile: with one factor for each row (a block of it, `row_repeat`
// blocks apart), and with one row of factors for all.
__aicore__ inline AscendC::BinaryRepeatParams ByRowFactor(int32_t row_repeat) {
  return RowWise(kVectorRows, 1, kVectorRows, 1, 0, row_repeat);
}
__aicore__ inline AscendC::BinaryRepeatParams ByColumnFactor() {
  return RowWise(kVectorRows, 1, kVectorRows, 1, 1, 0);
}

// This core's rows of a fractal product of 64 rows in global memory, into a tile of the pool.
__aicore__ inline int32_t FetchFractals(TilePool* in, const AscendC::GlobalTensor<float>& src, int32_t sub,
                                        int32_t width) {
  const int32_t slot = in->Next();
  AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
  AscendC::DataCopy(in->Tile<float>(slot), src[sub * kVectorRows * kBlockFloats],
                    AscendC::DataCopyParams(width / kBlockFloats, kVectorRows, kChunk - kVectorRows, 0));
  AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
  AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
  return slot;
}

// The sums of the 32 rows of a fractal tile block by block, [width / 8][32]; AddRowSums adds the blocks up.
__aicore__ inline void BlockSums(const AscendC::LocalTensor<float>& dst,
                                 const AscendC::LocalTensor<float>& tile, int32_t width) {
  AscendC::BlockReduceSum(dst, tile, width * kVectorRows / kLanes, kLanes, 1, 1, 8);
}

constexpr int32_t kBlockSums = kVectorRows * kSlice / kBlockFloats;  // numbers of one tile of 64 columns

// dst[head][32] += the row sums of `heads` tiles, of which `sums` holds the block sums, kBlockSums apart; they
// are used up.
__aicore__ inline void AddRowSums(const AscendC::LocalTensor<float>& dst,
                                  const AscendC::LocalTensor<float>& sums, int32_t width, int32_t heads) {
  constexpr int32_t kApart = kBlockSums / kBlockFloats;
  int32_t left = width / kBlockFloats;
  while (left > 1) {
    const int32_t half = left / 2;
    left -= half;
    for (int32_t at = 0; at < half * kVectorRows; at += kLanes) {
      const int32_t rest = half * kVectorRows - at;
      AscendC::Add(sums[at], sums[at], sums[left * kVectorRows + at],
                   static_cast<uint64_t>(rest < kLanes ? rest : kLanes), heads,
                   RowWise(1, kApart, 1, kApart, 1, kApart));
    }
    Settle();
  }
  constexpr int32_t kRowBlocks = kVectorRows / kBlockFloats;
  AscendC::Add(dst, dst, sums, static_cast<uint64_t>(kVectorRows), heads,
               RowWise(1, kRowBlocks, 1, kRowBlocks, 1, kApart));
  Settle();
}

}  // namespace vmamba2

#endif  // VMAMBA2_FRACTAL_TILES_H
