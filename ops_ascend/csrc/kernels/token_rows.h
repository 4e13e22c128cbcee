// token_rows.h -- rows of the caller's tensors on a vector core: its 32 of a chunk's 64 tokens, up to 64 columns.
#ifndef VMAMBA2_TOKEN_ROWS_H
#define VMAMBA2_TOKEN_ROWS_H

#include "operand_tiles.h"
#include "ssd_forward_steps.h"

namespace vmamba2 {

template <typename T, typename Op>
class TokenRows {
  static constexpr bool kExact = sizeof(Op) == 4;

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, int32_t first_row, TilePool* in, TilePool* out,
                              OperandTiles<Op>* operands) {
    t_ = tiling;
    first_row_ = first_row;
    in_ = in;
    out_ = out;
    operands_ = operands;
  }

  // A tile of this core's rows of a (batch, token, ...) tensor, `columns` wide and zero up to `width`; rows
  // past the end are zero.
  __aicore__ inline int32_t Load(const Step& step, const AscendC::GlobalTensor<T>& src, int64_t base,
                                 int64_t token_stride, int32_t columns, int32_t width) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(T));
    const int32_t slot = in_->Next();
    AscendC::LocalTensor<T> tile = in_->template Tile<T>(slot);
    const int32_t left = step.tokens - first_row_;
    const int32_t rows = left < 0 ? 0 : (left < kVectorRows ? left : kVectorRows);
    const int32_t blocks = (columns + kWidth - 1) / kWidth;
    if (rows < kVectorRows || blocks * kWidth < width) {
      Settle();
      AscendC::Duplicate(tile, static_cast<T>(0.0f), kTileElements);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    const uint32_t bytes = static_cast<uint32_t>(columns * sizeof(T));
    const AscendC::DataCopyPadExtParams<T> zeros(true, 0, blocks * kWidth - columns, static_cast<T>(0.0f));
    for (int32_t row = 0; row < rows;) {
      const Run run = NextRun(*t_, step.direction, step.chunk * kChunk + first_row_ + row, rows - row);
      const int64_t gap = run.distance * token_stride * static_cast<int64_t>(sizeof(T)) - bytes;
      const AscendC::DataCopyExtParams copy(run.count, bytes, static_cast<uint32_t>(gap),
                                            static_cast<uint32_t>(kSlice / kWidth - blocks), 0);
      AscendC::DataCopyPad(tile[row * kSlice], src[base + run.position * token_stride], copy, zeros);
      row += run.count;
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    return slot;
  }

  // The tile as float32, row by row; a 16-bit tile is widened into a work tile.
  __aicore__ inline AscendC::LocalTensor<float> Wide(int32_t slot, int32_t width, int32_t which = 1) {
    if constexpr (sizeof(T) == 4) {
      return in_->template Tile<T>(slot);
    } else {
      AscendC::LocalTensor<float> wide = Work(which);
      AscendC::Cast(wide, in_->template Tile<T>(slot), AscendC::RoundMode::CAST_NONE,
                    static_cast<uint64_t>(width), kVectorRows, AscendC::UnaryRepeatParams(1, 1, 8, 4));
      Settle();
      return wide;
    }
  }

  // An outgoing tile of rows times one factor each, in operand order or, on demand, in fractal order.
  // `factor_repeat` is the distance of the factors of neighbouring rows, in blocks.
  __aicore__ inline int32_t Scale(const AscendC::LocalTensor<float>& rows,
                                  const AscendC::LocalTensor<float>& factors, int32_t factor_repeat,
                                  int32_t width, bool operand_order = true) {
    const int32_t out = out_->Next();
    const int32_t repeat = factor_repeat;
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (kExact) {
      const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
      const int32_t group = operand_order ? kOperandRows : kVectorRows;
      for (int32_t row = 0; row < kVectorRows; row += group) {
        AscendC::Mul(tile[row * width], rows[row * kSlice], factors[row * repeat * kBlockFloats],
                     static_cast<uint64_t>(width), group, RowWise(group, 1, 1, 8, 0, repeat));
      }
    } else {
      AscendC::Mul(Work(0), rows, factors, static_cast<uint64_t>(width), kVectorRows,
                   RowWise(1, 8, 1, 8, 0, repeat));
      Settle();
      if (operand_order) {
        operands_->RoundToOperand(out, Work(0), width);
      } else {
        operands_->RoundToFractals(out, Work(0), width);
      }
      Settle();
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    return out;
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kTileBytes, kTileElements);
  }

  const SsdForwardTiling* t_;
  int32_t first_row_;
  TilePool *in_, *out_;
  OperandTiles<Op>* operands_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_TOKEN_ROWS_H
