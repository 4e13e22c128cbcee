// ssd_backward_inputs.h -- what a vector core makes of the caller's tensors for the products of a chunk.
//
//   C, B as they are and, for every head, C~ = C exp(cum_i) and B~ = B exp(cum_last - cum_j) step_j
//   with a gate            dy silu(z), which is the gradient of y before the gate, and dy silu'(z) for dz
//   in another dtype       x, and dy without a gate
//
//   Numerics  float32; rounded to Op as a tile is written. silu'(z) = s + z s (1 - s), s = 1 / (1 + exp(-z)).
//   Tail      rows past the last token are zero.
#ifndef VMAMBA2_SSD_BACKWARD_INPUTS_H
#define VMAMBA2_SSD_BACKWARD_INPUTS_H

#include "ssd_backward_decay.h"
#include "token_rows.h"

namespace vmamba2 {

template <typename T, typename Op>
class BackwardInputs {
  static constexpr bool kExact = sizeof(Op) == 4;
  static constexpr bool kCast = !IsSame<T, Op>::value;

 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm,
                              const BackwardRing<Op>& ring, int32_t sub, TilePool* in, TilePool* out,
                              OperandTiles<Op>* operands, BackwardDecays<Op>* decays) {
    t_ = &tiling->common;
    dy_strides_ = tiling->dy;
    ring_ = ring;
    sub_ = sub;
    in_ = in;
    out_ = out;
    operands_ = operands;
    decays_ = decays;
    rows_.Init(t_, sub * kVectorRows, in, out, operands);
    Bind(&b_, gm.b, t_->b, t_->ngroups, t_->dstate);
    Bind(&c_, gm.c, t_->c, t_->ngroups, t_->dstate);
    if (kCast || t_->has_z) {
      Bind(&dy_, gm.dy, dy_strides_, t_->nheads, t_->headdim);
    }
    if constexpr (kCast) {
      Bind(&x_, gm.x, t_->x, t_->nheads, t_->headdim);
    }
    if (t_->has_z) {
      Bind(&z_, gm.z, t_->z, t_->nheads, t_->headdim);
    }
  }

  // The decays' row factors of the step are in the broadcast regions.
  __aicore__ inline void Prepare(const Step& step) {
    for (int32_t slice = 0; slice < Slices(*t_); ++slice) {
      Operand(step, slice, c_, t_->c, 0);
      Operand(step, slice, b_, t_->b, 1);
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      for (int32_t column = 0; column < t_->headdim; column += kSlice) {
        if constexpr (kCast) {
          Cast(step, x_, t_->x, ring_.XCast(step.slot, head), head, column);
        }
        if (t_->has_z) {
          Gate(step, head, column);
        } else if constexpr (kCast) {
          Cast(step, dy_, dy_strides_, ring_.Dy(step.slot, head), head, column);
        }
      }
    }
  }

 private:
  __aicore__ inline void Bind(AscendC::GlobalTensor<T>* tensor, GM_ADDR address, const TokenStrides& strides,
                              int64_t heads, int64_t inner) {
    tensor->SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), SpanElements(*t_, strides, heads, inner));
  }

  // One slice of C (which = 0) or B (1).
  __aicore__ inline void Operand(const Step& step, int32_t slice, const AscendC::GlobalTensor<T>& src,
                                 const TokenStrides& strides, int32_t which) {
    const int32_t width = SliceWidth(*t_, slice);
    const int64_t base = step.batch * strides.batch + step.group * strides.head + slice * kSlice;
    const int32_t left = t_->dstate - slice * kSlice;
    const int32_t in = rows_.Load(step, src, base, strides.token, left < kSlice ? left : kSlice, width);
    const AscendC::LocalTensor<float> rows = rows_.Wide(in, width);
    const int32_t raw = rows_.Scale(rows, decays_->Ones(), 0, width);
    operands_->StoreOperand(which == 0 ? ring_.CRaw(step.slot, slice) : ring_.BRaw(step.slot, slice), raw,
                            width, width, 0);
    for (int32_t head = 0; head < step.heads; ++head) {
      const int32_t out = rows_.Scale(rows, decays_->Broadcast(which)[head * kBlockFloats], kMaxHeads, width);
      const AscendC::GlobalTensor<Op> dst =
          which == 0 ? ring_.CScaled(step.slot, head, slice) : ring_.BScaled(step.slot, head, slice);
      operands_->StoreOperand(dst, out, width, width, 0);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
  }

  __aicore__ inline int32_t Width(int32_t column) const {
    const int32_t left16 = t_->headdim16 - column;
    return left16 < kSlice ? left16 : kSlice;
  }

  __aicore__ inline int32_t LoadTokens(const Step& step, const AscendC::GlobalTensor<T>& src,
                                       const TokenStrides& strides, int32_t head, int32_t column) {
    const int32_t left = t_->headdim - column;
    const int64_t base = step.batch * strides.batch + (step.first_head + head) * strides.head + column;
    return rows_.Load(step, src, base, strides.token, left < kSlice ? left : kSlice, Width(column));
  }

  // A tile of x or dy in the operands' dtype.
  __aicore__ inline void Cast(const Step& step, const AscendC::GlobalTensor<T>& src,
                              const TokenStrides& strides, const AscendC::GlobalTensor<Op>& dst, int32_t head,
                              int32_t column) {
    const int32_t width = Width(column);
    const int32_t in = LoadTokens(step, src, strides, head, column);
    const int32_t out = out_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (kCast) {
      operands_->RoundToOperand(out, in_->template Tile<float>(in), width);
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(in);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_->StoreOperand(dst, out, width, t_->headdim16, column);
  }

  // Tiles of the gate: rows of 64 floats, of which `width` count.
  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kTileBytes, kTileElements);
  }

  __aicore__ inline void Gate(const Step& step, int32_t head, int32_t column) {
    const int32_t width = Width(column);
    const uint64_t lanes = static_cast<uint64_t>(width);
    const AscendC::BinaryRepeatParams both = RowWise(1, 8, 1, 8, 1, 8);
    const int32_t z_slot = LoadTokens(step, z_, t_->z, head, column);
    const int32_t dy_slot = LoadTokens(step, dy_, dy_strides_, head, column);
    const AscendC::LocalTensor<float> z = rows_.Wide(z_slot, width, 0), dy = rows_.Wide(dy_slot, width, 1);
    AscendC::LocalTensor<float> s = Work(2), silu = Work(3);
    Sigmoid(s, z, lanes);
    AscendC::Mul(silu, z, s, lanes, kVectorRows, both);
    Settle();
    SendGated(step, head, column, dy, silu);
    // z is used up: z = silu s, then s + silu - silu s.
    AscendC::Mul(z, silu, s, lanes, kVectorRows, both);
    Settle();
    AscendC::Sub(silu, silu, z, lanes, kVectorRows, both);
    Settle();
    AscendC::Add(silu, silu, s, lanes, kVectorRows, both);
    Settle();
    SendSlope(step, head, column, dy, silu);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(z_slot);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(dy_slot);
  }

  // s = 1 / (1 + exp(-z)), 0 where exp overflows.
  __aicore__ inline void Sigmoid(const AscendC::LocalTensor<float>& s, const AscendC::LocalTensor<float>& z,
                                 uint64_t lanes) {
    const AscendC::UnaryRepeatParams rows(1, 1, 8, 8);
    AscendC::Muls(s, z, -1.0f, lanes, kVectorRows, rows);
    Settle();
    AscendC::Exp(s, s, lanes, kVectorRows, rows);
    Settle();
    AscendC::Adds(s, s, 1.0f, lanes, kVectorRows, rows);
    Settle();
    AscendC::Div(s, decays_->Ones(), s, lanes, kVectorRows, RowWise(1, 8, 0, 0, 1, 8));
    Settle();
  }

  // dy silu(z), to the cube.
  __aicore__ inline void SendGated(const Step& step, int32_t head, int32_t column,
                                   const AscendC::LocalTensor<float>& dy,
                                   const AscendC::LocalTensor<float>& silu) {
    const int32_t width = Width(column);
    const int32_t out = out_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (kExact) {
      const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
      for (int32_t row = 0; row < kVectorRows; row += kOperandRows) {
        AscendC::Mul(tile[row * width], dy[row * kSlice], silu[row * kSlice], static_cast<uint64_t>(width),
                     kOperandRows, RowWise(kOperandRows, 1, 1, 8, 1, 8));
      }
    } else {
      const AscendC::LocalTensor<float> gated = decays_->Broadcast(0);
      AscendC::Mul(gated, dy, silu, static_cast<uint64_t>(width), kVectorRows, RowWise(1, 8, 1, 8, 1, 8));
      Settle();
      operands_->RoundToOperand(out, gated, width);
      Settle();
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_->StoreOperand(ring_.Dy(step.slot, head), out, width, t_->headdim16, column);
  }

  // dy silu'(z), to the epilogue.
  __aicore__ inline void SendSlope(const Step& step, int32_t head, int32_t column,
                                   const AscendC::LocalTensor<float>& dy,
                                   const AscendC::LocalTensor<float>& slope) {
    const int32_t width = Width(column);
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Mul(tile, dy, slope, static_cast<uint64_t>(width), kVectorRows, RowWise(1, 8, 1, 8, 1, 8));
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::DataCopy(ring_.Gate(step.slot, head, column / kSlice, sub_), tile, GateCopy(width));
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  const SsdForwardTiling* t_;
  TokenStrides dy_strides_;
  BackwardRing<Op> ring_;
  int32_t sub_;
  TilePool *in_, *out_;
  OperandTiles<Op>* operands_;
  BackwardDecays<Op>* decays_;
  TokenRows<T, Op> rows_;
  AscendC::GlobalTensor<T> x_, b_, c_, z_, dy_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_INPUTS_H
