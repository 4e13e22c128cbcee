// ssd_backward_state.h -- the states and their gradients in the backward, on the vector cores.
//
//   S enters a chunk: saved by the forward for every even chunk, and for an odd one
//     S <- exp(cum_last) S + chunk_states  of the chunk before it
//   G leaves a chunk (the gradient of the state after it), from the end of the sequence:
//     G <- exp(cum_last) G + dy^T C~
//
// Both chunks of a pair are served in the step of the odd one, which comes first: it hands both S and both G to
// the cube, and finds exp(cum_last) <S, G> of both, the gradient of cum_last through the decay of a whole chunk.
// G is then that of the chunk before the pair.
//   Layout  each of the two cores owns half of the rows of every state, as rows of 64 floats, a slice of dstate
//           after the other. G lives in the Unified Buffer or, when it does not fit, in this block's workspace.
//   in/out  checkpoints (batch, ncheckpoints, nheads, headdim, dstate), dfinal_states and dinitial_states
//           (batch, nheads, headdim, dstate), float32
#ifndef VMAMBA2_SSD_BACKWARD_STATE_H
#define VMAMBA2_SSD_BACKWARD_STATE_H

#include "operand_tiles.h"
#include "ssd_backward_decay.h"

namespace vmamba2 {

template <typename Op>
class BackwardStates {
  // A piece: at most kVectorRows rows of one slice of one head's state.
  struct Piece {
    int32_t head, slice, width;
    int32_t row, rows;  // of the whole state
    int32_t own;        // of its first row among this core's
  };
  // The two chunks that a pass serves; a single one, the last of a sequence, is `near`.
  struct Chunks {
    Step far, near;  // the odd chunk, and the even one before it
    bool pair;
  };

 public:
  __aicore__ inline void Init(const SsdBackwardTiling* tiling, const SsdBackwardAddresses& gm,
                              const BackwardRing<Op>& ring, int32_t sub, TilePool* in, TilePool* out,
                              OperandTiles<Op>* operands, BackwardDecays<Op>* decays) {
    t_ = &tiling->common;
    tiling_ = tiling;
    ring_ = ring;
    sub_ = sub;
    in_ = in;
    out_ = out;
    operands_ = operands;
    decays_ = decays;
    half_ = t_->headdim16 / 2;
    const int64_t elements = t_->batch * t_->nheads * t_->headdim * static_cast<int64_t>(t_->dstate);
    checkpoints_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.checkpoints),
                                 elements * t_->ncheckpoints);
    initial_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.dinitial_states), elements);
    if (tiling->has_dfinal) {
      final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(gm.dfinal_states), elements);
    }
  }

  // Serves the step's chunk and, when it is the first of a pair, the next step's.
  __aicore__ inline void Run(const Step& step, const Step& next) {
    if (step.opens) {
      Open(step);
    }
    if (SecondOfPair(step)) {
      return;
    }
    const Chunks chunks{step, FirstOfPair(step) ? next : step, FirstOfPair(step)};
    OrderSpill();
    Settle();
    AscendC::Duplicate(Through(0), 0.0f, kVectorElements);
    AscendC::Duplicate(Through(1), 0.0f, kVectorElements);
    Settle();
    for (int32_t head = 0; head < step.heads; ++head) {
      for (Piece piece = First(head); More(piece); piece = Following(piece)) {
        Serve(chunks, piece);
      }
    }
    SendThrough(chunks.near, 0);
    if (chunks.pair) {
      SendThrough(chunks.far, 1);
    }
    if (chunks.near.closes) {
      OrderSpill();
      for (int32_t head = 0; head < step.heads; ++head) {
        for (Piece piece = First(head); More(piece); piece = Following(piece)) {
          StoreInitial(step, piece);
        }
      }
    }
  }

 private:
  __aicore__ inline Piece First(int32_t head) const { return Shape(head, 0, 0); }
  __aicore__ inline bool More(const Piece& piece) const { return piece.slice < Slices(*t_); }
  __aicore__ inline Piece Following(const Piece& piece) const {
    const int32_t own = piece.own + piece.rows;
    return own < half_ ? Shape(piece.head, piece.slice, own) : Shape(piece.head, piece.slice + 1, 0);
  }
  __aicore__ inline Piece Shape(int32_t head, int32_t slice, int32_t own) const {
    Piece piece;
    piece.head = head;
    piece.slice = slice;
    piece.width = SliceWidth(*t_, slice);
    piece.own = own;
    piece.row = sub_ * half_ + own;
    const int32_t in_tile = kStateRows - piece.row % kStateRows;
    const int32_t left = half_ - own < in_tile ? half_ - own : in_tile;
    piece.rows = left < kVectorRows ? left : kVectorRows;
    return piece;
  }

  __aicore__ inline AscendC::LocalTensor<float> Work(int32_t which) const {
    return Ub<float>(t_->ub.work + which * kTileBytes, kTileElements);
  }
  // Lanes of <S, G> of each head, [8][64], in rows that the weights need only later.
  __aicore__ inline AscendC::LocalTensor<float> Through(int32_t which) const { return decays_->Row(which); }

  __aicore__ inline int64_t Matrix(const Step& step, const Piece& piece) const {
    return step.batch * t_->nheads + step.first_head + piece.head;
  }
  __aicore__ inline int64_t Place(int64_t matrix, const Piece& piece) const {
    return (matrix * t_->headdim + piece.row) * t_->dstate + piece.slice * kSlice;
  }
  __aicore__ inline int32_t RealRows(const Piece& piece) const {
    const int32_t left = t_->headdim - piece.row;
    return left < 0 ? 0 : (left < piece.rows ? left : piece.rows);
  }
  __aicore__ inline int32_t RealColumns(const Piece& piece) const {
    const int32_t left = t_->dstate - piece.slice * kSlice;
    return left < kSlice ? left : kSlice;
  }

  // Reads of the spilled G come after its writes.
  __aicore__ inline void OrderSpill() {
    AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(0);
  }
  __aicore__ inline AscendC::GlobalTensor<float> Spilled(const Piece& piece) const {
    return ring_.Spill(piece.head)[(piece.slice * t_->headdim16 + piece.row) * kSlice];
  }
  __aicore__ inline AscendC::LocalTensor<float> OnChip(const Piece& piece) const {
    const int32_t head_rows = Slices(*t_) * half_;
    const int32_t row = piece.head * head_rows + piece.slice * half_ + piece.own;
    return Ub<float>(t_->ub.state + row * kSlice * 4, piece.rows * kSlice);
  }

  // G of a piece for the vector unit; KeepG gives it back.
  __aicore__ inline AscendC::LocalTensor<float> TakeG(const Piece& piece) {
    if (t_->state_on_chip) {
      return OnChip(piece);
    }
    const int32_t slot = in_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    AscendC::DataCopy(in_->template Tile<float>(slot), Spilled(piece), piece.rows * kSlice);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::Adds(Work(3), in_->template Tile<float>(slot), 0.0f, piece.rows * kSlice);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    Settle();
    return Work(3);
  }
  __aicore__ inline void KeepG(const Piece& piece, const AscendC::LocalTensor<float>& g) {
    if (t_->state_on_chip) {
      return;
    }
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Adds(tile, g, 0.0f, piece.rows * kSlice);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::DataCopy(Spilled(piece), tile, piece.rows * kSlice);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
    Settle();
  }

  // Rows of the caller's states, zero past its sizes.
  __aicore__ inline int32_t LoadRows(const AscendC::GlobalTensor<float>& src, int64_t matrix,
                                     const Piece& piece) {
    const int32_t slot = in_->Next();
    const AscendC::LocalTensor<float> tile = in_->template Tile<float>(slot);
    const int32_t rows = RealRows(piece), columns = RealColumns(piece);
    const int32_t blocks = (columns + kBlockFloats - 1) / kBlockFloats;
    if (rows < piece.rows || blocks * kBlockFloats < kSlice) {
      Settle();
      AscendC::Duplicate(tile, 0.0f, kTileElements);
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kLoadEvent);
    }
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    if (rows > 0) {
      const AscendC::DataCopyExtParams copy(rows, static_cast<uint32_t>(columns * 4),
                                            static_cast<uint32_t>((t_->dstate - columns) * 4),
                                            static_cast<uint32_t>(kSlice / kBlockFloats - blocks), 0);
      const AscendC::DataCopyPadExtParams<float> zeros(true, 0, blocks * kBlockFloats - columns, 0.0f);
      AscendC::DataCopyPad(tile, src[Place(matrix, piece)], copy, zeros);
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    return slot;
  }

  // G after the last token.
  __aicore__ inline void Open(const Step& step) {
    for (int32_t head = 0; head < step.heads; ++head) {
      for (Piece piece = First(head); More(piece); piece = Following(piece)) {
        const AscendC::LocalTensor<float> g = t_->state_on_chip ? OnChip(piece) : Work(3);
        Settle();
        if (tiling_->has_dfinal) {
          const int32_t slot = LoadRows(final_, Matrix(step, piece), piece);
          AscendC::Adds(g, in_->template Tile<float>(slot), 0.0f, piece.rows * kSlice);
          AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
        } else {
          AscendC::Duplicate(g, 0.0f, piece.rows * kSlice);
        }
        Settle();
        KeepG(piece, g);
      }
    }
    Settle();
  }

  // An operand tile of the cube <- a piece.
  __aicore__ inline void Publish(const AscendC::GlobalTensor<Op>& dst, const AscendC::LocalTensor<float>& src,
                                 const Piece& piece) {
    const int32_t first = piece.row % kStateRows;
    const int32_t left = t_->headdim16 - (piece.row - first);
    const int32_t out = out_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    operands_->RowsToFractals(out, src, piece.rows, piece.width);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    operands_->StoreRowsOf(dst, out, piece.width, left < kStateRows ? left : kStateRows, first, piece.rows);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> StateOf(const Step& step, const Piece& piece) const {
    return ring_.States(step.index, piece.head, piece.slice, piece.row / kStateRows);
  }
  __aicore__ inline AscendC::GlobalTensor<Op> LeavingOf(const Step& step, const Piece& piece) const {
    return ring_.DLeaving(step.index, piece.head, piece.slice, piece.row / kStateRows);
  }

  // rows = decay rows + a piece of a product of the cube.
  __aicore__ inline void Advance(const Step& step, const Piece& piece, const AscendC::LocalTensor<float>& dst,
                                 const AscendC::LocalTensor<float>& src,
                                 const AscendC::GlobalTensor<float>& product) {
    const uint64_t lanes = static_cast<uint64_t>(piece.width);
    const int32_t slot = in_->Next();
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(slot);
    AscendC::DataCopy(
        in_->template Tile<float>(slot), product[piece.row * kBlockFloats],
        AscendC::DataCopyParams(piece.width / kBlockFloats, piece.rows, t_->headdim16 - piece.rows, 0));
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(slot);
    AscendC::Mul(dst, src, decays_->Vectors(step).decay[piece.head * kBlockFloats], lanes, piece.rows,
                 RowWise(1, 8, 1, 8, 0, 0));
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(slot);
    Settle();
    AscendC::Add(dst, dst, in_->template Tile<float>(slot), lanes, piece.rows,
                 RowWise(1, 8, 1, 8, piece.rows, 1));
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    Settle();
  }

  // Adds the lanes of <S, G> of a piece.
  __aicore__ inline void Contract(int32_t which, const Piece& piece, const AscendC::LocalTensor<float>& s,
                                  const AscendC::LocalTensor<float>& g) {
    const uint64_t lanes = static_cast<uint64_t>(piece.width);
    const AscendC::LocalTensor<float> sum = Through(which)[piece.head * kLanes], product = Work(2);
    AscendC::Mul(product, s, g, lanes, piece.rows, RowWise(1, 8, 1, 8, 1, 8));
    Settle();
    AscendC::Add(sum, product, sum, lanes, piece.rows, RowWise(1, 0, 1, 8, 1, 0));
    Settle();
  }

  __aicore__ inline void Serve(const Chunks& chunks, const Piece& piece) {
    const AscendC::LocalTensor<float> near_state = Work(0), far_state = Work(1);
    const Step& near = chunks.near;
    const int64_t matrix =
        (near.batch * t_->ncheckpoints + near.chunk / kStatePair) * t_->nheads + near.first_head + piece.head;
    const int32_t slot = LoadRows(checkpoints_, matrix, piece);
    AscendC::Adds(near_state, in_->template Tile<float>(slot), 0.0f, piece.rows * kSlice);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(slot);
    Settle();
    Publish(StateOf(near, piece), near_state, piece);
    const AscendC::LocalTensor<float> g = TakeG(piece);
    if (chunks.pair) {
      const Step& far = chunks.far;
      Advance(near, piece, far_state, near_state, ring_.ChunkStates(near.deep_slot, piece.head, piece.slice));
      Publish(StateOf(far, piece), far_state, piece);
      Contract(1, piece, far_state, g);
      Publish(LeavingOf(far, piece), g, piece);
      Settle();
      Advance(far, piece, g, g, ring_.DStates(far.deep_slot, piece.head, piece.slice));
    }
    Contract(0, piece, near_state, g);
    Publish(LeavingOf(near, piece), g, piece);
    Settle();
    Advance(near, piece, g, g, ring_.DStates(near.deep_slot, piece.head, piece.slice));
    KeepG(piece, g);
  }

  // exp(cum_last) <S, G> of each head, over this core's rows, to the exchange.
  __aicore__ inline void SendThrough(const Step& step, int32_t which) {
    const AscendC::LocalTensor<float> lanes = Through(which);
    AscendC::Mul(lanes, lanes, decays_->Vectors(step).decay, kLanes, kMaxHeads, RowWise(1, 8, 1, 8, 0, 1));
    Settle();
    const AscendC::LocalTensor<float> blocks = Work(2);
    AscendC::BlockReduceSum(blocks, lanes, kMaxHeads, kLanes, 1, 1, 8);
    Settle();
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::BlockReduceSum(tile, blocks, 1, kLanes, 1, 1, 8);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::DataCopy(ring_.Sums(step.index, kThrough)[sub_ * kMaxHeads], tile, kMaxHeads);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
    Settle();
  }

  __aicore__ inline void StoreInitial(const Step& step, const Piece& piece) {
    const int32_t rows = RealRows(piece), columns = RealColumns(piece);
    if (rows == 0) {
      return;
    }
    const AscendC::LocalTensor<float> g = TakeG(piece);
    const int32_t out = out_->Next();
    const AscendC::LocalTensor<float> tile = out_->template Tile<float>(out);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_V>(out);
    AscendC::Adds(tile, g, 0.0f, piece.rows * kSlice);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(out);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(out);
    const int32_t blocks = (columns + kBlockFloats - 1) / kBlockFloats;
    const AscendC::DataCopyExtParams copy(rows, static_cast<uint32_t>(columns * 4),
                                          static_cast<uint32_t>(kSlice / kBlockFloats - blocks),
                                          static_cast<uint32_t>((t_->dstate - columns) * 4), 0);
    AscendC::DataCopyPad(initial_[Place(Matrix(step, piece), piece)], tile, copy);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_V>(out);
    Settle();
  }

  const SsdForwardTiling* t_;
  const SsdBackwardTiling* tiling_;
  BackwardRing<Op> ring_;
  int32_t sub_, half_;
  TilePool *in_, *out_;
  OperandTiles<Op>* operands_;
  BackwardDecays<Op>* decays_;
  AscendC::GlobalTensor<float> checkpoints_, initial_, final_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_SSD_BACKWARD_STATE_H
