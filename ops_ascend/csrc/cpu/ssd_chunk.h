// ssd_chunk.h -- what forward and backward of the Mamba-2 scan share: the walk over tokens, and a chunk of it in
// tiles of Real.
//
// A task is some heads of one group of one batch entry; it walks the tokens in one of the grid's orders, chunk by
// chunk. With cs the inclusive sum of dt A inside a chunk (float64), and everything of one packed sequence only:
//
//   enter_l = exp(cs_l)             from the state before the chunk to token l
//   leave_s = exp(cs_last - cs_s)   from token s to the state after the chunk
//   carry   = exp(cs_last)          from state to state
//   decay_ls = exp(cs_l - cs_s)     from token s to token l >= s
//
// A difference of float32 sums would lose a small decay beside a large one (arXiv:2405.21060 has no such sum to
// care for); `high` and `low` hold cs in two parts, whose differences are as good as those of float64.
#ifndef VMAMBA2_CPU_SSD_CHUNK_H
#define VMAMBA2_CPU_SSD_CHUNK_H

#include "matmul.h"
#include "scratch.h"
#include "threads.h"
#include "vector.h"
#include "vector_elements.h"
#include "vector_math.h"

namespace vmamba2 {

// The token at each position of a walk; see grid.py.
class TokenOrder {
 public:
  TokenOrder(const VmSsdCall& call, int64_t direction)
      : seqlen_(call.seqlen), height_(call.height), width_(call.width), direction_(direction) {}

  int64_t At(int64_t position) const {
    const int64_t forward = direction_ % 2 ? seqlen_ - 1 - position : position;
    return direction_ < 2 ? forward : forward % height_ * width_ + forward / height_;
  }

 private:
  int64_t seqlen_, height_, width_, direction_;
};

// The tokens of a chunk, looked up once: an order of columns divides for each token, and each head asks again.
class ChunkTokens {
 public:
  // `tokens` is room for `length` of them.
  ChunkTokens(const TokenOrder& order, int64_t begin, int64_t length, int64_t* tokens)
      : begin_(begin), tokens_(tokens) {
    for (int64_t l = 0; l < length; ++l) tokens[l] = order.At(begin + l);
  }

  int64_t At(int64_t position) const { return tokens_[position - begin_]; }

 private:
  int64_t begin_;
  const int64_t* tokens_;
};

inline int64_t Walks(const VmSsdCall& call) { return call.directions > 0 ? call.directions : 1; }

// Chunks of equal length, of `longest` tokens at most.
struct Chunks {
  int64_t count, length;

  Chunks(int64_t seqlen, int64_t longest) {
    count = (seqlen + longest - 1) / longest;
    length = count ? (seqlen + count - 1) / count : 0;
    count = length ? (seqlen + length - 1) / length : 0;
  }

  int64_t Begin(int64_t chunk) const { return chunk * length; }
  int64_t Length(int64_t chunk, int64_t seqlen) const {
    return seqlen - Begin(chunk) < length ? seqlen - Begin(chunk) : length;
  }
};

// Some heads of a group of a batch entry.
struct HeadsOfGroup {
  int64_t batch, group, first, count;
};

// Rows of tokens [begin, begin + length) of a walk: of `count` heads (or groups) from `first` on, `inner` elements
// each, padded with zeros to whole vectors: out is (length, count, Padded(inner)).
template <class Real, class Order>
inline void LoadTokens(const VmTensor& tensor, int64_t batch, const Order& order, int64_t begin,
                       int64_t length, int64_t first, int64_t count, int64_t inner, Real* out) {
  const int64_t padded = Padded<Real>(inner);
  const bool dense = tensor.strides[3] == 1 && padded == inner && (count == 1 || tensor.strides[2] == inner);
  WithElement(tensor.dtype, [&](auto* type) {
    const auto* base = static_cast<decltype(type)>(tensor.data);
    for (int64_t l = 0; l < length; ++l) {
      const auto* row = base + batch * tensor.strides[0] + order.At(begin + l) * tensor.strides[1] +
                        first * tensor.strides[2];
      Real* to = out + l * count * padded;
      if (dense) {
        for (int64_t i = 0; i < count * inner; i += kLanes<Real>) Store(to + i, LoadElements<Real>(row + i));
        continue;
      }
      for (int64_t head = 0; head < count; ++head, to += padded, row += tensor.strides[2]) {
        for (int64_t i = 0; i < inner; ++i) to[i] = static_cast<Real>(Widen(row[i * tensor.strides[3]]));
        for (int64_t i = inner; i < padded; ++i) to[i] = 0;
      }
    }
  });
}

// The inverse of LoadTokens.
template <class Real, class Order>
inline void StoreTokens(const Real* in, const VmTensor& tensor, int64_t batch, const Order& order,
                        int64_t begin, int64_t length, int64_t first, int64_t count, int64_t inner) {
  const int64_t padded = Padded<Real>(inner);
  const bool whole = tensor.strides[3] == 1 && padded == inner;
  WithElement(tensor.dtype, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    auto* base = static_cast<Element*>(tensor.data);
    for (int64_t l = 0; l < length; ++l) {
      auto* row = base + batch * tensor.strides[0] + order.At(begin + l) * tensor.strides[1] +
                  first * tensor.strides[2];
      const Real* from = in + l * count * padded;
      for (int64_t head = 0; head < count; ++head, from += padded, row += tensor.strides[2]) {
        if (whole) {
          for (int64_t i = 0; i < inner; i += kLanes<Real>) StoreElements<Real>(row + i, Load(from + i));
          continue;
        }
        for (int64_t i = 0; i < inner; ++i) {
          row[i * tensor.strides[3]] = Narrowed<Element, Real>::From(from[i]);
        }
      }
    }
  });
}

// The steps and decays of a chunk, one row of Padded(length) for each head. Padding is finite.
template <class Real>
struct ChunkDecays {
  Real* raw;         // dt + dt_bias
  Real* step;        // clamp(softplus(raw))
  Real *high, *low;  // cs in two parts
  Real *enter, *leave;
  Real* carry;     // one for each head
  bool* falls;     // of each head, whether cs never grows in this chunk
  int32_t* first;  // of the packed sequence of a token, its first token in this chunk; one row for all heads
  int64_t row;     // elements of a row

  ChunkDecays(Cutter& cutter, int64_t heads, int64_t longest)
      : raw(cutter.Cut<Real>(heads * Padded<Real>(longest))),
        step(cutter.Cut<Real>(heads * Padded<Real>(longest))),
        high(cutter.Cut<Real>(heads * Padded<Real>(longest))),
        low(cutter.Cut<Real>(heads * Padded<Real>(longest))),
        enter(cutter.Cut<Real>(heads * Padded<Real>(longest))),
        leave(cutter.Cut<Real>(heads * Padded<Real>(longest))),
        carry(cutter.Cut<Real>(heads)),
        falls(cutter.Cut<bool>(heads)),
        first(cutter.Cut<int32_t>(longest)),
        row(Padded<Real>(longest)) {}
};

// first[l] of a chunk, and whether its first token goes on with the sequence of the token before.
inline bool FindSequences(const VmSsdCall& call, int64_t batch, int64_t begin, int64_t length,
                          int32_t* first) {
  const VmTensor& ids = call.seq_idx;
  first[0] = 0;
  if (!ids.data) {
    for (int64_t l = 1; l < length; ++l) first[l] = 0;
    return true;
  }
  const auto id = [&](int64_t token) {
    return LoadInteger(ids, batch * ids.strides[0] + token * ids.strides[1]);
  };
  for (int64_t l = 1; l < length; ++l) {
    first[l] = id(begin + l) == id(begin + l - 1) ? first[l - 1] : static_cast<int32_t>(l);
  }
  return begin == 0 || id(begin) == id(begin - 1);
}

template <class Real, class Order>
inline void LoadSteps(const VmSsdCall& call, const HeadsOfGroup& heads, const Order& order, int64_t begin,
                      int64_t length, ChunkDecays<Real>& out) {
  const VmTensor& dt = call.dt;
  for (int64_t h = 0; h < heads.count; ++h) {
    const int64_t head = heads.first + h;
    Real* raw = out.raw + h * out.row;
    Real* step = out.step + h * out.row;
    const Real bias =
        call.dt_bias.data ? LoadOne<Real>(call.dt_bias, head * call.dt_bias.strides[0]) : Real(0);
    WithElement(dt.dtype, [&](auto* type) {
      const auto* from =
          static_cast<decltype(type)>(dt.data) + heads.batch * dt.strides[0] + head * dt.strides[2];
      for (int64_t l = 0; l < length; ++l) {
        raw[l] = static_cast<Real>(Widen(from[order.At(begin + l) * dt.strides[1]])) + bias;
      }
    });
    for (int64_t l = length; l < Padded<Real>(length); ++l) raw[l] = 0;
    const Real low = static_cast<Real>(call.dt_min), high = static_cast<Real>(call.dt_max);
    for (int64_t l = 0; l < length; l += kLanes<Real>) {
      const Vector<Real> biased = Load(raw + l);
      Store(step + l, Between<Real>(call.dt_softplus ? Softplus<Real>(biased) : biased, low, high));
    }
  }
}

// Fills `out` for a chunk of a walk. `longest` of its construction is at least `length`, which is at least 1.
template <class Real, class Order>
inline void LoadDecays(const VmSsdCall& call, const HeadsOfGroup& heads, const Order& order, int64_t begin,
                       int64_t length, ChunkDecays<Real>& out) {
  LoadSteps(call, heads, order, begin, length, out);
  const bool goes_on = FindSequences(call, heads.batch, begin, length, out.first);
  const int64_t last = length - 1, kStep = kLanes<Real>;
  for (int64_t h = 0; h < heads.count; ++h) {
    const Real A = LoadOne<Real>(call.a, (heads.first + h) * call.a.strides[0]);
    Real *step = out.step + h * out.row, *high = out.high + h * out.row, *low = out.low + h * out.row;
    Real *enter = out.enter + h * out.row, *leave = out.leave + h * out.row;
    double sum = 0;
    bool falls = true;
    for (int64_t l = 0; l < Padded<Real>(length); ++l) {
      if (l < length) {
        const double growth = static_cast<double>(step[l]) * static_cast<double>(A);
        falls &= growth <= 0;
        sum += growth;
      }
      high[l] = static_cast<Real>(sum);
      low[l] = static_cast<Real>(sum - static_cast<double>(high[l]));
    }
    const Real last_high = high[last], last_low = low[last];
    for (int64_t l = 0; l < length; l += kStep) {
      const Vector<Real> cs_high = Load(high + l), cs_low = Load(low + l);
      Store(enter + l, Exp<Real>(cs_high + cs_low));
      Store(leave + l, Exp<Real>((last_high - cs_high) + (last_low - cs_low)));
    }
    for (int64_t l = 0; l < length; ++l) {
      if (out.first[l] > 0 || !goes_on) enter[l] = 0;
      if (out.first[l] != out.first[last]) leave[l] = 0;
    }
    out.carry[h] = enter[last];
    out.falls[h] = falls;
  }
}

// weights(l, s) = cb(l, s) decay_ls of a head for s <= l of one sequence, times scale[s] where that is not null,
// and 0 from s = l + 1 to l + kBlock, what a product of blocks of rows may read. cb and weights are (length, ld),
// ld >= Padded(length); no more than whole vectors of Padded(length) are written.
template <class Real>
inline void WeighLower(const ChunkDecays<Real>& decays, int64_t head, int64_t length, const Real* cb,
                       Real* weights, int64_t ld, const Real* scale = nullptr) {
  constexpr int64_t kStep = kLanes<Real>, kSpan = 16;
  static_assert(kSpan % kStep == 0, "a span is whole vectors");
  const Real *high = decays.high + head * decays.row, *low = decays.low + head * decays.row;
  // cs of `at` less that of the tokens from `s` on.
  const auto gap = [&](int64_t at, int64_t s) {
    return (high[at] - Load(high + s)) + (low[at] - Load(low + s));
  };
  const auto scaled = [&](Vector<Real> value, int64_t s) { return scale ? value * Load(scale + s) : value; };
  Real lanes[kStep];
  for (int64_t i = 0; i < kStep; ++i) lanes[i] = static_cast<Real>(i);
  const Vector<Real> lane = Load(lanes), zero = {};
  const bool splits = decays.falls[head] && decays.first[length - 1] == 0;
  for (int64_t begin = 0; begin < length; begin += kSpan) {
    const int64_t end = begin + kSpan < length ? begin + kSpan : length;
    Real enter[kSpan];
    // A decay is the product of one to the token before the span and one from there: an exp for each row and
    // each column, both at most 1.
    if (splits && begin > 0) {
      for (int64_t l = begin; l < end; l += kStep) Store(enter + (l - begin), Exp<Real>(-gap(begin - 1, l)));
      for (int64_t s = 0; s < begin; s += kStep) {
        const Vector<Real> leave = scaled(Exp<Real>(gap(begin - 1, s)), s);
        for (int64_t l = begin; l < end; ++l) {
          Store(weights + l * ld + s, enter[l - begin] * leave * Load(cb + l * ld + s));
        }
      }
    }
    // Likewise through the middle of the span, while the rounding of exponents this small is no loss.
    const int64_t middle = (begin + end) / 2;
    const Real fall = (high[begin] - high[end - 1]) + (low[begin] - low[end - 1]);
    const bool shallow = splits && fall <= Real(8);
    if (shallow) {
      for (int64_t l = begin; l < end; l += kStep) Store(enter + (l - begin), Exp<Real>(-gap(middle, l)));
    }
    for (int64_t s = splits ? begin : 0; s < end + kBlock && s < length; s += kStep) {
      const Vector<Real> column = lane + static_cast<Real>(s);
      const Vector<Real> leave = shallow && s < end ? scaled(Exp<Real>(gap(middle, s)), s) : zero;
      // The first row whose columns, zeros included, come as far as s.
      for (int64_t l = s - kBlock + 1 > begin ? s - kBlock + 1 : begin; l < end; ++l) {
        const auto seen = (column >= static_cast<Real>(decays.first[l])) & (column <= static_cast<Real>(l));
        // Masked before exp, which overflows beyond the diagonal.
        const Vector<Real> decay =
            shallow ? enter[l - begin] * leave : scaled(Exp<Real>(seen ? gap(l, s) : zero), s);
        Store(weights + l * ld + s, seen ? decay * Load(cb + l * ld + s) : zero);
      }
    }
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_CHUNK_H
