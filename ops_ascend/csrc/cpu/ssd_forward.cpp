// ssd_forward.cpp -- ssd_scan and ssd_cross_scan forward.
//
// A task walks the tokens chunk by chunk with the states of its heads at hand:
//
//   y      = enter (C S) + weights x          weights(l, s) = (C B^T)(l, s) decay_ls step_s
//   S_next = carry S + B^T (leave step x)     then D x, the sum over directions and silu(z)
//
// C B^T is made once for the heads of a group. The directions of a cross scan follow each other in one task and
// add up in y where its elements are Real, else in memory of the task, rounded once.
#include "ssd_forward_block.h"
#include "ssd_forward_tiles.h"

namespace vmamba2 {
namespace {

// A chunk of a walk of some heads.
struct Place {
  HeadsOfGroup heads;
  int64_t walk, chunk;
};

template <class Real>
class Forward {
 public:
  Forward(const VmSsdCall& call, const VmSsdResults& results)
      : call_(call), results_(results), chunks_(0, 1) {
    SplitHeads();
    if (call.seqlen > 0) {
      chunks_ = Chunks(call.seqlen, ForwardChunkLength(call, call.nheads / call.ngroups,
                                                       results.final_states.data != nullptr));
    }
    const VmTensor& y = results.y;
    const bool whole = call.headdim % kLanes<Real> == 0 && y.strides[3] == 1;
    const bool side_by_side = HeadsPerTile<Real>(call.headdim) == 1 || y.strides[2] == call.headdim;
    // The sum over directions gathers in y if it can; what is gated at once does so on its way there.
    const bool gated = Walks(call) == 1 && call.z.data;
    in_y_ = y.dtype == kDtypeOf<Real> && whole && side_by_side && !gated;
    const int64_t elements = call.batch * call.seqlen * call.nheads * call.headdim;
    goes_past_ = Walks(call) == 1 && GoesPast<Real>(y, call.headdim, elements);
    states_at_once_ =
        chunks_.count == 1 && !call.initial_states.data && AreRows<Real>(results.final_states, call.dstate);
  }

  int Run() {
    // A state read and written, and some thirty tokens before in the same chunk.
    const double of_token = 2.0 * static_cast<double>(call_.headdim * (call_.dstate + 16));
    const double work = static_cast<double>(call_.batch * call_.nheads * Walks(call_)) *
                        static_cast<double>(call_.seqlen) * of_token;
    tasks_ = call_.batch * call_.ngroups * parts_;
    threads_ = ThreadsFor(call_.threads, tasks_, work);
    const int64_t gathered = in_y_ ? 0 : call_.directions ? call_.seqlen : chunks_.length;
    Scratch<ForwardTiles<Real>> scratch(threads_, [&](Cutter& cutter) {
      return ForwardTiles<Real>(cutter, call_, heads_of_part_, chunks_.length, gathered);
    });
    if (!scratch.ok()) return 1;
    ForEachTask(tasks_, threads_, [&](int64_t task, int thread) { RunTask(task, scratch[thread]); });
    return 0;
  }

 private:
  // A group's heads share C B^T, which costs as much as a third of a head: they are split where whole groups would
  // leave threads without work.
  void SplitHeads() {
    const int64_t of_group = call_.nheads / call_.ngroups, groups = call_.batch * call_.ngroups;
    const int64_t tile = HeadsPerTile<Real>(call_.headdim), tiles = (of_group + tile - 1) / tile;
    const int64_t threads = call_.threads > 1 ? call_.threads : 1;
    double least = 0;
    for (int64_t wanted = 1; wanted <= tiles && wanted <= threads; ++wanted) {
      const int64_t tiles_of_part = (tiles + wanted - 1) / wanted;
      const int64_t heads = tiles_of_part * tile < of_group ? tiles_of_part * tile : of_group;
      const int64_t parts = (of_group + heads - 1) / heads, rounds = (groups * parts + threads - 1) / threads;
      const double cost = static_cast<double>(rounds) * (static_cast<double>(heads) + 1.0 / 3);
      if (wanted > 1 && cost >= least) continue;
      least = cost;
      heads_of_part_ = heads;
      parts_ = parts;
    }
  }

  HeadsOfGroup HeadsOf(int64_t task) const {
    const int64_t of_group = call_.nheads / call_.ngroups, part = task % parts_;
    const int64_t group = task / parts_ % call_.ngroups, skipped = part * heads_of_part_;
    const int64_t count = of_group - skipped < heads_of_part_ ? of_group - skipped : heads_of_part_;
    return {task / parts_ / call_.ngroups, group, group * of_group + skipped, count};
  }

  OutputRows<Real> RowsOf(const HeadsOfGroup& heads, const ForwardTiles<Real>& tiles) const {
    if (in_y_) {
      const VmTensor& y = results_.y;
      return {static_cast<Real*>(y.data) + heads.batch * y.strides[0] + heads.first * y.strides[2],
              y.strides[1], y.strides[2], true, true};
    }
    const int64_t padded = Padded<Real>(call_.headdim);
    return {tiles.gathered, heads.count * padded, padded, false, call_.directions > 0};
  }

  void RunTask(int64_t task, ForwardTiles<Real>& tiles) const {
    const HeadsOfGroup heads = HeadsOf(task);
    LoadSkip(heads, tiles);
    for (int64_t walk = 0; walk < Walks(call_); ++walk) {
      if (!states_at_once_) LoadStates(call_, call_.initial_states, heads, tiles.states);
      for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
        RunChunk({heads, walk, chunk}, After(task, walk, chunk), tiles);
      }
    }
    if (results_.final_states.data && !states_at_once_) {
      StoreStates(call_, tiles.states, results_.final_states, heads);
    }
    FinishStores();
  }

  // What this thread does next, as far as that can be told: tasks go to threads in turn.
  Place After(int64_t task, int64_t walk, int64_t chunk) const {
    if (chunk + 1 < chunks_.count) return {HeadsOf(task), walk, chunk + 1};
    if (walk + 1 < Walks(call_)) return {HeadsOf(task), walk + 1, 0};
    return {HeadsOf(task + threads_ < tasks_ ? task + threads_ : task), 0, 0};
  }

  void LoadSkip(const HeadsOfGroup& heads, ForwardTiles<Real>& tiles) const {
    if (!call_.d.data) return;
    const int64_t padded = Padded<Real>(call_.headdim);
    for (int64_t h = 0; h < heads.count; ++h) {
      Real* skip = tiles.skip + h * padded;
      const int64_t offset = (heads.first + h) * call_.d.strides[0];
      const int64_t stride = call_.d_per_channel ? call_.d.strides[1] : 0;
      LoadRow(call_.d, offset, call_.headdim, stride, skip);
      for (int64_t p = call_.headdim; p < padded; ++p) skip[p] = 0;
    }
  }

  void RunChunk(const Place& here, const Place& next, ForwardTiles<Real>& tiles) const {
    const HeadsOfGroup& heads = here.heads;
    const int64_t begin = chunks_.Begin(here.chunk), length = chunks_.Length(here.chunk, call_.seqlen);
    const ChunkTokens tokens(TokenOrder(call_, here.walk), begin, length, tiles.tokens);
    LoadDecays(call_, heads, tokens, begin, length, tiles.decays);
    LoadTokens(call_.b, heads.batch, tokens, begin, length, heads.group, 1, call_.dstate, tiles.b);
    LoadTokens(call_.c, heads.batch, tokens, begin, length, heads.group, 1, call_.dstate, tiles.c);
    const int64_t state_row = Padded<Real>(call_.dstate), row = Padded<Real>(length);
    Transpose(tiles.b, state_row, length, call_.dstate, tiles.bt, row);
    MultiplyLower(length, call_.dstate, tiles.c, state_row, tiles.bt, row, tiles.cb);
    const OutputRows<Real> rows = RowsOf(heads, tiles);
    for (int64_t l = 0; l < length; ++l) {
      tiles.rows[l] = rows.token * (rows.by_token ? tokens.At(begin + l) : l);
    }
    const bool last = here.chunk + 1 == chunks_.count && !results_.final_states.data;
    Prefetch ahead = Ahead(next, heads, length, last, tiles);
    ForEachTile<Real>(heads, call_.headdim, [&](const HeadTile& tile) {
      LoadTokens(call_.x, heads.batch, tokens, begin, length, heads.first + tile.first, tile.count,
                 call_.headdim, tiles.x);
      MultiplyTile(here, tile, rows, length, ahead, tiles);
      if (last) return;
      WeighForStates(tiles.decays, tile, call_.headdim, length, tiles.x, tiles.left);
      if (states_at_once_) {
        StoreStatesOfTile(call_, tiles.decays, heads, tile, length, tiles.b, tiles.left,
                          results_.final_states, [&] { ahead.Ask(); });
        return;
      }
      AdvanceTile(tiles.decays, tile, call_.headdim, call_.dstate, length, tiles.b, state_row, tiles.left,
                  StatesOf(tile, tiles), [&] { ahead.Ask(); });
    });
    const bool ends = here.walk + 1 == Walks(call_);
    if (ends && (call_.z.data || !rows.in_y)) GateAndStore(heads, tokens, begin, length, rows, tiles);
  }

  // The rows of the chunk that comes next, to be asked for block by block.
  Prefetch Ahead(const Place& next, const HeadsOfGroup& heads, int64_t length, bool last,
                 ForwardTiles<Real>& tiles) const {
    const int64_t begin = chunks_.Begin(next.chunk), count = chunks_.Length(next.chunk, call_.seqlen);
    ChunkTokens(TokenOrder(call_, next.walk), begin, count, tiles.next_tokens);
    Prefetch ahead(tiles.next_tokens, count);
    ahead.Add(call_.b, next.heads.batch, next.heads.group, 1, call_.dstate);
    ahead.Add(call_.c, next.heads.batch, next.heads.group, 1, call_.dstate);
    ahead.Add(call_.x, next.heads.batch, next.heads.first, next.heads.count, call_.headdim);
    if (next.walk + 1 == Walks(call_)) {
      ahead.Add(call_.z, next.heads.batch, next.heads.first, next.heads.count, call_.headdim);
    }
    const int64_t panel = kPanel * kLanes<Real>;
    const int64_t panels = (heads.count * Padded<Real>(call_.headdim) + panel - 1) / panel;
    const int64_t rows = length + (last ? 0 : call_.dstate);
    ahead.Spread(panels * ((rows + kBlock - 1) / kBlock));
    return ahead;
  }

  Real* StatesOf(const HeadTile& tile, const ForwardTiles<Real>& tiles) const {
    return tiles.states + tile.first * call_.dstate * Padded<Real>(call_.headdim);
  }

  void MultiplyTile(const Place& here, const HeadTile& tile, const OutputRows<Real>& rows, int64_t length,
                    Prefetch& ahead, ForwardTiles<Real>& tiles) const {
    const ChunkDecays<Real>& decays = tiles.decays;
    const bool first = here.chunk == 0 && !call_.initial_states.data;
    const int64_t row = Padded<Real>(length), weights_head = length * row;
    for (int64_t h = 0; h < tile.count; ++h) {
      const int64_t head = tile.first + h;
      WeighLower(decays, head, length, tiles.cb, tiles.weights + h * weights_head, row,
                 decays.step + head * decays.row);
    }
    const int64_t padded = Padded<Real>(call_.headdim), columns = tile.count * padded;
    const TokenProducts<Real> products{tiles.c,
                                       Padded<Real>(call_.dstate),
                                       first ? nullptr : StatesOf(tile, tiles),
                                       decays.enter + tile.first * decays.row,
                                       tiles.weights,
                                       tiles.x,
                                       length,
                                       call_.dstate,
                                       columns,
                                       decays.row,
                                       weights_head,
                                       row};
    const bool ends = here.walk + 1 == Walks(call_);
    const GatherOutput<Real> gather{rows.base + tile.first * rows.head,
                                    tiles.rows,
                                    tiles.x,
                                    ends && call_.d.data ? tiles.skip + tile.first * padded : nullptr,
                                    columns,
                                    length,
                                    ends ? Real(1) / static_cast<Real>(Walks(call_)) : Real(1),
                                    here.walk > 0,
                                    in_y_ && goes_past_,
                                    &ahead};
    MultiplyTokens(products, tile.count, gather);
  }

  // What is left to do on whole rows: silu(z), and rounding to the dtype of y.
  void GateAndStore(const HeadsOfGroup& heads, const ChunkTokens& tokens, int64_t begin, int64_t length,
                    const OutputRows<Real>& rows, ForwardTiles<Real>& tiles) const {
    const VmTensor &y = results_.y, &z = call_.z;
    WithElement(y.dtype, [&](auto* type) {
      using Element = std::remove_pointer_t<decltype(type)>;
      for (int64_t l = 0; l < length; ++l) {
        for (int64_t h = 0; h < heads.count; ++h) {
          const int64_t token = tokens.At(begin + l), head = heads.first + h;
          Real* row = rows.base + tiles.rows[l] + h * rows.head;
          Element* to = static_cast<Element*>(y.data) + heads.batch * y.strides[0] + token * y.strides[1] +
                        head * y.strides[2];
          if (z.data) {
            GateRow(static_cast<const Element*>(z.data) + heads.batch * z.strides[0] + token * z.strides[1] +
                        head * z.strides[2],
                    row, tiles.gate);
          }
          if (!rows.in_y) StoreOut(row, to);
        }
      }
    });
  }

  template <class Element>
  void GateRow(const Element* z, Real* row, Real* gate) const {
    constexpr int64_t kStep = kLanes<Real>;
    const bool whole = call_.headdim % kStep == 0 && call_.z.strides[3] == 1;
    for (int64_t p = 0; !whole && p < call_.headdim; ++p) {
      gate[p] = static_cast<Real>(Widen(z[p * call_.z.strides[3]]));
    }
    for (int64_t p = 0; p < call_.headdim; p += kStep) {
      const Vector<Real> value = whole ? LoadElements<Real>(z + p) : Load(gate + p);
      Store(row + p, Load(row + p) * (value * Sigmoid<Real>(value)));
    }
  }

  template <class Element>
  void StoreOut(const Real* row, Element* to) const {
    constexpr int64_t kStep = kLanes<Real>;
    const int64_t stride = results_.y.strides[3];
    if (call_.headdim % kStep != 0 || stride != 1) {
      for (int64_t p = 0; p < call_.headdim; ++p) to[p * stride] = Narrowed<Element, Real>::From(row[p]);
      return;
    }
    for (int64_t p = 0; p < call_.headdim; p += kStep) {
      if constexpr (std::is_same_v<Element, Real>) {
        if (goes_past_) {
          StorePast(to + p, Load(row + p));
          continue;
        }
      }
      StoreElements<Real>(to + p, Load(row + p));
    }
  }

  const VmSsdCall& call_;
  const VmSsdResults& results_;
  Chunks chunks_;
  bool in_y_, goes_past_;
  bool states_at_once_;  // the states after the only chunk, as the caller has them
  int64_t heads_of_part_ = 1, parts_ = 1, tasks_ = 0;
  int threads_ = 1;
};

}  // namespace
}  // namespace vmamba2

int vmamba2_cpu_ssd_forward(const VmSsdCall* call, const VmSsdResults* results) {
  using namespace vmamba2;
  if (call->x.dtype == kVmFloat64) return Forward<double>(*call, *results).Run();
  return Forward<float>(*call, *results).Run();
}
