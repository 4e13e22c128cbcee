// ssd_forward_state_rows.h -- states between the caller's tensors, (headdim, dstate) row by row, and the
// fractals of the scan.
//
// A core owns one half of [dstate / C0][headdim][C0]. When that is a whole number of column blocks, rows of
// up to 64 columns are moved and the vector unit puts their blocks in place; otherwise, and for a spilled
// state, each block of columns is moved by itself, in bursts of 32 or 64 bytes.
#ifndef VMAMBA2_SSD_FORWARD_STATE_ROWS_H
#define VMAMBA2_SSD_FORWARD_STATE_ROWS_H

#include "ssd_forward_protocol.h"
#include "vector_tiles.h"

namespace vmamba2 {

// One stretch of rows of one block of columns of a state, as far as a core owns it.
struct Stretch {
  int32_t row, rows;
  int32_t column, columns;
};

template <typename Op>
class StateRows {
  static constexpr int32_t kColumns = kC0<Op>;
  static constexpr int32_t kBlocksPerColumn =
      kColumns / kBlockFloats;  // 32-byte blocks of float32 in a row of a fractal

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, int32_t begin, int32_t half, TilePool* in,
                              TilePool* out) {
    t_ = tiling;
    in_ = in;
    out_ = out;
    begin_ = begin;
    half_ = half;
  }

  // Whether this core's half is made of whole column blocks.
  __aicore__ inline bool Whole() const { return t_->dstate16 / kColumns % 2 == 0; }

  // This core's half of a zeroed state, from matrix `matrix` of src.
  __aicore__ inline void LoadWhole(const AscendC::LocalTensor<float>& state,
                                   const AscendC::GlobalTensor<float>& src, int64_t matrix) {
    for (int32_t row = 0; row < t_->headdim; row += kVectorRows) {
      for (int32_t column = 0; column < Owned(); column += kSlice) {
        const int32_t rows = Fewer(t_->headdim - row, kVectorRows);
        const int32_t columns = Fewer(Owned() - column, kSlice);
        const int32_t slot = in_->Next();
        const AscendC::LocalTensor<float> tile = in_->template Tile<float>(slot);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
        const AscendC::DataCopyExtParams copy(
            rows, static_cast<uint32_t>(columns * 4), static_cast<uint32_t>((t_->dstate - columns) * 4),
            static_cast<uint32_t>(kSlice / kBlockFloats - Blocks(columns)), 0);
        const AscendC::DataCopyPadExtParams<float> zeros(true, 0, Blocks(columns) * kBlockFloats - columns,
                                                         0.0f);
        AscendC::DataCopyPad(tile, src[Place(matrix, row, FirstColumn() + column)], copy, zeros);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
        for (int32_t part = 0; part < kBlocksPerColumn; ++part) {
          Permute(state[Inside(row, column) + part * kBlockFloats], tile[part * kBlockFloats],
                  Blocks(columns) - part, rows, true);
        }
        AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
      }
    }
    Settle();
  }

  // The same, the other way round.
  __aicore__ inline void StoreWhole(const AscendC::GlobalTensor<float>& dst, int64_t matrix,
                                    const AscendC::LocalTensor<float>& state) {
    for (int32_t row = 0; row < t_->headdim; row += kVectorRows) {
      for (int32_t column = 0; column < Owned(); column += kSlice) {
        const int32_t rows = Fewer(t_->headdim - row, kVectorRows);
        const int32_t columns = Fewer(Owned() - column, kSlice);
        const int32_t slot = out_->Next();
        const AscendC::LocalTensor<float> tile = out_->template Tile<float>(slot);
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(slot);
        for (int32_t part = 0; part < kBlocksPerColumn; ++part) {
          Permute(tile[part * kBlockFloats], state[Inside(row, column) + part * kBlockFloats],
                  Blocks(columns) - part, rows, false);
        }
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(slot);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(slot);
        const AscendC::DataCopyExtParams copy(rows, static_cast<uint32_t>(columns * 4),
                                              static_cast<uint32_t>(kSlice / kBlockFloats - Blocks(columns)),
                                              static_cast<uint32_t>((t_->dstate - columns) * 4), 0);
        AscendC::DataCopyPad(dst[Place(matrix, row, FirstColumn() + column)], tile, copy);
        AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(slot);
      }
    }
  }

  // The stretch that starts at `flat` of the padded array; at most one tile of rows.
  __aicore__ inline Stretch At(int32_t flat) const {
    Stretch s;
    s.row = flat / kColumns % t_->headdim16;
    s.rows =
        Fewer(Fewer(t_->headdim16 - s.row, (begin_ + half_ - flat) / kColumns), kTileElements / kColumns);
    s.column = flat / (kColumns * t_->headdim16) * kColumns;
    s.columns = Fewer(t_->dstate - s.column, kColumns);
    return s;
  }

  __aicore__ inline void LoadStretch(const AscendC::LocalTensor<float>& dst,
                                     const AscendC::GlobalTensor<float>& src, int64_t matrix,
                                     const Stretch& s) {
    if (RealRows(s) == 0) {
      return;
    }
    const int32_t blocks = Blocks(s.columns);
    const AscendC::DataCopyExtParams copy(RealRows(s), static_cast<uint32_t>(s.columns * 4),
                                          static_cast<uint32_t>((t_->dstate - s.columns) * 4),
                                          static_cast<uint32_t>(kBlocksPerColumn - blocks), 0);
    const AscendC::DataCopyPadExtParams<float> zeros(true, 0, blocks * kBlockFloats - s.columns, 0.0f);
    AscendC::DataCopyPad(dst, src[Place(matrix, s.row, s.column)], copy, zeros);
  }

  __aicore__ inline void StoreStretch(const AscendC::GlobalTensor<float>& dst, int64_t matrix,
                                      const Stretch& s, const AscendC::LocalTensor<float>& src) {
    if (RealRows(s) == 0) {
      return;
    }
    const AscendC::DataCopyExtParams copy(RealRows(s), static_cast<uint32_t>(s.columns * 4),
                                          static_cast<uint32_t>(kBlocksPerColumn - Blocks(s.columns)),
                                          static_cast<uint32_t>((t_->dstate - s.columns) * 4), 0);
    AscendC::DataCopyPad(dst[Place(matrix, s.row, s.column)], src, copy);
  }

 private:
  __aicore__ inline int32_t Fewer(int32_t a, int32_t b) const { return a < b ? a : b; }
  __aicore__ inline int32_t Blocks(int32_t columns) const {
    return (columns + kBlockFloats - 1) / kBlockFloats;
  }
  __aicore__ inline int64_t Place(int64_t matrix, int32_t row, int32_t column) const {
    return (matrix * t_->headdim + row) * t_->dstate + column;
  }

  // Columns of the caller's matrix that this core owns, with whole column blocks.
  __aicore__ inline int32_t FirstColumn() const { return begin_ / t_->headdim16; }
  __aicore__ inline int32_t Owned() const { return Fewer(t_->dstate - FirstColumn(), half_ / t_->headdim16); }
  __aicore__ inline int32_t Inside(int32_t row, int32_t column) const {
    return column * t_->headdim16 + row * kColumns;
  }

  // Rows that exist in the caller's tensor; the rest is padding.
  __aicore__ inline int32_t RealRows(const Stretch& s) const {
    const int32_t rows = Fewer(t_->headdim - s.row, s.rows);
    return s.columns <= 0 || rows <= 0 ? 0 : rows;
  }

  // Every kBlocksPerColumn-th block of the rows of a tile, `blocks` in reach, into fractals or out of them.
  __aicore__ inline void Permute(const AscendC::LocalTensor<float>& dst,
                                 const AscendC::LocalTensor<float>& src, int32_t blocks, int32_t rows,
                                 bool into) {
    const int32_t taken = (blocks + kBlocksPerColumn - 1) / kBlocksPerColumn;
    if (blocks <= 0) {
      return;
    }
    const int32_t apart = kBlocksPerColumn * t_->headdim16;
    const AscendC::UnaryRepeatParams strides =
        into ? AscendC::UnaryRepeatParams(apart, kBlocksPerColumn, kBlocksPerColumn, kSlice / kBlockFloats)
             : AscendC::UnaryRepeatParams(kBlocksPerColumn, apart, kSlice / kBlockFloats, kBlocksPerColumn);
    AscendC::Adds(dst, src, 0.0f, static_cast<uint64_t>(taken * kBlockFloats), rows, strides);
  }

  const SsdForwardTiling* t_;
  TilePool *in_, *out_;
  int32_t begin_, half_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_STATE_ROWS_H
