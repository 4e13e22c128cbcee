// selective_tiles.h -- how the selective scan's data moves: rows between global memory and the Unified
// Buffer, rows into lanes and back, values of states spread over lanes.
//
// Rows    [channel][tokens]: a channel's tokens side by side, padded to whole 32-byte blocks
// Lanes   [token][64 channels] float32: what arithmetic works on
// States  [state][token][64 channels], or [state][64 channels]
#ifndef VMAMBA2_SELECTIVE_TILES_H
#define VMAMBA2_SELECTIVE_TILES_H

#include "selective_cursor.h"
#include "vector_tiles.h"

namespace vmamba2 {

constexpr int32_t kTransposeRows = 16;
constexpr int64_t kLongestGap = 0xffffffff;  // bytes between two rows that one move can skip on 910B3
constexpr int32_t kStateElements = kChunkStates * kBlockChannels;

template <typename E>
__aicore__ inline int32_t RowPitch(int32_t columns) {
  constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(E));
  return (columns + kWidth - 1) / kWidth * kWidth;
}

// Rows <- global memory, padded with zeros. Rows may lie anywhere: expanded tensors have a stride of 0.
template <typename E>
__aicore__ inline void FetchRows(const AscendC::LocalTensor<E>& dst, const AscendC::GlobalTensor<E>& src,
                                 int64_t at, int64_t stride, int32_t rows, int32_t columns) {
  const int32_t pitch = RowPitch<E>(columns);
  const uint32_t bytes = static_cast<uint32_t>(columns * sizeof(E));
  const int64_t gap = (stride - columns) * static_cast<int64_t>(sizeof(E));
  const AscendC::DataCopyPadExtParams<E> zeros(true, 0, pitch - columns, static_cast<E>(0.0f));
  if (gap >= 0 && gap <= kLongestGap) {
    const AscendC::DataCopyExtParams copy(rows, bytes, static_cast<uint32_t>(gap), 0, 0);
    AscendC::DataCopyPad(dst, src[at], copy, zeros);
    return;
  }
  const AscendC::DataCopyExtParams copy(1, bytes, 0, 0, 0);
  for (int32_t row = 0; row < rows; ++row) {
    AscendC::DataCopyPad(dst[row * pitch], src[at + row * stride], copy, zeros);
  }
}

// Global memory <- rows that are `pitch` elements apart in the Unified Buffer.
template <typename E>
__aicore__ inline void PutRows(const AscendC::GlobalTensor<E>& dst, int64_t at, int64_t stride,
                               const AscendC::LocalTensor<E>& src, int32_t pitch, int32_t rows,
                               int32_t columns) {
  constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(E));
  const uint32_t bytes = static_cast<uint32_t>(columns * sizeof(E));
  const uint32_t skipped = static_cast<uint32_t>((pitch - RowPitch<E>(columns)) / kWidth);
  const int64_t gap = (stride - columns) * static_cast<int64_t>(sizeof(E));
  if (gap <= kLongestGap) {
    const AscendC::DataCopyExtParams copy(rows, bytes, skipped, static_cast<uint32_t>(gap), 0);
    AscendC::DataCopyPad(dst[at], src, copy);
    return;
  }
  const AscendC::DataCopyExtParams copy(1, bytes, 0, 0, 0);
  for (int32_t row = 0; row < rows; ++row) {
    AscendC::DataCopyPad(dst[at + row * stride], src[row * pitch], copy);
  }
}

__aicore__ inline AscendC::TransDataTo5HDParams TransposeRepeats(int32_t repeats, int32_t dst, int32_t src) {
  AscendC::TransDataTo5HDParams params;
  params.repeatTimes = repeats;
  params.dstRepStride = repeats == 1 ? 0 : dst;
  params.srcRepStride = repeats == 1 ? 0 : src;
  return params;
}

// [columns][64] <- [64 rows][pitch]; columns are rounded up to 8.
__aicore__ inline void RowsToLanes(const AscendC::LocalTensor<float>& dst,
                                   const AscendC::LocalTensor<float>& src, int32_t pitch, int32_t columns) {
  const int32_t repeats = (columns + kBlockFloats - 1) / kBlockFloats;
  const AscendC::TransDataTo5HDParams params = TransposeRepeats(repeats, kBlockChannels, 1);
  for (int32_t row = 0; row < kBlockChannels; row += kTransposeRows) {
    AscendC::LocalTensor<float> to[kTransposeRows], from[kTransposeRows];
    for (int32_t i = 0; i < kTransposeRows; ++i) {
      to[i] = dst[i / 2 * kBlockChannels + row + i % 2 * kBlockFloats];
      from[i] = src[(row + i) * pitch];
    }
    AscendC::TransDataTo5HD(to, from, params);
  }
}

// [64 rows][pitch] <- [columns][64]; columns are rounded up to 8.
__aicore__ inline void LanesToRows(const AscendC::LocalTensor<float>& dst,
                                   const AscendC::LocalTensor<float>& src, int32_t pitch, int32_t columns) {
  const int32_t repeats = (columns + kBlockFloats - 1) / kBlockFloats;
  const AscendC::TransDataTo5HDParams params = TransposeRepeats(repeats, 1, kBlockChannels);
  for (int32_t row = 0; row < kBlockChannels; row += kTransposeRows) {
    AscendC::LocalTensor<float> to[kTransposeRows], from[kTransposeRows];
    for (int32_t i = 0; i < kTransposeRows; ++i) {
      to[i] = dst[(row + i / 2 + i % 2 * kBlockFloats) * pitch];
      from[i] = src[i % kBlockFloats * kBlockChannels + row + i / kBlockFloats * kBlockFloats];
    }
    AscendC::TransDataTo5HD(to, from, params);
  }
}

// Lanes <- rows as they arrived; channels that do not exist become zero. `wide` is scratch for 64 rows.
template <typename E>
__aicore__ inline void OpenRows(const AscendC::LocalTensor<float>& lanes, const AscendC::LocalTensor<E>& rows,
                                const AscendC::LocalTensor<float>& wide, int32_t channels, int32_t tokens) {
  const int32_t pitch = RowPitch<E>(tokens);
  if (channels < kBlockChannels) {
    AscendC::Duplicate(rows[channels * pitch], static_cast<E>(0.0f), (kBlockChannels - channels) * pitch);
    Settle();
  }
  if constexpr (sizeof(E) == 4) {
    RowsToLanes(lanes, rows, pitch, tokens);
  } else {
    AscendC::Cast(wide, rows, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(kBlockChannels * pitch));
    Settle();
    RowsToLanes(lanes, wide, pitch, tokens);
  }
  Settle();
}

// Rows ready to go <- lanes, rounded; `wide` is scratch for 64 rows. Lanes of tokens up to the pitch are
// overwritten.
template <typename E>
__aicore__ inline void CloseRows(const AscendC::LocalTensor<E>& rows,
                                 const AscendC::LocalTensor<float>& lanes,
                                 const AscendC::LocalTensor<float>& wide, int32_t tokens) {
  const int32_t pitch = RowPitch<E>(tokens);
  if (tokens < pitch) {
    AscendC::Duplicate(lanes[tokens * kBlockChannels], 0.0f, (pitch - tokens) * kBlockChannels);
    Settle();
  }
  if constexpr (sizeof(E) == 4) {
    LanesToRows(rows, lanes, pitch, pitch);
  } else {
    LanesToRows(wide, lanes, pitch, pitch);
    Settle();
    AscendC::Cast(rows, wide, AscendC::RoundMode::CAST_RINT, static_cast<uint32_t>(kBlockChannels * pitch));
  }
  Settle();
}

// [state][pitch][8], every value eight times <- rows of states, with the rows' pitch.
template <typename E>
__aicore__ inline void SpreadStates(const AscendC::LocalTensor<float>& dst,
                                    const AscendC::LocalTensor<E>& rows,
                                    const AscendC::LocalTensor<float>& wide, int32_t states, int32_t tokens) {
  const int32_t count = states * RowPitch<E>(tokens);
  AscendC::LocalTensor<float> values = wide;
  if constexpr (sizeof(E) == 4) {
    values = rows;
  } else {
    AscendC::Cast(wide, rows, AscendC::RoundMode::CAST_NONE, static_cast<uint32_t>(count));
    Settle();
  }
  AscendC::Brcb(dst, values, count / kBlockFloats, AscendC::BrcbRepeatParams(1, kBlockFloats));
  Settle();
}

// One operand of the product advances with tokens, the other not at all, or in the way B and C are spread.
__aicore__ inline AscendC::BinaryRepeatParams TimesVector() { return RowWise(1, 8, 1, 8, 1, 0); }
__aicore__ inline AscendC::BinaryRepeatParams TimesSpread() { return RowWise(1, 8, 1, 8, 0, 1); }

// The first of `states` slices of `elements` <- the sum of all.
__aicore__ inline void SumStates(const AscendC::LocalTensor<float>& tile, int32_t states, int32_t elements) {
  while (states > 1) {
    const int32_t half = states / 2;
    AscendC::Add(tile, tile, tile[(states - half) * elements], half * elements);
    Settle();
    states -= half;
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_TILES_H
