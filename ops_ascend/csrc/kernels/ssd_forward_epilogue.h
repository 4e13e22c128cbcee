// ssd_forward_epilogue.h -- what the cube core cannot do to y on its way out, done by the vector cores.
//
//   y = (y + D x) * silu(z)        D per channel here; D per head is on the diagonal of W
//
// It runs when there is a gate or a per-channel D, or when the sum over grid orders must be rounded once:
// then the cube core leaves y in float32 in the workspace, a chunk behind (one order) or a task behind
// (several).
//   Numerics   float32; silu(z) = z / (1 + exp(-z)), which is -0 where exp overflows.
#ifndef VMAMBA2_SSD_FORWARD_EPILOGUE_H
#define VMAMBA2_SSD_FORWARD_EPILOGUE_H

#include "ssd_forward_protocol.h"
#include "vector_tiles.h"

namespace vmamba2 {

template <typename T, typename Op>
class Epilogue {
  static constexpr int32_t kTypedBlocks = kSlice * static_cast<int32_t>(sizeof(T)) / kBlockBytes;

 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const SsdForwardAddresses& gm,
                              const Ring<Op>& ring, int32_t sub, TilePool* in, TilePool* out) {
    t_ = tiling;
    ring_ = ring;
    sub_ = sub;
    in_ = in;
    out_ = out;
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.y),
                       tiling->batch * tiling->seqlen * tiling->nheads * tiling->headdim);
    if (tiling->has_z) {
      z_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.z),
                         SpanElements(*tiling, tiling->z, tiling->nheads, tiling->headdim));
    }
    if (PerChannel()) {
      x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gm.x),
                         SpanElements(*tiling, tiling->x, tiling->nheads, tiling->headdim));
      d_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.d), tiling->nheads * tiling->headdim);
    }
  }

  // Finishes what a step of the cube core has stored; `step` is past.
  __aicore__ inline void Run(const Step& step) {
    if (!t_->epilogue) {
      return;
    }
    if (t_->directions == 1) {
      if (step.opens) {
        LoadSkip(step);
      }
      Chunk(step, step.chunk, 0);
    } else if (step.ends_task) {
      LoadSkip(step);
      for (int64_t chunk = 0; chunk < t_->nchunks; ++chunk) {
        Chunk(step, chunk, chunk * kChunk);
      }
    }
  }

 private:
  __aicore__ inline bool PerChannel() const { return t_->skip == static_cast<int32_t>(Skip::kPerChannel); }

  // D of the task's heads, [heads][headdim16], in the tile that the identity leaves free.
  __aicore__ inline AscendC::LocalTensor<float> SkipRows() const {
    return Ub<float>(t_->ub.identity, kTileElements);
  }

  __aicore__ inline void LoadSkip(const Step& step) {
    if (!PerChannel()) {
      return;
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    const int32_t missing = (kBlockFloats - t_->headdim % kBlockFloats) % kBlockFloats;
    const AscendC::DataCopyExtParams rows(step.heads, static_cast<uint32_t>(t_->headdim * 4), 0,
                                          static_cast<uint32_t>((t_->headdim16 - t_->headdim) / kBlockFloats),
                                          0);
    const AscendC::DataCopyPadExtParams<float> zeros(true, 0, missing, 0.0f);
    AscendC::DataCopyPad(SkipRows(), d_[static_cast<int64_t>(step.first_head) * t_->headdim], rows, zeros);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kLoadEvent);
  }

  // This core's rows of one chunk; `first_row` is where the chunk starts in the ring of y.
  __aicore__ inline void Chunk(const Step& step, int64_t chunk, int64_t first_row) {
    const int64_t token = chunk * kChunk + sub_ * kVectorRows;
    const int64_t left = t_->seqlen - token;
    const int32_t rows = static_cast<int32_t>(left < kVectorRows ? left : kVectorRows);
    if (rows <= 0) {
      return;
    }
    for (int32_t head = 0; head < step.heads; ++head) {
      for (int32_t column = 0; column < t_->headdim; column += kSlice) {
        const int32_t rest = t_->headdim - column;
        Tile(step, token, first_row + sub_ * kVectorRows, rows, head, column, rest < kSlice ? rest : kSlice);
      }
    }
  }

  template <typename E>
  __aicore__ inline int32_t Fetch(const AscendC::GlobalTensor<E>& src, int64_t pitch, int32_t rows,
                                  int32_t columns) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(E));
    const int32_t slot = in_->Next();
    const int32_t blocks = (columns + kWidth - 1) / kWidth;
    const AscendC::DataCopyExtParams copy(rows, static_cast<uint32_t>(columns * sizeof(E)),
                                          static_cast<uint32_t>((pitch - columns) * sizeof(E)),
                                          static_cast<uint32_t>(kSlice / kWidth - blocks), 0);
    const AscendC::DataCopyPadExtParams<E> zeros(true, 0, blocks * kWidth - columns, static_cast<E>(0.0f));
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    AscendC::DataCopyPad(in_->template Tile<E>(slot), src, copy, zeros);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    return slot;
  }

  // The tile as float32; a 16-bit tile is widened into the second work tile.
  __aicore__ inline AscendC::LocalTensor<float> Wide(int32_t slot, int32_t rows, int32_t lanes) {
    if constexpr (sizeof(T) == 4) {
      return in_->template Tile<T>(slot);
    } else {
      AscendC::LocalTensor<float> wide = Ub<float>(t_->ub.work + kTileBytes, kTileElements);
      AscendC::Cast(wide, in_->template Tile<T>(slot), AscendC::RoundMode::CAST_NONE,
                    static_cast<uint64_t>(lanes), rows, AscendC::UnaryRepeatParams(1, 1, 8, kTypedBlocks));
      Settle();
      return wide;
    }
  }

  __aicore__ inline void Tile(const Step& step, int64_t token, int64_t row, int32_t rows, int32_t head,
                              int32_t column, int32_t columns) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(T));
    const int32_t lanes = (columns + kWidth - 1) / kWidth * kWidth;
    const int32_t repeats = rows;
    const int64_t absolute_head = step.first_head + head;
    const int32_t y_slot = Fetch(ring_.Y(step, row, head)[column], ring_.YPitch(), rows, columns);
    AscendC::LocalTensor<float> y = in_->template Tile<float>(y_slot);
    const uint64_t y_lanes =
        static_cast<uint64_t>((columns + kBlockFloats - 1) / kBlockFloats * kBlockFloats);
    if (PerChannel()) {
      const int32_t slot =
          Fetch(x_[step.batch * t_->x.batch + token * t_->x.token + absolute_head * t_->x.head + column],
                t_->x.token, rows, columns);
      AscendC::LocalTensor<float> x = Wide(slot, rows, lanes);
      AscendC::Mul(x, x, SkipRows()[head * t_->headdim16 + column], y_lanes, repeats,
                   RowWise(1, 8, 1, 8, 1, 0));
      Settle();
      AscendC::Add(y, y, x, y_lanes, repeats, RowWise(1, 8, 1, 8, 1, 8));
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
      Settle();
    }
    if (t_->has_z) {
      const int32_t slot =
          Fetch(z_[step.batch * t_->z.batch + token * t_->z.token + absolute_head * t_->z.head + column],
                t_->z.token, rows, columns);
      Gate(y, Wide(slot, rows, lanes), y_lanes, repeats);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    }
    Store(
        y, y_slot, y_lanes, rows, columns,
        (step.batch * t_->seqlen + token) * t_->nheads * t_->headdim + absolute_head * t_->headdim + column);
  }

  // y *= silu(z); z is used up.
  __aicore__ inline void Gate(const AscendC::LocalTensor<float>& y, const AscendC::LocalTensor<float>& z,
                              uint64_t lanes, int32_t repeats) {
    const AscendC::UnaryRepeatParams rows(1, 1, 8, 8);
    const AscendC::BinaryRepeatParams both = RowWise(1, 8, 1, 8, 1, 8);
    AscendC::LocalTensor<float> divisor = Ub<float>(t_->ub.work, kTileElements);
    AscendC::Muls(divisor, z, -1.0f, lanes, repeats, rows);
    Settle();
    AscendC::Exp(divisor, divisor, lanes, repeats, rows);
    Settle();
    AscendC::Adds(divisor, divisor, 1.0f, lanes, repeats, rows);
    Settle();
    AscendC::Div(z, z, divisor, lanes, repeats, both);
    Settle();
    AscendC::Mul(y, y, z, lanes, repeats, both);
    Settle();
  }

  __aicore__ inline void Store(const AscendC::LocalTensor<float>& y, int32_t y_slot, uint64_t lanes,
                               int32_t rows, int32_t columns, int64_t at) {
    constexpr int32_t kWidth = kBlockBytes / static_cast<int32_t>(sizeof(T));
    const int32_t out = out_->Next();
    AscendC::LocalTensor<T> tile = out_->template Tile<T>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    if constexpr (sizeof(T) == 4) {
      AscendC::Adds(tile, y, 0.0f, lanes, rows, AscendC::UnaryRepeatParams(1, 1, 8, 8));
    } else {
      AscendC::Cast(tile, y, AscendC::RoundMode::CAST_RINT, lanes, rows,
                    AscendC::UnaryRepeatParams(1, 1, kTypedBlocks, 8));
    }
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(y_slot);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    const int32_t blocks = (columns + kWidth - 1) / kWidth;
    const int64_t gap =
        (static_cast<int64_t>(t_->nheads) * t_->headdim - columns) * static_cast<int64_t>(sizeof(T));
    const AscendC::DataCopyExtParams copy(rows, static_cast<uint32_t>(columns * sizeof(T)),
                                          static_cast<uint32_t>(kSlice / kWidth - blocks),
                                          static_cast<uint32_t>(gap), 0);
    AscendC::DataCopyPad(y_[at], tile, copy);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
  }

  const SsdForwardTiling* t_;
  Ring<Op> ring_;
  int32_t sub_;
  TilePool *in_, *out_;
  AscendC::GlobalTensor<T> x_, y_, z_;
  AscendC::GlobalTensor<float> d_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_FORWARD_EPILOGUE_H
