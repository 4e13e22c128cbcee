// ssd_backward_tasks.h -- the Mamba-2 backward cut into tasks, and their results put together.
//
// A task is the heads of a group of one batch entry, taken in blocks whose tiles fit the L2 cache, each block
// in all directions. It first walks the states to the start of every chunk, then the chunks from the last to
// the first with the gradient of the state. dB and dC of the group add up over blocks and directions, and so
// do dx and ddt over directions: in the caller's tensor where that holds Real, else in a buffer of the task.
//
// Heads of a group go to several tasks only when there are fewer groups than threads. Otherwise the results
// are the same to the bit for any number of threads; they always are for the same number. dA, dD and ddt_bias
// are sums over the batch of float64 sums over tokens, added in order.
#ifndef VMAMBA2_CPU_SSD_BACKWARD_TASKS_H
#define VMAMBA2_CPU_SSD_BACKWARD_TASKS_H

#include <algorithm>

#include "ssd_backward_chunk.h"

namespace vmamba2 {
namespace ssd_backward {
// Columns of a block of heads: its tiles and states then take half a megabyte or so.
constexpr int64_t kBlockColumns = 256;
constexpr int64_t kLongestChunk = 64;

inline int64_t DivideUp(int64_t size, int64_t parts) { return (size + parts - 1) / parts; }

// How the work is cut.
struct Plan {
  int64_t heads_of_group, parts, tasks;
  int64_t heads_of_block;

  template <class Real>
  static Plan For(const VmSsdCall& call) {
    Plan plan;
    plan.heads_of_group = call.ngroups ? call.nheads / call.ngroups : 0;
    const int64_t groups = std::max<int64_t>(call.batch * call.ngroups, 1);
    plan.parts = std::max<int64_t>(std::min(plan.heads_of_group, DivideUp(call.threads, groups)), 1);
    plan.tasks = call.batch * call.ngroups * plan.parts;
    const int64_t heads = DivideUp(plan.heads_of_group, plan.parts);
    const int64_t blocks = std::max<int64_t>(DivideUp(heads * Padded<Real>(call.headdim), kBlockColumns), 1);
    plan.heads_of_block =
        std::max<int64_t>(DivideUp(heads, std::min(blocks, std::max<int64_t>(heads, 1))), 1);
    return plan;
  }
};

inline double MultiplyAdds(const VmSsdCall& call, const Chunks& chunks) {
  const double tokens = static_cast<double>(call.batch * Walks(call) * call.seqlen);
  const double P = static_cast<double>(call.headdim), N = static_cast<double>(call.dstate);
  const double Q = static_cast<double>(chunks.length);
  const double states = chunks.count > 1 || call.initial_states.data ? 5 * N * P : 0;
  return tokens * (static_cast<double>(call.nheads) * (states + P * Q) +
                   1.5 * static_cast<double>(call.ngroups) * N * Q);
}

// Sums over the tokens of a batch entry: (batch, nheads) and, of dD, (batch, nheads, headdim).
struct ParameterSums {
  double *dA, *dbias, *dD;

  ParameterSums(Cutter& cutter, const VmSsdCall& call)
      : dA(cutter.Cut<double>(call.batch * call.nheads)),
        dbias(cutter.Cut<double>(call.batch * call.nheads)),
        dD(cutter.Cut<double>(call.d.data ? call.batch * call.nheads * call.headdim : 0)) {}
};

// What all tasks share: the sums for parameters, and dB and dC of each part of a group, (parts, B, L, G, N).
template <class Real>
struct SharedSums {
  ParameterSums parameters;
  Real *db, *dc;

  SharedSums(Cutter& cutter, const VmSsdCall& call, const Plan& plan)
      : parameters(cutter, call),
        db(cutter.Cut<Real>(plan.parts > 1 ? plan.parts * Size(call) : 0)),
        dc(cutter.Cut<Real>(plan.parts > 1 ? plan.parts * Size(call) : 0)) {}

  static int64_t Size(const VmSsdCall& call) { return call.batch * call.seqlen * call.ngroups * call.dstate; }

  Target OfPart(Real* sums, const VmSsdCall& call, const HeadsOfGroup& heads, int64_t part) const {
    const int64_t row = call.ngroups * call.dstate;
    return {VmTensor{sums + part * Size(call), kDtypeOf<Real>, {call.seqlen * row, row, call.dstate, 1}},
            heads.batch, heads.group, false, false};
  }
};

// Buffers of a task for gradients that add up but whose tensor does not hold Real, and for y; null otherwise.
template <class Real>
struct Buffers {
  Real *dx, *ddt, *db, *dc, *y;

  Buffers(Cutter& cutter, const VmSsdCall& call, const Plan& plan, const Layout<Real>& sizes) {
    const bool walks = Walks(call) > 1, narrow = call.x.dtype != kDtypeOf<Real>;
    const bool blocks = plan.heads_of_block * plan.parts < plan.heads_of_group;
    const auto cut = [&](bool needed, int64_t row) {
      return needed ? cutter.Cut<Real>(call.seqlen * row) : nullptr;
    };
    dx = cut(walks && narrow, sizes.wide);
    ddt = cut(walks && call.dt.dtype != kDtypeOf<Real>, sizes.heads);
    db = cut((walks || blocks) && narrow && plan.parts == 1, sizes.deep);
    dc = cut((walks || blocks) && narrow && plan.parts == 1, sizes.deep);
    y = cut(walks && call.z.data, sizes.wide);
  }
};

template <class Real>
struct ThreadPieces {
  Tiles<Real> tiles;
  Buffers<Real> buffers;
};

template <class Real>
inline Target To(Real* buffer, std::initializer_list<int64_t> strides, const VmTensor& tensor, int64_t batch,
                 int64_t first, bool past) {
  if (!buffer) return {tensor, batch, first, false, past};
  Target target{VmTensor{buffer, kDtypeOf<Real>, {}}, 0, 0, false, false};
  std::copy(strides.begin(), strides.end(), target.tensor.strides);
  return target;
}

template <class Real>
class Backward {
 public:
  Backward(const VmSsdCall& call, const VmSsdGradients& gradients)
      : call_(call),
        gradients_(gradients),
        plan_(Plan::For<Real>(call)),
        chunks_(call.seqlen, kLongestChunk),
        sizes_(call, plan_.heads_of_block, std::max<int64_t>(chunks_.length, 1)) {}

  int Run() {
    Cutter counter(nullptr);
    SharedSums<Real>(counter, call_, plan_);
    Block memory;
    char* block = memory.Get(counter.used() + kCacheLine);
    if (!block) return 1;
    Cutter cutter(block);
    const SharedSums<Real> shared(cutter, call_, plan_);
    const int threads = ThreadsFor(call_.threads, plan_.tasks, MultiplyAdds(call_, chunks_));
    {
      Scratch<ThreadPieces<Real>> scratch(threads, [&](Cutter& pieces) {
        Tiles<Real> tiles(pieces, sizes_, std::max<int64_t>(chunks_.count, 1), call_.z.data != nullptr);
        return ThreadPieces<Real>{tiles, Buffers<Real>(pieces, call_, plan_, sizes_)};
      });
      if (!scratch.ok()) return 1;
      ForEachTask(plan_.tasks, threads,
                  [&](int64_t task, int thread) { RunTask(task, task + threads, shared, scratch[thread]); });
    }
    if (plan_.parts > 1) AddParts(shared, threads);
    StoreParameters(shared.parameters);
    return 0;
  }

 private:
  HeadsOfGroup HeadsOf(int64_t task) const {
    const int64_t part = task % plan_.parts, group = task / plan_.parts % call_.ngroups;
    const int64_t first = plan_.heads_of_group * part / plan_.parts;
    const int64_t end = plan_.heads_of_group * (part + 1) / plan_.parts;
    return {task / plan_.parts / call_.ngroups, group, group * plan_.heads_of_group + first, end - first};
  }

  HeadsOfGroup BlockOf(const HeadsOfGroup& all, int64_t first) const {
    return {all.batch, all.group, all.first + first, std::min(plan_.heads_of_block, all.count - first)};
  }

  // `next_task` is what this thread probably does next.
  void RunTask(int64_t task, int64_t next_task, const SharedSums<Real>& shared,
               ThreadPieces<Real>& pieces) const {
    const HeadsOfGroup all = HeadsOf(task), next = HeadsOf(std::min(next_task, plan_.tasks - 1));
    const Buffers<Real>& buffers = pieces.buffers;
    const int64_t deep = sizes_.deep, size = SharedSums<Real>::Size(call_);
    const bool once = Walks(call_) == 1 && plan_.heads_of_block * plan_.parts >= plan_.heads_of_group;
    const auto target = [&](Real* buffer, const VmTensor& tensor) {
      const bool past = once && GoesPast<Real>(tensor, call_.dstate, size);
      return To(buffer, {0, deep, deep, 1}, tensor, all.batch, all.group, past);
    };
    Target db = target(buffers.db, gradients_.db), dc = target(buffers.dc, gradients_.dc);
    if (plan_.parts > 1) {
      db = shared.OfPart(shared.db, call_, all, task % plan_.parts);
      dc = shared.OfPart(shared.dc, call_, all, task % plan_.parts);
    }
    for (int64_t head = 0; head < all.count; head += plan_.heads_of_block) {
      const int64_t next_head = head + plan_.heads_of_block;
      db.add = dc.add = head > 0;
      RunBlock(BlockOf(all, head), next_head < all.count ? BlockOf(all, next_head) : BlockOf(next, 0), db, dc,
               shared.parameters, pieces);
    }
    const TokenRows rows{all.batch, nullptr, call_.seqlen, all.group, 1, call_.dstate};
    if (buffers.db) StoreRows(buffers.db, deep, gradients_.db, rows);
    if (buffers.dc) StoreRows(buffers.dc, deep, gradients_.dc, rows);
    FinishStores();
  }

  void RunBlock(const HeadsOfGroup& heads, const HeadsOfGroup& next, const Target& db, const Target& dc,
                const ParameterSums& sums, ThreadPieces<Real>& pieces) const {
    Tiles<Real>& tiles = pieces.tiles;
    const Buffers<Real>& buffers = pieces.buffers;
    const int64_t wide = sizes_.wide, walks = Walks(call_);
    const bool past = walks == 1 && GoesPast<Real>(gradients_.dx, call_.headdim,
                                                   call_.batch * call_.seqlen * call_.nheads * call_.headdim);
    LoadSkip(heads, tiles);
    std::fill_n(tiles.dA, heads.count, 0.0);
    std::fill_n(tiles.dbias, heads.count, 0.0);
    std::fill_n(tiles.dD, heads.count * sizes_.padded, 0.0);
    const Target dx =
        To(buffers.dx, {0, wide, sizes_.padded, 1}, gradients_.dx, heads.batch, heads.first, past);
    const Target ddt = To(buffers.ddt, {0, sizes_.heads, 1}, gradients_.ddt, heads.batch, heads.first, false);
    TokenWalk<Real> walk{call_, gradients_,           sizes_, chunks_, tiles, heads, TokenOrder(call_, 0),
                         heads, TokenOrder(call_, 0), dx,     ddt,     db,    dc,    buffers.y,
                         false};
    for (int64_t direction = 0; direction < walks; ++direction) {
      const bool last = direction + 1 == walks;
      walk.order = TokenOrder(call_, direction);
      walk.next_order = TokenOrder(call_, last ? 0 : direction + 1);
      walk.next_heads = last ? next : heads;
      WalkBackward(walk);
      walk.dx.add = walk.ddt.add = walk.db.add = walk.dc.add = walk.add_y = true;
    }
    const TokenRows rows{heads.batch, nullptr, call_.seqlen, heads.first, heads.count, call_.headdim};
    if (buffers.dx) StoreRows(buffers.dx, wide, gradients_.dx, rows);
    if (buffers.ddt) StoreBufferedSteps(heads, buffers.ddt);
    if (walk.Gated() && buffers.y) GateGradient(walk, rows, buffers.y);
    if (call_.z.data && !walk.HasDy()) ClearGate(rows, tiles);
    StoreSums(heads, tiles, sums);
  }

  void StoreRows(const Real* rows, int64_t ld, const VmTensor& tensor, const TokenRows& to) const {
    for (int64_t l = 0; l < to.length; ++l) StoreTileRow(rows + l * ld, tensor, to, l);
  }

  void LoadSkip(const HeadsOfGroup& heads, Tiles<Real>& tiles) const {
    if (!call_.d.data) return;
    const VmTensor& D = call_.d;
    for (int64_t h = 0; h < heads.count; ++h) {
      Real* row = tiles.D + h * sizes_.padded;
      std::memset(row, 0, static_cast<size_t>(sizes_.padded) * sizeof(Real));
      const int64_t head = (heads.first + h) * D.strides[0];
      LoadRow(D, head, sizes_.headdim, call_.d_per_channel ? D.strides[1] : 0, row);
    }
  }

  void StoreBufferedSteps(const HeadsOfGroup& heads, const Real* buffer) const {
    const VmTensor& ddt = gradients_.ddt;
    for (int64_t l = 0; l < call_.seqlen; ++l) {
      const int64_t offset = heads.batch * ddt.strides[0] + l * ddt.strides[1] + heads.first * ddt.strides[2];
      StoreRow(buffer + l * sizes_.heads, heads.count, ddt, offset, ddt.strides[2]);
    }
  }

  void ClearGate(const TokenRows& rows, Tiles<Real>& tiles) const {
    std::fill_n(tiles.row, sizes_.wide, Real(0));
    for (int64_t l = 0; l < rows.length; ++l) StoreTileRow(tiles.row, gradients_.dz, rows, l);
  }

  void StoreSums(const HeadsOfGroup& heads, const Tiles<Real>& tiles, const ParameterSums& sums) const {
    const int64_t first = heads.batch * call_.nheads + heads.first;
    std::copy_n(tiles.dA, heads.count, sums.dA + first);
    std::copy_n(tiles.dbias, heads.count, sums.dbias + first);
    if (!call_.d.data) return;
    for (int64_t h = 0; h < heads.count; ++h)
      std::copy_n(tiles.dD + h * sizes_.padded, sizes_.headdim, sums.dD + (first + h) * sizes_.headdim);
  }

  void AddParts(const SharedSums<Real>& shared, int threads) const {
    const int64_t N = call_.dstate, size = shared.Size(call_);
    ForEachTask(call_.batch * call_.ngroups, threads, [&](int64_t task, int) {
      const int64_t batch = task / call_.ngroups, group = task % call_.ngroups;
      for (int64_t l = 0; l < call_.seqlen; ++l) {
        const int64_t row = ((batch * call_.seqlen + l) * call_.ngroups + group) * N;
        for (const auto& [sums, tensor] : {std::pair<Real*, const VmTensor&>(shared.db, gradients_.db),
                                           std::pair<Real*, const VmTensor&>(shared.dc, gradients_.dc)}) {
          for (int64_t part = 1; part < plan_.parts; ++part) {
            for (int64_t n = 0; n < N; ++n) sums[row + n] += sums[part * size + row + n];
          }
          const int64_t offset =
              batch * tensor.strides[0] + l * tensor.strides[1] + group * tensor.strides[2];
          StoreRow(sums + row, N, tensor, offset, tensor.strides[3]);
        }
      }
    });
  }

  void StoreParameters(const ParameterSums& sums) const {
    const int64_t heads = call_.nheads, channels = call_.headdim;
    const auto total = [&](const double* values, int64_t row, int64_t at) {
      double sum = 0;
      for (int64_t batch = 0; batch < call_.batch; ++batch) sum += values[batch * row + at];
      return sum;
    };
    for (int64_t head = 0; head < heads; ++head) {
      const double dA = total(sums.dA, heads, head), dbias = total(sums.dbias, heads, head);
      StoreRow(&dA, 1, gradients_.da, head * gradients_.da.strides[0], 1);
      if (call_.dt_bias.data)
        StoreRow(&dbias, 1, gradients_.ddt_bias, head * gradients_.ddt_bias.strides[0], 1);
      double of_head = 0;
      for (int64_t p = 0; call_.d.data && p < channels; ++p) {
        const double dD = total(sums.dD, heads * channels, head * channels + p);
        const VmTensor& out = gradients_.dd;
        of_head += dD;
        if (call_.d_per_channel) StoreRow(&dD, 1, out, head * out.strides[0] + p * out.strides[1], 1);
      }
      if (call_.d.data && !call_.d_per_channel)
        StoreRow(&of_head, 1, gradients_.dd, head * gradients_.dd.strides[0], 1);
    }
  }

  const VmSsdCall& call_;
  const VmSsdGradients& gradients_;
  const Plan plan_;
  const Chunks chunks_;
  const Layout<Real> sizes_;
};

}  // namespace ssd_backward
}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_BACKWARD_TASKS_H
