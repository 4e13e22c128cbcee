// selective_forward.cpp -- y and the last state of the Mamba-1 scan; see selective_scan.h.
//
// The loop over a tile's tokens is what counts: for each state and vector of channels one exp and three
// multiply-adds, everything in registers but B and C of the token, which are broadcast from L1.
#include "selective_scan.h"

namespace vmamba2 {
namespace {

constexpr int64_t kTokens = 64;

template <class Real>
struct ForwardTiles {
  Real *b, *c;             // (kTokens, Padded(N))
  Real *step, *u, *y, *z;  // (kTokens, kLanes); u becomes step * u
  Real *rates, *states;    // (blocks, N, kLanes)

  ForwardTiles(Cutter& cutter, int64_t blocks, int64_t dstate)
      : b(cutter.Cut<Real>(kTokens * Padded<Real>(dstate))),
        c(cutter.Cut<Real>(kTokens * Padded<Real>(dstate))),
        step(cutter.Cut<Real>(kTokens * kLanes<Real>)),
        u(cutter.Cut<Real>(kTokens * kLanes<Real>)),
        y(cutter.Cut<Real>(kTokens * kLanes<Real>)),
        z(cutter.Cut<Real>(kTokens * kLanes<Real>)),
        rates(cutter.Cut<Real>(blocks * dstate * kLanes<Real>)),
        states(cutter.Cut<Real>(blocks * dstate * kLanes<Real>)) {}
};

// Adds h . C over kStates states to y; b and c point at the first of them.
template <class Real, int kStates>
void ScanTokens(int64_t tokens, const Real* step, const Real* input, const Real* rates, const Real* b,
                const Real* c, int64_t row, Real* states, Real* y, Prefetcher& ahead) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> h[kStates];
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) h[n] = Load(states + n * kStep);
  for (int64_t t = 0; t < tokens; ++t) {
    ahead.Next();
    const Vector<Real> delta = Load(step + t * kStep), delta_u = Load(input + t * kStep);
    Vector<Real> sum = Load(y + t * kStep);
#pragma GCC unroll 16
    for (int n = 0; n < kStates; ++n) {
      const Vector<Real> decay = Exp2<Real>(delta * Load(rates + n * kStep));
      h[n] = decay * h[n] + delta_u * b[t * row + n];
      sum += h[n] * c[t * row + n];
    }
    Store(y + t * kStep, sum);
  }
#pragma GCC unroll 16
  for (int n = 0; n < kStates; ++n) Store(states + n * kStep, h[n]);
}

// One tile of one block.
template <class Real>
void ScanTile(const VmSelectiveCall& call, const VmSelectiveResults& results, int64_t batch,
              const ChannelBlock& block, const TokenTile& tile, ForwardTiles<Real>& tiles, const Real* rates,
              Real* states, Prefetcher& ahead) {
  constexpr int64_t kStep = kLanes<Real>;
  LoadSteps(call, batch, block, tile, LoadParameter<Real>(call.delta_bias, block), tiles.step,
            static_cast<Real*>(nullptr));
  LoadTile(call.u, ChannelsOf(call.u, batch, block, tile), tiles.u, kStep);
  const Vector<Real> skip = LoadParameter<Real>(call.d, block);
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const Vector<Real> u = Load(tiles.u + t * kStep);
    // Without D it is zero also where u is not finite.
    Store(tiles.y + t * kStep, call.d.data ? skip * u : Vector<Real>{});
    Store(tiles.u + t * kStep, u * Load(tiles.step + t * kStep));
  }
  const int64_t row = Padded<Real>(call.dstate);
  ForStateBlocks(call.dstate, [&](auto count, int64_t n) {
    ScanTokens<Real, decltype(count)::value>(tile.tokens, tiles.step, tiles.u, rates + n * kStep, tiles.b + n,
                                             tiles.c + n, row, states + n * kStep, tiles.y, ahead);
  });
  if (call.z.data) {
    LoadTile(call.z, ChannelsOf(call.z, batch, block, tile), tiles.z, kStep);
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const Vector<Real> z = Load(tiles.z + t * kStep);
      Store(tiles.y + t * kStep, Load(tiles.y + t * kStep) * (z * Sigmoid<Real>(z)));
    }
  }
  StoreTile(tiles.y, results.y, ChannelsOf(results.y, batch, block, tile));
}

template <class Real>
void ScanTask(const VmSelectiveCall& call, const VmSelectiveResults& results, const SelectiveSplit& split,
              const SelectiveTask& task, ForwardTiles<Real>& tiles) {
  const int64_t each = call.dstate * kLanes<Real>;
  for (int64_t i = 0; i < task.blocks; ++i) {
    LoadDecayRates(call, split.Block(task.group, task.first + i), tiles.rates + i * each);
  }
  Fill(tiles.states, task.blocks * each, Real(0));
  // Tiles of equal length: a last one of few tokens could not be transposed in whole blocks.
  const int64_t count = (call.seqlen + kTokens - 1) / kTokens;
  const int64_t length = count ? (call.seqlen + count - 1) / count : 0;
  for (int64_t begin = 0; begin < call.seqlen; begin += length) {
    const TokenTile tile = {begin, std::min(length, call.seqlen - begin)};
    LoadGroup(call.b, task, call.dstate, tile, tiles.b);
    LoadGroup(call.c, task, call.dstate, tile, tiles.c);
    for (int64_t i = 0; i < task.blocks; ++i) {
      Prefetcher ahead;
      const bool last = i + 1 == task.blocks;
      const int64_t next_begin = last ? begin + length : begin;
      if (next_begin < call.seqlen) {
        const ChannelBlock next = split.Block(task.group, task.first + (last ? 0 : i + 1));
        const TokenTile next_tile = {next_begin, std::min(length, call.seqlen - next_begin)};
        for (const VmTensor* tensor : {&call.delta, &call.u, &call.z, &results.y})
          ahead.Add(*tensor, ChannelsOf(*tensor, task.batch, next, next_tile));
      }
      ScanTile(call, results, task.batch, split.Block(task.group, task.first + i), tile, tiles,
               tiles.rates + i * each, tiles.states + i * each, ahead);
    }
  }
  if (!results.last_state.data) return;
  for (int64_t i = 0; i < task.blocks; ++i) {
    const ChannelBlock block = split.Block(task.group, task.first + i);
    StoreTile(tiles.states + i * each, results.last_state,
              ChannelsOf(results.last_state, task.batch, block, {0, call.dstate}));
  }
}

template <class Real>
int SelectiveForward(const VmSelectiveCall& call, const VmSelectiveResults& results) {
  const SelectiveSplit split(call, kLanes<Real>, call.dim);
  // An exp is worth about ten multiply-adds.
  const double work =
      13.0 * static_cast<double>(call.batch * call.dim) * static_cast<double>(call.seqlen * call.dstate);
  const int threads = ThreadsFor(call.threads, split.tasks(), work);
  Scratch<ForwardTiles<Real>> scratch(
      threads, [&](Cutter& cutter) { return ForwardTiles<Real>(cutter, split.part_blocks(), call.dstate); });
  if (!scratch.ok()) return 1;
  ForEachTask(split.tasks(), threads, [&](int64_t task, int thread) {
    ScanTask(call, results, split, split.Task(task), scratch[thread]);
  });
  return 0;
}

}  // namespace
}  // namespace vmamba2

int vmamba2_cpu_selective_forward(const VmSelectiveCall* call, const VmSelectiveResults* results) {
  using namespace vmamba2;
  return call->u.dtype == kVmFloat64 ? SelectiveForward<double>(*call, *results)
                                     : SelectiveForward<float>(*call, *results);
}
