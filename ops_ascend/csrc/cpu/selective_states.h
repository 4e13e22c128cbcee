// selective_states.h -- the loops over a tile's tokens of the backward scan, for kStates states of one block.
//
//   dh_t = dlast_t + dy_t C_t + carry_{t+1},   carry_t = decay_t dh_t          (backward in time)
//   du_t B_t, dB_t, ...: sums over states or channels of dh_t times what it multiplied
//
// All arrays are token-major with the channels of the block in the lanes. Pointers to an array over states
// point at the first of the kStates; `states` is the number of all of them, and rows are (states, kLanes). b
// and c have rows of `row` elements, one for each state.
#ifndef VMAMBA2_CPU_SELECTIVE_STATES_H
#define VMAMBA2_CPU_SELECTIVE_STATES_H

#include "selective_tile.h"
#include "vector.h"
#include "vector_math.h"

namespace vmamba2 {

// What the tokens of a block's tile have, whatever the states: (tokens, kLanes) each.
template <class Real>
struct TokenArrays {
  Real* step;
  Real* slope;  // of the step with respect to delta; null where that is 1
  Real* u;
  Real* dout;      // gradient of y before the gate
  Real* y;         // before the gate and without the skip
  Real* dproduct;  // gradient of step * u
  Real* dstep;     // gradient of the step through the decays
};

// What the way forward leaves for the way back: of each token and state the decay and, beside it, the decay
// times the state before. Rows are of `states` pairs.
template <class Real>
struct History {
  Real* pairs;
  int64_t states;

  Real* At(int64_t token, int64_t state) const { return pairs + (token * states + state) * 2 * kLanes<Real>; }
};

// Runs the states over a tile, and nothing else.
template <class Real, int kStates>
void AdvanceStates(int64_t tokens, const TokenArrays<Real>& arrays, const Real* rates, const Real* b,
                   int64_t row, const Real* before, Real* after, Prefetcher& ahead) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> h[kStates];
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) h[n] = Load(before + n * kStep);
  for (int64_t t = 0; t < tokens; ++t) {
    ahead.Next();
    const Vector<Real> step = Load(arrays.step + t * kStep), product = step * Load(arrays.u + t * kStep);
#pragma GCC unroll 16
    for (int n = 0; n < kStates; ++n) {
      h[n] = Exp2<Real>(step * Load(rates + n * kStep)) * h[n] + product * b[t * row + n];
    }
  }
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) Store(after + n * kStep, h[n]);
}

// The same with a history. Adds dout times the states to dc, and with kOutputs h . C to y.
template <class Real, int kStates, bool kOutputs>
void RecordStates(int64_t tokens, int64_t states, const TokenArrays<Real>& arrays, const Real* rates,
                  const Real* b, const Real* c, int64_t row, const Real* before, Real* after,
                  const History<Real>& history, Real* dc, Prefetcher& ahead) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> h[kStates];
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) h[n] = Load(before + n * kStep);
  for (int64_t t = 0; t < tokens; ++t) {
    ahead.Next();
    const Vector<Real> step = Load(arrays.step + t * kStep), product = step * Load(arrays.u + t * kStep);
    const Vector<Real> dout = Load(arrays.dout + t * kStep);
    Vector<Real> y = kOutputs ? Load(arrays.y + t * kStep) : Vector<Real>{};
    Real* pairs = history.At(t, 0);
#pragma GCC unroll 16
    for (int n = 0; n < kStates; ++n) {
      // Read before anything is written: addresses that are equal in their lowest bits would wait for each
      // other.
      Real* sums = dc + (t * states + n) * kStep;
      const Vector<Real> sum = Load(sums);
      const Vector<Real> decay = Exp2<Real>(step * Load(rates + n * kStep));
      const Vector<Real> rest = decay * h[n];
      h[n] = rest + product * b[t * row + n];
      Store(pairs + 2 * n * kStep, decay);
      Store(pairs + (2 * n + 1) * kStep, rest);
      Store(sums, sum + dout * h[n]);
      if constexpr (kOutputs) y += h[n] * c[t * row + n];
    }
    if constexpr (kOutputs) Store(arrays.y + t * kStep, y);
  }
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) Store(after + n * kStep, h[n]);
}

// sums[lane] += value[lane], in double.
template <class Real>
inline void AddWide(double* sums, Vector<Real> value) {
  typedef double Wide __attribute__((vector_size(sizeof(double) * kLanes<Real>)));
  Wide sum;
  std::memcpy(&sum, sums, sizeof(sum));
  sum += __builtin_convertvector(value, Wide);
  std::memcpy(sums, &sum, sizeof(sum));
}

// The way back: carry comes in of the token after the tile and goes out of its first. Adds to db, da and to
// dproduct and dstep of the tokens.
template <class Real, int kStates>
void ReverseStates(int64_t tokens, int64_t states, const TokenArrays<Real>& arrays, const Real* a,
                   const Real* b, const Real* c, int64_t row, const History<Real>& history, Real* carry,
                   Real* db, double* da, Prefetcher& ahead) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> dafter[kStates], dlog_sum[kStates];
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) {
    dafter[n] = Load(carry + n * kStep);
    dlog_sum[n] = Vector<Real>{};
  }
  for (int64_t t = tokens - 1; t >= 0; --t) {
    ahead.Next();
    const Vector<Real> step = Load(arrays.step + t * kStep), product = step * Load(arrays.u + t * kStep);
    const Vector<Real> dout = Load(arrays.dout + t * kStep);
    Vector<Real> dproduct = Load(arrays.dproduct + t * kStep), dstep = Load(arrays.dstep + t * kStep);
    const Real* pairs = history.At(t, 0);
#pragma GCC unroll 16
    for (int n = 0; n < kStates; ++n) {
      const Vector<Real> dh = dafter[n] + dout * c[t * row + n];
      Real* sums = db + (t * states + n) * kStep;
      Store(sums, Load(sums) + dh * product);
      dproduct += dh * b[t * row + n];
      const Vector<Real> dlog = dh * Load(pairs + (2 * n + 1) * kStep);
      dlog_sum[n] += dlog * step;
      dstep += dlog * Load(a + n * kStep);
      dafter[n] = dh * Load(pairs + 2 * n * kStep);
    }
    Store(arrays.dproduct + t * kStep, dproduct);
    Store(arrays.dstep + t * kStep, dstep);
  }
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) {
    Store(carry + n * kStep, dafter[n]);
    AddWide<Real>(da + n * kStep, dlog_sum[n]);
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SELECTIVE_STATES_H
