// selective_tile.h -- tiles of the selective scan's tensors: some channels by some tokens, and back.
//
// In memory a tile is token-major, the channels of a block in the lanes of a vector: out[token * row +
// channel]. Tensors whose channels are innermost are read straight into that; of tensors whose tokens are
// innermost, square blocks are transposed in registers; all others are read one element at a time. The same
// functions read whatever has such a shape: states are the tokens of A, and the channels of B and C.
#ifndef VMAMBA2_CPU_SELECTIVE_TILE_H
#define VMAMBA2_CPU_SELECTIVE_TILE_H

#include "vector.h"

namespace vmamba2 {

// Where a tile lies in a tensor.
struct TileShape {
  int64_t offset;    // of its first element
  int64_t channels;  // at most kLanes
  int64_t channel_stride;
  int64_t tokens;
  int64_t token_stride;
  int64_t before = 0;  // tokens of the same channels before the tile
};

// out[t * row + c] = tensor(c, t), zero for the lanes beyond the last channel.
template <class Real>
void LoadTile(const VmTensor& tensor, const TileShape& shape, Real* out, int64_t row);

// tensor(c, t) = in[t * kLanes + c].
template <class Real>
void StoreTile(const Real* in, const VmTensor& tensor, const TileShape& shape);

// Asks for tiles that are needed soon, a line of each at a time: their rows are too short for what the
// hardware guesses, and all at once would hold up the work that is to hide them.
class Prefetcher {
 public:
  void Add(const VmTensor& tensor, const TileShape& shape) {
    if (!tensor.data) return;
    const int64_t bytes = tensor.dtype == kVmFloat64 ? 8 : tensor.dtype == kVmFloat32 ? 4 : 2;
    const uintptr_t first =
        reinterpret_cast<uintptr_t>(tensor.data) + static_cast<uintptr_t>(shape.offset * bytes);
    Lines& lines = lines_[count_++];
    if (shape.token_stride == 1) {
      // Column by column of lines.
      const int64_t columns = (shape.tokens * bytes + kLine - 1) / kLine;
      lines = {first,
               shape.channel_stride * bytes,
               shape.channels,
               0,
               kLine - shape.channels * shape.channel_stride * bytes,
               shape.channels * columns};
    } else {
      lines = {first, shape.token_stride * bytes, shape.tokens, 0, 0, shape.tokens};
    }
  }

  void Next() {
    for (int i = 0; i < count_; ++i) {
      Lines& lines = lines_[i];
      if (lines.left == 0) continue;
      __builtin_prefetch(reinterpret_cast<const void*>(lines.at));
      --lines.left;
      lines.at += static_cast<uintptr_t>(lines.stride);
      if (++lines.row < lines.rows) continue;
      lines.row = 0;
      lines.at += static_cast<uintptr_t>(lines.wrap);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr int kMost = 8;

  struct Lines {
    uintptr_t at;
    int64_t stride, rows, row, wrap, left;
  };

  Lines lines_[kMost];
  int count_ = 0;
};

extern template void LoadTile(const VmTensor&, const TileShape&, float*, int64_t);
extern template void LoadTile(const VmTensor&, const TileShape&, double*, int64_t);
extern template void StoreTile(const float*, const VmTensor&, const TileShape&);
extern template void StoreTile(const double*, const VmTensor&, const TileShape&);

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SELECTIVE_TILE_H
