// selective_sums.h -- sums of the backward scan over what the tensors share: lanes, tasks, batch entries.
//
// dB and dC are sums over channels: kept lane by lane in a tile while the blocks of a task pass, summed over
// lanes once, written to the task's rows, and those of a group's tasks added in order. dA, dD and ddelta_bias
// are sums over tokens, one row for each batch entry and block, added in order.
#ifndef VMAMBA2_CPU_SELECTIVE_SUMS_H
#define VMAMBA2_CPU_SELECTIVE_SUMS_H

#include "matmul.h"
#include "selective_scan.h"
#include "selective_states.h"

namespace vmamba2 {

// Sums of a whole call on their way to the results.
template <class Real>
struct PartialSums {
  Real *db, *dc;                // (tasks, N, row)
  Real *da, *dd, *ddelta_bias;  // (batch, groups, blocks, N or 1, kLanes)
  int64_t row, da_size, blocks;

  PartialSums(Cutter& cutter, const VmSelectiveCall& call, const SelectiveSplit& split)
      : row(RoundUp(call.seqlen, kLanes<Real>)),
        da_size(call.dstate * kLanes<Real>),
        blocks(call.batch * call.ngroups * split.blocks()) {
    db = cutter.Cut<Real>(split.tasks() * call.dstate * row);
    dc = cutter.Cut<Real>(split.tasks() * call.dstate * row);
    da = cutter.Cut<Real>(blocks * da_size);
    dd = cutter.Cut<Real>(blocks * kLanes<Real>);
    ddelta_bias = cutter.Cut<Real>(blocks * kLanes<Real>);
  }
};

// Rows [0, kLanes) become one vector, whose lanes are the sums of the rows.
template <class Real, int kStride>
inline void SumRowsStage(Vector<Real> (&rows)[kLanes<Real>]) {
  constexpr int kCount = static_cast<int>(kLanes<Real>);
  using Lanes = std::make_integer_sequence<int, kCount>;
#pragma GCC unroll 16
  for (int i = 0; i < kCount; i += 2 * kStride) {
    const Vector<Real> low = rows[i], high = rows[i + kStride];
    rows[i] = Interleave<Real>(low, high, InterleaveIndex<Real, kStride, false>(Lanes{})) +
              Interleave<Real>(low, high, InterleaveIndex<Real, kStride, true>(Lanes{}));
  }
  if constexpr (kStride * 2 < kCount) SumRowsStage<Real, kStride * 2>(rows);
}

// Doubles that have been summed, as Real.
template <class Real>
inline void Narrow(const double* from, int64_t count, Real* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Real>(from[i]);
}

// out[n * row + t] = the sum over lanes of in (tokens, states, kLanes), whole blocks of kLanes tokens.
template <class Real>
void SumLanes(const Real* in, int64_t tokens, int64_t states, Real* out, int64_t row) {
  constexpr int64_t kStep = kLanes<Real>;
  for (int64_t t = 0; t < tokens; t += kStep) {
    for (int64_t n = 0; n < states; ++n) {
      Vector<Real> rows[kStep];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kStep; ++i) rows[i] = Load(in + ((t + i) * states + n) * kStep);
      SumRowsStage<Real, 1>(rows);
      Store(out + n * row + t, rows[0]);
    }
  }
}

// dB or dC of a group of a batch entry: its tasks' rows, added in order into the first.
template <class Real>
void SumParts(const VmSelectiveCall& call, const SelectiveSplit& split, int64_t entry, int64_t row,
              Real* rows, const VmTensor& out) {
  const int64_t size = call.dstate * row;
  Real* sum = rows + entry * split.parts() * size;
  for (int64_t part = 1; part < split.parts(); ++part) {
    const Real* other = sum + part * size;
    for (int64_t i = 0; i < size; ++i) sum[i] += other[i];
  }
  const int64_t offset = entry / call.ngroups * out.strides[0] + entry % call.ngroups * out.strides[1];
  for (int64_t n = 0; n < call.dstate; ++n) {
    StoreRow(sum + n * row, call.seqlen, out, offset + n * out.strides[2], out.strides[3]);
  }
}

// A parameter's gradient for a block of a group: the sum over batch entries. `rows` is (batch, blocks of all
// groups, width, kLanes).
template <class Real>
void SumBatch(int64_t batch, int64_t blocks, int64_t block, int64_t width, const Real* rows,
              const VmTensor& out, const TileShape& shape) {
  if (!out.data) return;
  for (int64_t n = 0; n < width; ++n) {
    double wide[kLanes<Real>] = {};
    for (int64_t entry = 0; entry < batch; ++entry) {
      AddWide<Real>(wide, Load(rows + ((entry * blocks + block) * width + n) * kLanes<Real>));
    }
    Real sums[kLanes<Real>];
    for (int64_t lane = 0; lane < kLanes<Real>; ++lane) sums[lane] = static_cast<Real>(wide[lane]);
    TileShape one = shape;
    one.offset += n * shape.token_stride;
    one.tokens = 1;
    StoreTile(sums, out, one);
  }
}

template <class Real>
void ConcludeSums(const VmSelectiveCall& call, const VmSelectiveGradients& gradients,
                  const SelectiveSplit& split, const PartialSums<Real>& sums, int threads) {
  const int64_t entries = call.batch * call.ngroups, blocks = call.ngroups * split.blocks();
  ForEachTask(2 * entries + blocks, threads, [&](int64_t task, int) {
    if (task < entries) return SumParts(call, split, task, sums.row, sums.db, gradients.db);
    if (task < 2 * entries) return SumParts(call, split, task - entries, sums.row, sums.dc, gradients.dc);
    const int64_t index = task - 2 * entries;
    const ChannelBlock block = split.Block(index / split.blocks(), index % split.blocks());
    SumBatch(call.batch, blocks, index, call.dstate, sums.da, gradients.da,
             StatesOf(gradients.da, block, call.dstate));
    SumBatch(call.batch, blocks, index, 1, sums.dd, gradients.dd, ParameterOf(gradients.dd, block));
    SumBatch(call.batch, blocks, index, 1, sums.ddelta_bias, gradients.ddelta_bias,
             ParameterOf(gradients.ddelta_bias, block));
  });
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SELECTIVE_SUMS_H
