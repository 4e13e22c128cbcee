// ssd_backward_steps.h -- gradients of the steps of a chunk, and of A and dt_bias.
//
//   dlog_decay_t = across_t + sum_{l >= t} from_start_l + sum_{s < t} into_end_s + through
//   dstep = du . x + A dlog_decay,  ddt = dstep times the slope of clamp(softplus), see step.py
//
// These sums only add: a difference of totals would leave the rounding of the largest term on the smallest.
#ifndef VMAMBA2_CPU_SSD_BACKWARD_STEPS_H
#define VMAMBA2_CPU_SSD_BACKWARD_STEPS_H

#include "ssd_backward_walk.h"

namespace vmamba2 {
namespace ssd_backward {

template <class Real, int kCount>
inline Vector<Real> AddLanes(Vector<Real>* rows) {
  using Lanes = std::make_integer_sequence<int, static_cast<int>(kLanes<Real>)>;
  constexpr int kStride = static_cast<int>(kLanes<Real>) / kCount;
#pragma GCC unroll 8
  for (int i = 0; i < kCount / 2; ++i) {
    const Vector<Real> low = rows[2 * i], high = rows[2 * i + 1];
    rows[i] = Interleave<Real>(low, high, InterleaveIndex<Real, kStride, false>(Lanes{})) +
              Interleave<Real>(low, high, InterleaveIndex<Real, kStride, true>(Lanes{}));
  }
  if constexpr (kCount > 2) return AddLanes<Real, kCount / 2>(rows);
  return rows[0];
}

// The sums of kLanes tokens from `row` on.
template <class Real>
inline Vector<Real> Total(const LaneSums<Real>& sums, int64_t row) {
  constexpr int kCount = static_cast<int>(kLanes<Real>);
  Vector<Real> rows[kCount];
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) rows[i] = Load(sums.lanes + (row + i) * kCount);
  return AddLanes<Real, kCount>(rows);
}

// The slope of softplus at the steps of a head, in float64: rounded to float32 early, it would be what errs
// most in a sum of many ddt that cancel.
template <class Real>
inline void LoadSlopes(const TokenWalk<Real>& walk, int64_t length, int64_t head, Real* slopes) {
  constexpr int64_t kStep = kLanes<double>;
  const VmTensor &dt = walk.call.dt, &dt_bias = walk.call.dt_bias;
  double* raw = walk.tiles.raw;
  const double bias =
      dt_bias.data ? LoadOne<double>(dt_bias, (walk.heads.first + head) * dt_bias.strides[0]) : 0.0;
  WithElement(dt.dtype, [&](auto* type) {
    const auto* from = static_cast<decltype(type)>(dt.data) + walk.heads.batch * dt.strides[0] +
                       (walk.heads.first + head) * dt.strides[2];
    for (int64_t l = 0; l < length; ++l)
      raw[l] = static_cast<double>(Widen(from[walk.tiles.tokens[l] * dt.strides[1]])) + bias;
  });
  for (int64_t l = length; l < Padded<double>(length); ++l) raw[l] = 0;
  for (int64_t l = 0; l < length; l += kStep) Store(raw + l, SoftplusSlope<double>(Load(raw + l)));
  for (int64_t l = 0; l < length; ++l) slopes[l] = static_cast<Real>(raw[l]);
}

// ddt of steps; an infinite gradient at a clamped step gives 0, so nothing is multiplied there.
template <class Real>
inline Vector<Real> StepGradient(const VmSsdCall& call, Vector<Real> raw, Vector<Real> slope,
                                 Vector<Real> dstep) {
  const Vector<Real> step = call.dt_softplus ? Softplus<Real>(raw) : raw;
  const auto outside = (step < static_cast<Real>(call.dt_min)) | (step > static_cast<Real>(call.dt_max));
  return outside ? Vector<Real>{} : call.dt_softplus ? dstep * slope : dstep;
}

template <class Real>
inline void StoreSteps(const Target& target, const int64_t* tokens, int64_t length, int64_t head,
                       const Real* ddt) {
  const VmTensor& tensor = target.tensor;
  WithElement(tensor.dtype, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    Element* to = static_cast<Element*>(tensor.data) + target.batch * tensor.strides[0] +
                  (target.first + head) * tensor.strides[2];
    for (int64_t l = 0; l < length; ++l) {
      Element& out = to[tokens[l] * tensor.strides[1]];
      out = Narrowed<Element, Real>::From(target.add ? static_cast<Real>(Widen(out)) + ddt[l] : ddt[l]);
    }
  });
}

// `through` is the gradient of the log decay of every token through the decay of the whole chunk.
template <class Real>
inline void StepGradients(const TokenWalk<Real>& walk, const Chunk& chunk, int64_t head, Real through) {
  constexpr int64_t kStep = kLanes<Real>;
  Tiles<Real>& tiles = walk.tiles;
  const int64_t length = chunk.length;
  const Real* raw = tiles.decays.raw + head * tiles.decays.row;
  const Real* step = tiles.decays.step + head * tiles.decays.row;
  const bool from_start = chunk.has_start && walk.HasDy(), into_end = chunk.has_end;
  Real *dlog_decay = tiles.dlog_decay, *before = tiles.before, *after = tiles.after;
  for (int64_t l = 0; l < length; l += kStep) {
    const Vector<Real> across = walk.HasDy() ? Total(tiles.across_token, l) : Vector<Real>{};
    Store(dlog_decay + l, across + through);
    if (from_start) Store(after + l, Total(tiles.from_start, l));
    if (into_end) Store(before + l, Total(tiles.into_end, l));
  }
  if (from_start) {
    double sum = 0;
    for (int64_t l = length - 1; l >= 0; --l) {
      sum += static_cast<double>(after[l]);
      dlog_decay[l] += static_cast<Real>(sum);
    }
  }
  if (into_end) {
    double sum = 0;
    for (int64_t l = 0; l < length; ++l) {
      dlog_decay[l] += static_cast<Real>(sum);
      sum += static_cast<double>(before[l]);
    }
  }
  const Real A = LoadOne<Real>(walk.call.a, (walk.heads.first + head) * walk.call.a.strides[0]);
  double dA = 0, dbias = 0;
  for (int64_t l = 0; l < length; ++l)
    dA += static_cast<double>(dlog_decay[l]) * static_cast<double>(step[l]);
  if (walk.call.dt_softplus) LoadSlopes(walk, length, head, before);
  for (int64_t l = 0; l < length; l += kStep) {
    const Vector<Real> dstep = Total(tiles.dstep, l) + Load(dlog_decay + l) * A;
    Store(dlog_decay + l, StepGradient<Real>(walk.call, Load(raw + l), Load(before + l), dstep));
  }
  for (int64_t l = 0; l < length; ++l) dbias += static_cast<double>(dlog_decay[l]);
  tiles.dA[head] += dA;
  tiles.dbias[head] += dbias;
  StoreSteps(walk.ddt, tiles.tokens, length, head, dlog_decay);
}

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_STEPS_H
