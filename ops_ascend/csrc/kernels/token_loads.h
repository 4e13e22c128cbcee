// token_loads.h -- a chunk's tokens from a tensor of the caller's into L1, as operands: one tile of 64 rows and
// headdim16 columns for each head of a task.
//
// Only for tensors in the operands' dtype. Rows past the last token and columns past headdim are zero.
#ifndef VMAMBA2_TOKEN_LOADS_H
#define VMAMBA2_TOKEN_LOADS_H

#include "ssd_forward_protocol.h"

namespace vmamba2 {

template <typename Op>
class TokenLoads {
 public:
  __aicore__ inline void Init(const SsdForwardTiling* tiling, const TokenStrides& strides, GM_ADDR tensor) {
    t_ = tiling;
    strides_ = strides;
    tensor_.SetGlobalBuffer(reinterpret_cast<__gm__ Op*>(tensor),
                            SpanElements(*tiling, strides, tiling->nheads, tiling->headdim));
  }

  __aicore__ inline void Load(const AscendC::LocalTensor<Op>& tiles, const Step& step) {
    if (step.tokens < kChunk || t_->headdim != t_->headdim16) {
      Zero(tiles, step.heads);
    }
    for (int32_t row = 0; row < step.tokens;) {
      const int32_t in_panel = kPanels ? kFractalRows - row % kFractalRows : kChunk;
      const int32_t left = step.tokens - row;
      const Run run =
          NextRun(*t_, step.direction, step.chunk * kChunk + row, left < in_panel ? left : in_panel);
      LoadRun(tiles, step, row, run);
      row += run.count;
    }
  }

 private:
  __aicore__ inline int32_t Tile() const { return kChunk * t_->headdim16; }

  __aicore__ inline void Zero(const AscendC::LocalTensor<Op>& tiles, int32_t heads) {
    AscendC::InitConstValueParams<Op> zero;
    zero.repeatTimes = 1;
    zero.blockNum = heads * Tile() * static_cast<int32_t>(sizeof(Op)) / kBlockBytes;
    zero.dstGap = 0;
    zero.initValue = 0;
    AscendC::InitConstValue(tiles, zero);
    AscendC::PipeBarrier<PIPE_MTE2>();
  }

  // Strides that do not fit the instruction's 16 bits are walked by more instructions.
  __aicore__ inline void LoadRun(const AscendC::LocalTensor<Op>& tiles, const Step& step, int32_t row,
                                 const Run& run) {
    constexpr int64_t kWidestStride = 65535;
    const int64_t pitch = run.distance * strides_.token;
    const bool rows_fit = pitch <= kWidestStride;
    const bool heads_fit = strides_.head <= kWidestStride;
    const int32_t rows = rows_fit ? run.count : 1;
    const int32_t heads = heads_fit ? step.heads : 1;
    const int64_t base =
        step.batch * strides_.batch + step.first_head * strides_.head + run.position * strides_.token;
    for (int32_t done = 0; done < run.count; done += rows) {
      const int32_t at = row + done;
      const int32_t inside =
          kPanels ? (at / kFractalRows) * kFractalRows * t_->headdim16 + at % kFractalRows * kC0<Op>
                  : at * kC0<Op>;
      for (int32_t head = 0; head < step.heads; head += heads) {
        AscendC::Nd2NzParams copy;
        copy.ndNum = heads;
        copy.nValue = rows;
        copy.dValue = t_->headdim;
        copy.srcNdMatrixStride = heads_fit ? strides_.head : 0;
        copy.srcDValue = rows_fit ? pitch : t_->headdim;
        copy.dstNzC0Stride = kPanels ? kFractalRows : kChunk;
        copy.dstNzNStride = 1;
        copy.dstNzMatrixStride = Tile();
        AscendC::DataCopy(tiles[head * Tile() + inside], tensor_[base + done * pitch + head * strides_.head],
                          copy);
      }
    }
  }

  const SsdForwardTiling* t_;
  TokenStrides strides_;
  AscendC::GlobalTensor<Op> tensor_;
};

}  // namespace vmamba2

#endif  // VMAMBA2_TOKEN_LOADS_H
