// selective_backward.cpp -- gradients of the Mamba-1 scan; see selective_scan.h.
//
// Nothing comes from the forward call but its inputs. When a task's history, the decays and states of all its
// tokens, fits a good part of the L2 cache, the task walks forward over all tiles and then back. Else it
// first runs the states alone and keeps them where tiles begin, and on its way back walks forward over each
// tile once more.
//
// Sums over the tokens of a tile are in Real, those over tiles in double; other sums: selective_sums.h.
#include "selective_scan.h"
#include "selective_states.h"
#include "selective_sums.h"

namespace vmamba2 {
namespace {

// One vector for each token is 1 KiB: a tile's history of 8 states and its dB and dC stay in L1.
template <class Real>
constexpr int64_t kTokens = std::max<int64_t>(1024 / VM_VECTOR_BYTES, kLanes<Real>);

constexpr int64_t kHistoryBytes = int64_t{1} << 19;

// kept_tokens: of a block, those whose history is kept: all, or 0, one tile's at a time.
struct TaskSizes {
  int64_t blocks, dstate, tiles, kept_tokens;
};

template <class Real>
struct BackwardTiles {
  Real *b, *c;                     // (kTokens, Padded(N))
  Real *db, *dc;                   // (kTokens, N, kLanes)
  Real* history;                   // (blocks, kept tokens, N, 2, kLanes), or one tile of kMostStates
  Real *step, *slope, *u, *dout;   // (blocks, kept tokens, kLanes), or one tile
  Real *z, *y, *dproduct, *dstep;  // (kTokens, kLanes)
  Real *a, *rates, *carry;         // (blocks, N, kLanes)
  Real* states;                    // before tiles, (blocks, tiles, N, kLanes), or (blocks, N, kLanes)
  Real* after;                     // (N, kLanes), of no use
  double *da, *dd, *ddelta_bias;   // (blocks, N or 1, kLanes)

  BackwardTiles(Cutter& cutter, const TaskSizes& sizes) {
    constexpr int64_t kStep = kLanes<Real>, kTile = kTokens<Real> * kStep;
    const int64_t all = sizes.blocks * sizes.dstate * kStep;
    const int64_t kept = sizes.blocks * sizes.kept_tokens * kStep;
    b = cutter.Cut<Real>(kTokens<Real> * Padded<Real>(sizes.dstate));
    c = cutter.Cut<Real>(kTokens<Real> * Padded<Real>(sizes.dstate));
    db = cutter.Cut<Real>(kTile * sizes.dstate);
    dc = cutter.Cut<Real>(kTile * sizes.dstate);
    history = cutter.Cut<Real>(2 * (kept ? kept * sizes.dstate : kTile * kMostStates));
    for (Real** array : {&step, &slope, &u, &dout}) *array = cutter.Cut<Real>(kept ? kept : kTile);
    for (Real** array : {&z, &y, &dproduct, &dstep}) *array = cutter.Cut<Real>(kTile);
    for (Real** array : {&a, &rates, &carry}) *array = cutter.Cut<Real>(all);
    states = cutter.Cut<Real>(kept ? all : all * sizes.tiles);
    after = cutter.Cut<Real>(sizes.dstate * kStep);
    da = cutter.Cut<double>(all);
    dd = cutter.Cut<double>(sizes.blocks * kStep);
    ddelta_bias = cutter.Cut<double>(sizes.blocks * kStep);
  }
};

template <class Real>
class BackwardTask {
 public:
  BackwardTask(const VmSelectiveCall& call, const VmSelectiveGradients& gradients,
               const SelectiveSplit& split, const TaskSizes& sizes, const SelectiveTask& task,
               BackwardTiles<Real>& tiles, PartialSums<Real>& sums)
      : call_(call),
        gradients_(gradients),
        split_(split),
        sizes_(sizes),
        task_(task),
        tiles_(tiles),
        sums_(sums),
        keep_(sizes.kept_tokens > 0),
        each_(call.dstate * kStep),
        row_(Padded<Real>(call.dstate)) {}

  void Run() {
    Start();
    if (keep_) {
      for (int64_t tile = 0; tile < sizes_.tiles; ++tile) RecordTile(tile);
      for (int64_t tile = sizes_.tiles - 1; tile >= 0; --tile) ReverseTile(tile);
    } else {
      for (int64_t tile = 0; tile < sizes_.tiles - 1; ++tile) AdvanceTile(tile);
      for (int64_t tile = sizes_.tiles - 1; tile >= 0; --tile) RecordAndReverseTile(tile);
    }
    Finish();
  }

 private:
  static constexpr int64_t kStep = kLanes<Real>;

  ChannelBlock Channels(int64_t block) const { return split_.Block(task_.group, task_.first + block); }

  TokenTile Tile(int64_t index) const {
    const int64_t begin = index * kTokens<Real>;
    return {begin, std::min(kTokens<Real>, call_.seqlen - begin)};
  }

  TileShape Shape(const VmTensor& tensor, int64_t block, const TokenTile& tile) const {
    return ChannelsOf(tensor, task_.batch, Channels(block), tile);
  }

  // ---- Where a block's arrays are.

  int64_t KeptToken(int64_t block, const TokenTile& tile) const {
    return keep_ ? block * sizes_.kept_tokens + tile.begin : 0;
  }

  TokenArrays<Real> Arrays(int64_t block, const TokenTile& tile) const {
    const int64_t at = KeptToken(block, tile) * kStep;
    return {tiles_.step + at, call_.delta_softplus ? tiles_.slope + at : nullptr,
            tiles_.u + at,    tiles_.dout + at,
            tiles_.y,         tiles_.dproduct,
            tiles_.dstep};
  }

  // Of kStates states from n on. A single tile's has no more than those.
  History<Real> HistoryOf(int64_t block, const TokenTile& tile, int64_t n, int64_t states) const {
    if (!keep_) return {tiles_.history, states};
    return {tiles_.history + (KeptToken(block, tile) * call_.dstate + n) * 2 * kStep, call_.dstate};
  }

  Real* States(int64_t block, int64_t tile) const {
    return tiles_.states + (keep_ ? block : block * sizes_.tiles + tile) * each_;
  }

  // ---- What comes next: the block after this one in a walk over tiles, which `step` leads from tile to
  // tile.

  template <size_t kCount>
  Prefetcher Ahead(int64_t block, int64_t tile, int64_t step,
                   const VmTensor* const (&tensors)[kCount]) const {
    Prefetcher ahead;
    const bool last = block + 1 == task_.blocks;
    const int64_t next = last ? tile + step : tile;
    if (next < 0 || next >= sizes_.tiles) return ahead;
    TokenTile tokens = Tile(next);
    for (const VmTensor* tensor : tensors) {
      // Rows of tokens: the line of the first was there for the tile before, the line of the last was not.
      const bool end = step > 0 && tensor->strides[2] == 1;
      const TokenTile reach = end ? TokenTile{tokens.begin + tokens.tokens - 1, 1} : tokens;
      ahead.Add(*tensor, Shape(*tensor, last ? 0 : block + 1, reach));
    }
    return ahead;
  }

  // ---- The passes.

  void Start() {
    for (int64_t i = 0; i < task_.blocks; ++i) {
      const ChannelBlock channels = Channels(i);
      LoadTile(call_.a, StatesOf(call_.a, channels, call_.dstate), tiles_.a + i * each_, kStep);
      LoadDecayRates(call_, channels, tiles_.rates + i * each_);
      if (sizes_.tiles > 0) Fill(States(i, 0), each_, Real(0));
      const VmTensor& dlast = gradients_.dlast_state;
      if (dlast.data) {
        LoadTile(dlast, Shape(dlast, i, {0, call_.dstate}), tiles_.carry + i * each_, kStep);
      } else {
        Fill(tiles_.carry + i * each_, each_, Real(0));
      }
    }
    Fill(tiles_.da, task_.blocks * each_, 0.0);
    Fill(tiles_.dd, task_.blocks * kStep, 0.0);
    Fill(tiles_.ddelta_bias, task_.blocks * kStep, 0.0);
  }

  void AdvanceTile(int64_t index) {
    const TokenTile tile = Tile(index);
    LoadGroup(call_.b, task_, call_.dstate, tile, tiles_.b);
    for (int64_t i = 0; i < task_.blocks; ++i) {
      TokenArrays<Real> arrays = Arrays(i, tile);
      arrays.slope = nullptr;
      LoadInputs(i, tile, arrays);
      Prefetcher ahead = Ahead(i, index, 1, {&call_.delta, &call_.u});
      ForStateBlocks(call_.dstate, [&](auto count, int64_t n) {
        AdvanceStates<Real, decltype(count)::value>(tile.tokens, arrays, tiles_.rates + i * each_ + n * kStep,
                                                    tiles_.b + n, row_, States(i, index) + n * kStep,
                                                    States(i, index + 1) + n * kStep, ahead);
      });
    }
  }

  void RecordTile(int64_t index) {
    const TokenTile tile = Tile(index);
    StartSums(tile, tiles_.dc);
    for (int64_t i = 0; i < task_.blocks; ++i) {
      LoadInputs(i, tile, Arrays(i, tile));
      LoadOutputGradients(i, tile);
      Prefetcher ahead =
          Ahead(i, index, 1, {&call_.delta, &call_.u, &call_.z, &gradients_.dy, &gradients_.dz});
      ForStateBlocks(call_.dstate, [&](auto count, int64_t n) { Record(count, n, i, index, tile, ahead); });
      StoreGateGradient(i, tile);
    }
    FinishSums(tile, tiles_.dc, sums_.dc);
  }

  void ReverseTile(int64_t index) {
    const TokenTile tile = Tile(index);
    StartSums(tile, tiles_.db);
    for (int64_t i = 0; i < task_.blocks; ++i) {
      Fill(tiles_.dproduct, tile.tokens * kStep, Real(0));
      Fill(tiles_.dstep, tile.tokens * kStep, Real(0));
      Prefetcher ahead = Ahead(i, index, -1, {&gradients_.du, &gradients_.ddelta});
      ForStateBlocks(call_.dstate, [&](auto count, int64_t n) { Reverse(count, n, i, tile, ahead); });
      StoreTokenGradients(i, tile);
    }
    FinishSums(tile, tiles_.db, sums_.db);
  }

  void RecordAndReverseTile(int64_t index) {
    const TokenTile tile = Tile(index);
    StartSums(tile, tiles_.db);
    StartSums(tile, tiles_.dc);
    for (int64_t i = 0; i < task_.blocks; ++i) {
      LoadInputs(i, tile, Arrays(i, tile));
      LoadOutputGradients(i, tile);
      Fill(tiles_.dproduct, tile.tokens * kStep, Real(0));
      Fill(tiles_.dstep, tile.tokens * kStep, Real(0));
      Prefetcher ahead = Ahead(i, index, -1,
                               {&call_.delta, &call_.u, &call_.z, &gradients_.dy, &gradients_.du,
                                &gradients_.ddelta, &gradients_.dz});
      ForStateBlocks(call_.dstate, [&](auto count, int64_t n) {
        Record(count, n, i, index, tile, ahead);
        Reverse(count, n, i, tile, ahead);
      });
      StoreGateGradient(i, tile);
      StoreTokenGradients(i, tile);
    }
    FinishSums(tile, tiles_.dc, sums_.dc);
    FinishSums(tile, tiles_.db, sums_.db);
  }

  // ---- A block's tile.

  template <class Count>
  void Record(Count, int64_t n, int64_t block, int64_t index, const TokenTile& tile, Prefetcher& ahead) {
    const auto record =
        call_.z.data ? RecordStates<Real, Count::value, true> : RecordStates<Real, Count::value, false>;
    Real* before = States(block, index) + n * kStep;
    record(tile.tokens, call_.dstate, Arrays(block, tile), tiles_.rates + block * each_ + n * kStep,
           tiles_.b + n, tiles_.c + n, row_, before, keep_ ? before : tiles_.after,
           HistoryOf(block, tile, n, Count::value), tiles_.dc + n * kStep, ahead);
  }

  template <class Count>
  void Reverse(Count, int64_t n, int64_t block, const TokenTile& tile, Prefetcher& ahead) {
    const int64_t at = block * each_ + n * kStep;
    ReverseStates<Real, Count::value>(tile.tokens, call_.dstate, Arrays(block, tile), tiles_.a + at,
                                      tiles_.b + n, tiles_.c + n, row_,
                                      HistoryOf(block, tile, n, Count::value), tiles_.carry + at,
                                      tiles_.db + n * kStep, tiles_.da + at, ahead);
  }

  void StartSums(const TokenTile& tile, Real* sums) {
    LoadGroup(call_.b, task_, call_.dstate, tile, tiles_.b);
    LoadGroup(call_.c, task_, call_.dstate, tile, tiles_.c);
    Fill(sums, RoundUp(tile.tokens, kStep) * each_, Real(0));
  }

  void FinishSums(const TokenTile& tile, const Real* sums, Real* rows) {
    const int64_t at = split_.Index(task_) * call_.dstate * sums_.row + tile.begin;
    SumLanes(sums, tile.tokens, call_.dstate, rows + at, sums_.row);
  }

  void LoadInputs(int64_t block, const TokenTile& tile, const TokenArrays<Real>& arrays) const {
    const ChannelBlock channels = Channels(block);
    LoadSteps(call_, task_.batch, channels, tile, LoadParameter<Real>(call_.delta_bias, channels),
              arrays.step, arrays.slope);
    LoadTile(call_.u, Shape(call_.u, block, tile), arrays.u, kStep);
  }

  // dout; with a gate also what dz is times y, in z.
  void LoadOutputGradients(int64_t block, const TokenTile& tile) {
    const TokenArrays<Real> arrays = Arrays(block, tile);
    const VmTensor& dy = gradients_.dy;
    if (dy.data) {
      LoadTile(dy, Shape(dy, block, tile), arrays.dout, kStep);
    } else {
      Fill(arrays.dout, tile.tokens * kStep, Real(0));
    }
    if (!call_.z.data) return;
    LoadTile(call_.z, Shape(call_.z, block, tile), tiles_.z, kStep);
    for (int64_t at = 0; at < tile.tokens * kStep; at += kStep) {
      const Vector<Real> z = Load(tiles_.z + at), sigmoid = Sigmoid<Real>(z), dgated = Load(arrays.dout + at);
      Store(arrays.dout + at, dgated * (z * sigmoid));
      Store(tiles_.z + at, dgated * (sigmoid * (Real(1) + z * (Real(1) - sigmoid))));
      Store(tiles_.y + at, Vector<Real>{});
    }
  }

  void StoreGateGradient(int64_t block, const TokenTile& tile) {
    if (!call_.z.data) return;
    const TokenArrays<Real> arrays = Arrays(block, tile);
    const Vector<Real> skip = LoadParameter<Real>(call_.d, Channels(block));
    for (int64_t at = 0; at < tile.tokens * kStep; at += kStep) {
      Vector<Real> y = Load(tiles_.y + at);
      if (call_.d.data) y += skip * Load(arrays.u + at);
      Store(tiles_.z + at, Load(tiles_.z + at) * y);
    }
    StoreTile(tiles_.z, gradients_.dz, Shape(gradients_.dz, block, tile));
  }

  void StoreTokenGradients(int64_t block, const TokenTile& tile) {
    const TokenArrays<Real> arrays = Arrays(block, tile);
    const Vector<Real> skip = LoadParameter<Real>(call_.d, Channels(block));
    Vector<Real> dd = {}, dbias = {};
    for (int64_t at = 0; at < tile.tokens * kStep; at += kStep) {
      const Vector<Real> u = Load(arrays.u + at), dout = Load(arrays.dout + at);
      const Vector<Real> dproduct = Load(arrays.dproduct + at);
      Vector<Real> ddelta = Load(arrays.dstep + at) + dproduct * u;
      if (arrays.slope) ddelta *= Load(arrays.slope + at);
      Vector<Real> du = dproduct * Load(arrays.step + at);
      if (call_.d.data) du += dout * skip;
      Store(arrays.dproduct + at, du);
      Store(arrays.dstep + at, ddelta);
      dd += dout * u;
      dbias += ddelta;
    }
    AddWide<Real>(tiles_.dd + block * kStep, dd);
    AddWide<Real>(tiles_.ddelta_bias + block * kStep, dbias);
    StoreTile(arrays.dproduct, gradients_.du, Shape(gradients_.du, block, tile));
    StoreTile(arrays.dstep, gradients_.ddelta, Shape(gradients_.ddelta, block, tile));
  }

  void Finish() {
    const int64_t first = (task_.batch * call_.ngroups + task_.group) * split_.blocks() + task_.first;
    Narrow(tiles_.da, task_.blocks * each_, sums_.da + first * each_);
    Narrow(tiles_.dd, task_.blocks * kStep, sums_.dd + first * kStep);
    Narrow(tiles_.ddelta_bias, task_.blocks * kStep, sums_.ddelta_bias + first * kStep);
  }

  const VmSelectiveCall& call_;
  const VmSelectiveGradients& gradients_;
  const SelectiveSplit& split_;
  const TaskSizes& sizes_;
  const SelectiveTask task_;
  BackwardTiles<Real>& tiles_;
  PartialSums<Real>& sums_;
  const bool keep_;
  const int64_t each_;  // elements of a block's states
  const int64_t row_;   // of b and c
};

// Blocks of a task whose history may be kept, 0 when not even one fits.
template <class Real>
int64_t BlocksKept(const VmSelectiveCall& call) {
  const int64_t each = call.seqlen * (2 * call.dstate + 4) * VM_VECTOR_BYTES;
  return each ? kHistoryBytes / each : 0;
}

template <class Real>
int SelectiveBackward(const VmSelectiveCall& call, const VmSelectiveGradients& gradients) {
  const int64_t kept = BlocksKept<Real>(call);
  const SelectiveSplit split(call, kLanes<Real>, kept ? kept : call.dim);
  const int64_t tiles = (call.seqlen + kTokens<Real> - 1) / kTokens<Real>;
  const TaskSizes sizes = {split.part_blocks(), call.dstate, tiles, kept ? call.seqlen : 0};
  const double work =
      26.0 * static_cast<double>(call.batch * call.dim) * static_cast<double>(call.seqlen * call.dstate);
  const int threads = ThreadsFor(call.threads, split.tasks(), work);
  Cutter counter(nullptr);
  PartialSums<Real>(counter, call, split);
  Block memory;
  char* block = memory.Get(counter.used() + kCacheLine);
  if (!block) return 1;
  Cutter cutter(block);
  PartialSums<Real> sums(cutter, call, split);
  Scratch<BackwardTiles<Real>> scratch(threads,
                                       [&](Cutter& pieces) { return BackwardTiles<Real>(pieces, sizes); });
  if (!scratch.ok()) return 1;
  ForEachTask(split.tasks(), threads, [&](int64_t task, int thread) {
    BackwardTask<Real>(call, gradients, split, sizes, split.Task(task), scratch[thread], sums).Run();
  });
  ConcludeSums(call, gradients, split, sums, threads);
  return 0;
}

}  // namespace
}  // namespace vmamba2

int vmamba2_cpu_selective_backward(const VmSelectiveCall* call, const VmSelectiveGradients* gradients) {
  using namespace vmamba2;
  return call->u.dtype == kVmFloat64 ? SelectiveBackward<double>(*call, *gradients)
                                     : SelectiveBackward<float>(*call, *gradients);
}
