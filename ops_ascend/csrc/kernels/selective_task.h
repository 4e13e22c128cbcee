// selective_task.h -- what both selective scan kernels do alike: their addresses, the loads that run ahead,
// and what a task keeps on chip.
#ifndef VMAMBA2_SELECTIVE_TASK_H
#define VMAMBA2_SELECTIVE_TASK_H

#include "selective_tiles.h"
#include "vector_math.h"

namespace vmamba2 {

struct SelectiveForwardAddresses {
  GM_ADDR u;
  GM_ADDR delta;
  GM_ADDR a;
  GM_ADDR b;
  GM_ADDR c;
  GM_ADDR d;
  GM_ADDR z;
  GM_ADDR delta_bias;
  GM_ADDR y;
  GM_ADDR last_state;
  GM_ADDR checkpoints;
};

struct SelectiveBackwardAddresses {
  GM_ADDR u;
  GM_ADDR delta;
  GM_ADDR a;
  GM_ADDR b;
  GM_ADDR c;
  GM_ADDR d;
  GM_ADDR z;
  GM_ADDR delta_bias;
  GM_ADDR checkpoints;
  GM_ADDR dy;
  GM_ADDR dlast_state;
  GM_ADDR du;
  GM_ADDR ddelta;
  GM_ADDR da;
  GM_ADDR db;
  GM_ADDR dc;
  GM_ADDR dd;
  GM_ADDR dz;
  GM_ADDR ddelta_bias;
  GM_ADDR workspace;
};

// Events between V and MTE2: of the rows of a block, of the rows of states, and of loads that are waited for
// at once. Between V and MTE3: of rows on their way out, of states on their way out.
constexpr int32_t kRowsEvent = 0, kStatesEvent = 1, kNowEvent = 2;
constexpr int32_t kOutEvent = 0, kStageEvent = 1;

// The part of a task's loads that does not differ between forward and backward.
template <typename T>
class SelectiveInputs {
 public:
  __aicore__ inline void Init(const SelectiveTiling* tiling, GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR d,
                              GM_ADDR bias) {
    t_ = tiling;
    a_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(a));
    b_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(b));
    c_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(c));
    d_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(d));
    bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(bias));
  }

  // A block's rows of a tensor of channels.
  template <typename E>
  __aicore__ inline void Channels(uint32_t at, GM_ADDR tensor, const ChannelStrides& strides,
                                  const SelectiveCursor& to) const {
    AscendC::GlobalTensor<E> src;
    src.SetGlobalBuffer(reinterpret_cast<__gm__ E*>(tensor));
    FetchRows(Ub<E>(at, kBlockChannels * RowPitch<E>(to.tokens)), src,
              to.batch * strides.batch + to.channel * strides.channel + to.token, strides.channel,
              to.channels, to.tokens);
  }

  // delta, in its own dtype.
  __aicore__ inline void Delta(uint32_t at, GM_ADDR tensor, const SelectiveCursor& to) const {
    if (t_->delta_dtype == static_cast<int32_t>(DType::kFloat32)) {
      Channels<float>(at, tensor, t_->delta, to);
    } else {
      Channels<T>(at, tensor, t_->delta, to);
    }
  }

  // B and C of a chunk of states, one behind the other.
  __aicore__ inline void States(uint32_t at, const SelectiveCursor& to) const {
    const int32_t elements = kChunkStates * RowPitch<T>(to.tokens);
    FetchRows(Ub<T>(at, elements), b_,
              to.batch * t_->b.batch + to.group * t_->b.group + to.state * t_->b.state + to.token,
              t_->b.state, to.states, to.tokens);
    FetchRows(Ub<T>(at + elements * sizeof(T), elements), c_,
              to.batch * t_->c.batch + to.group * t_->c.group + to.state * t_->c.state + to.token,
              t_->c.state, to.states, to.tokens);
  }
  __aicore__ inline AscendC::LocalTensor<T> StateRows(uint32_t at, bool second, int32_t tokens) const {
    const int32_t elements = kChunkStates * RowPitch<T>(tokens);
    return Ub<T>(at + (second ? elements * sizeof(T) : 0), elements);
  }

  // [state][64] <- a (dim, dstate) matrix, through `stage`; waits for the move.
  __aicore__ inline void Matrix(const AscendC::LocalTensor<float>& dst,
                                const AscendC::GlobalTensor<float>& src, int64_t batch,
                                const AscendC::LocalTensor<float>& stage, const SelectiveCursor& at) const {
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
    FetchRows(stage, src, (batch * t_->dim + at.channel) * t_->dstate + at.state, t_->dstate, at.channels,
              at.states);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
    OpenRows(dst, stage, stage, at.channels, at.states);
  }
  __aicore__ inline void A(const AscendC::LocalTensor<float>& dst, const AscendC::LocalTensor<float>& stage,
                           const SelectiveCursor& at) const {
    Matrix(dst, a_, 0, stage, at);
  }

  // D and delta_bias of a block, zeros behind its last channel.
  __aicore__ inline void Vectors(const AscendC::LocalTensor<float>& d,
                                 const AscendC::LocalTensor<float>& bias, const SelectiveCursor& at) const {
    AscendC::Duplicate(d, 0.0f, kBlockChannels);
    AscendC::Duplicate(bias, 0.0f, kBlockChannels);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(kNowEvent);
    if (t_->has_d) {
      FetchRows(d, d_, at.channel, 0, 1, at.channels);
    }
    if (t_->has_bias) {
      FetchRows(bias, bias_, at.channel, 0, 1, at.channels);
    }
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(kNowEvent);
  }

 private:
  const SelectiveTiling* t_;
  AscendC::GlobalTensor<float> a_, d_, bias_;
  AscendC::GlobalTensor<T> b_, c_;
};

// Where the state that enters the segment behind checkpoint `index` is kept: block by block, [state][channel].
__aicore__ inline int64_t CheckpointPlace(const SelectiveTiling& t, const SelectiveCursor& at,
                                          int64_t index) {
  return ((at.batch * t.ncheckpoints + index) * t.dim + at.channel) * t.dstate +
         static_cast<int64_t>(at.state) * at.channels;
}

// delta's rows -> lanes of delta + bias.
template <typename T>
__aicore__ inline void OpenDelta(const SelectiveTiling& t, const AscendC::LocalTensor<float>& lanes,
                                 uint32_t raw, const AscendC::LocalTensor<float>& wide,
                                 const AscendC::LocalTensor<float>& bias, const SelectiveCursor& at) {
  if (t.delta_dtype == static_cast<int32_t>(DType::kFloat32)) {
    OpenRows(lanes, Ub<float>(raw, kBlockChannels * RowPitch<float>(at.tokens)), wide, at.channels,
             at.tokens);
  } else {
    OpenRows(lanes, Ub<T>(raw, kBlockChannels * RowPitch<T>(at.tokens)), wide, at.channels, at.tokens);
  }
  if (t.has_bias) {
    AscendC::Add(lanes, lanes, bias, kLanes, at.tokens, TimesVector());
    Settle();
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_SELECTIVE_TASK_H
