// ssd_backward_states.h -- the states of the Mamba-2 backward: those at the chunks' starts, and what
// gradients of states at the chunks' ends give to tokens. S(hp, n) is a state, dS the gradient of one.
//
//   S_next     = carry S  + left^T B             du_s (from the end)  = leave_s dS B_s
//   dS_before  = carry dS + entered^T C          dC_l (from the start) = entered_l S    dB_s = left_s dS
//   gradient of the decays: C_l . dC_l to the start, B_s . dB_s to the end, carry <S, dS> all the way
#ifndef VMAMBA2_CPU_SSD_BACKWARD_STATES_H
#define VMAMBA2_CPU_SSD_BACKWARD_STATES_H

#include "ssd_backward_walk.h"

namespace vmamba2 {
namespace ssd_backward {

// States of the caller, (batch, nheads, headdim, dstate), of a walk's heads; zeros where there are none.
template <class Real>
inline void LoadStates(const TokenWalk<Real>& walk, const VmTensor& tensor, Real* states) {
  const Layout<Real>& sizes = walk.sizes;
  std::memset(states, 0, static_cast<size_t>(sizes.StateSize()) * sizeof(Real));
  if (!tensor.data) return;
  for (int64_t h = 0; h < walk.heads.count; ++h) {
    for (int64_t p = 0; p < sizes.headdim; ++p) {
      const int64_t offset = walk.heads.batch * tensor.strides[0] +
                             (walk.heads.first + h) * tensor.strides[1] + p * tensor.strides[2];
      LoadRow(tensor, offset, sizes.dstate, tensor.strides[3], states + (h * sizes.padded + p) * sizes.deep);
    }
  }
}

template <class Real>
inline void StoreStates(const TokenWalk<Real>& walk, const Real* states, const VmTensor& tensor) {
  const Layout<Real>& sizes = walk.sizes;
  for (int64_t h = 0; h < walk.heads.count; ++h) {
    for (int64_t p = 0; p < sizes.headdim; ++p) {
      const int64_t offset = walk.heads.batch * tensor.strides[0] +
                             (walk.heads.first + h) * tensor.strides[1] + p * tensor.strides[2];
      StoreRow(states + (h * sizes.padded + p) * sizes.deep, sizes.dstate, tensor, offset, tensor.strides[3]);
    }
  }
}

// to(p, n) = carry from(p, n) + sum_l tokens(l, p) group(l, n) of a head; from is null for zeros, or is to.
template <class Real>
inline void PassState(const Layout<Real>& sizes, int64_t length, Real carry, const Real* tokens,
                      const Real* group, const Real* from, Real* to, Prefetch& ahead) {
  const auto range = [&ahead, length](int64_t, int64_t) {
    ahead.Ask();
    return Range{0, length};
  };
  ProductOf<Real, Walk::kColumns>(
      sizes.headdim, sizes.dstate, range, tokens, sizes.wide, group, sizes.deep,
      [](int64_t, int64_t) { return Vector<Real>{}; },
      [&](int64_t p, int64_t n, Vector<Real> sum) {
        const int64_t at = p * sizes.deep + n;
        Store(to + at, from ? carry * Load(from + at) + sum : sum);
      });
}

// left = leave dt x of the tokens of a chunk.
template <class Real>
inline void LoadLeaving(const TokenWalk<Real>& walk, const Chunk& chunk) {
  Tiles<Real>& tiles = walk.tiles;
  const TokenRows rows = walk.Heads(chunk.length);
  for (int64_t s = 0; s < chunk.length; ++s) {
    Real* row = tiles.left + s * walk.sizes.wide;
    LoadTileRow(walk.call.x, rows, s, row);
    for (int64_t h = 0; h < walk.heads.count; ++h) {
      const int64_t at = h * tiles.decays.row + s;
      const Real scale = tiles.decays.step[at] * tiles.decays.leave[at];
      for (int64_t p = 0; p < walk.sizes.padded; p += kLanes<Real>, row += kLanes<Real>)
        Store(row, Load(row) * scale);
    }
  }
}

// The states at the starts of all chunks.
template <class Real>
inline void WalkStates(const TokenWalk<Real>& walk) {
  Tiles<Real>& tiles = walk.tiles;
  const Layout<Real>& sizes = walk.sizes;
  const bool has_initial = walk.call.initial_states.data != nullptr;
  const int64_t last = walk.chunks.count - 1;
  if (has_initial) LoadStates(walk, walk.call.initial_states, walk.Starts(0));
  for (int64_t index = 0; index < last; ++index) {
    const Chunk chunk{index, walk.chunks.Begin(index), walk.chunks.length, index > 0, false};
    LoadChunk(walk, chunk);
    LoadLeaving(walk, chunk);
    LoadTile(walk.call.b, walk.Group(chunk.length), tiles.b, sizes.deep);
    Prefetch ahead = Ahead(walk, walk.heads, walk.order, index + 1, index + 1 < last,
                           walk.heads.count * BlocksOf<Real>(sizes.headdim, sizes.dstate));
    for (int64_t h = 0; h < walk.heads.count; ++h) {
      const int64_t state = h * sizes.padded * sizes.deep;
      Real* next = walk.Starts(index + 1) + state;
      ClearRows(next, sizes.deep, sizes.headdim, sizes.padded, sizes.dstate);
      PassState(sizes, chunk.length, tiles.decays.carry[h], tiles.left + h * sizes.padded, tiles.b,
                index > 0 || has_initial ? walk.Starts(index) + state : nullptr, next, ahead);
    }
  }
}

// out(l, p) = sum_n group(l, n) states(p, n), heads side by side.
template <class Real>
inline void ReadStates(const TokenWalk<Real>& walk, int64_t length, const Real* group, const Real* states,
                       Real* out, Prefetch& ahead) {
  const Layout<Real>& sizes = walk.sizes;
  const int64_t columns = walk.heads.count * sizes.padded;
  Transpose(states, sizes.deep, columns, sizes.dstate, walk.tiles.transposed, sizes.wide);
  const auto range = [&ahead, &sizes](int64_t, int64_t) {
    ahead.Ask();
    return Range{0, sizes.dstate};
  };
  ProductOf<Real, Walk::kRows>(
      length, columns, range, group, sizes.deep, walk.tiles.transposed, sizes.wide,
      [](int64_t, int64_t) { return Vector<Real>{}; },
      [&](int64_t l, int64_t p, Vector<Real> sum) { Store(out + l * sizes.wide + p, sum); });
}

// part(l, n) = scale_l sum_p tokens(l, p) states(p, n) of a head, added to dgroup unless it is the first; and
// the sums over n of group(l, n) part(l, n).
template <class Real>
inline void AddGroupGradient(const Layout<Real>& sizes, int64_t length, const Real* tokens, const Real* scale,
                             const Real* states, const Real* group, Real* dgroup, bool is_first,
                             LaneSums<Real> dots, Prefetch& ahead) {
  const auto range = [&ahead, &sizes](int64_t, int64_t) {
    ahead.Ask();
    return Range{0, sizes.headdim};
  };
  dots.Clear(length);
  ProductOf<Real, Walk::kRows>(
      length, sizes.dstate, range, tokens, sizes.wide, states, sizes.deep,
      [](int64_t, int64_t) { return Vector<Real>{}; },
      [&](int64_t l, int64_t n, Vector<Real> sum) {
        const int64_t at = l * sizes.deep + n;
        const Vector<Real> part = sum * scale[l];
        Store(dgroup + at, is_first ? part : Load(dgroup + at) + part);
        dots.Add(l, Load(group + at) * part);
      });
}

// <states, dstates> of a head, in float64: it goes to all tokens alike, and so would what a long sum loses.
template <class Real>
inline Real StatesDot(const Layout<Real>& sizes, const Real* states, const Real* dstates) {
  double total = 0;
  for (int64_t p = 0; p < sizes.headdim; ++p, states += sizes.deep, dstates += sizes.deep) {
    Vector<Real> row = {};
    for (int64_t n = 0; n < sizes.dstate; n += kLanes<Real>) row += Load(states + n) * Load(dstates + n);
    total += static_cast<double>(Sum<Real>(row));
  }
  return static_cast<Real>(total);
}

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_STATES_H
