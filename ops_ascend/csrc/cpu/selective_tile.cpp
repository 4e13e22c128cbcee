#include "selective_tile.h"

#include "matmul.h"
#include "vector_elements.h"

namespace vmamba2 {
namespace {

// A block of kLanes tokens, token-major; token strides are 1.
template <class Real, class Element>
inline void LoadBlock(const Element* from, const TileShape& shape, Vector<Real> (&rows)[kLanes<Real>]) {
  if (shape.channels == kLanes<Real>) {
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes<Real>; ++c) rows[c] = LoadElements<Real>(from + c * shape.channel_stride);
  } else {
    for (int64_t c = 0; c < kLanes<Real>; ++c) {
      rows[c] = c < shape.channels ? LoadElements<Real>(from + c * shape.channel_stride) : Vector<Real>{};
    }
  }
  TransposeBlock<Real>(rows);
}

template <class Real, class Element>
void LoadTransposed(const Element* from, const TileShape& shape, Real* out, int64_t row) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> rows[kStep];
  int64_t t = 0;
  for (; t + kStep <= shape.tokens; t += kStep) {
    LoadBlock<Real>(from + t, shape, rows);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kStep; ++i) Store(out + (t + i) * row, rows[i]);
  }
  if (t == shape.tokens) return;
  // The last block reaches back over tokens that were there before: nothing is read past the end.
  LoadBlock<Real>(from + shape.tokens - kStep, shape, rows);
  for (int64_t i = kStep - (shape.tokens - t); i < kStep; ++i) {
    Store(out + (shape.tokens - kStep + i) * row, rows[i]);
  }
}

template <class Real, class Element>
void LoadSparse(const Element* from, const TileShape& shape, Real* out, int64_t row) {
  for (int64_t t = 0; t < shape.tokens; ++t) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      const Element* at = from + c * shape.channel_stride + t * shape.token_stride;
      out[t * row + c] = static_cast<Real>(Widen(*at));
    }
    for (int64_t c = shape.channels; c < kLanes<Real>; ++c) out[t * row + c] = 0;
  }
}

template <class Real, class Element>
void StoreTransposed(const Real* in, Element* to, const TileShape& shape) {
  constexpr int64_t kStep = kLanes<Real>;
  Vector<Real> rows[kStep];
  for (int64_t begin = 0; begin < shape.tokens; begin += kStep) {
    // The last block writes some tokens once more.
    const int64_t t = begin + kStep <= shape.tokens ? begin : shape.tokens - kStep;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kStep; ++i) rows[i] = Load(in + (t + i) * kStep);
    TransposeBlock<Real>(rows);
    if (shape.channels == kStep) {
#pragma GCC unroll 16
      for (int64_t c = 0; c < kStep; ++c) StoreElements<Real>(to + c * shape.channel_stride + t, rows[c]);
    } else {
      for (int64_t c = 0; c < shape.channels; ++c) {
        StoreElements<Real>(to + c * shape.channel_stride + t, rows[c]);
      }
    }
  }
}

template <class Real, class Element>
void StoreSparse(const Real* in, Element* to, const TileShape& shape) {
  for (int64_t c = 0; c < shape.channels; ++c) {
    Element* row = to + c * shape.channel_stride;
    for (int64_t t = 0; t < shape.tokens; ++t) {
      row[t * shape.token_stride] = Narrowed<Element, Real>::From(in[t * kLanes<Real> + c]);
    }
  }
}

}  // namespace

template <class Real>
void LoadTile(const VmTensor& tensor, const TileShape& shape, Real* out, int64_t row) {
  WithElement(tensor.dtype, [&](auto* type) {
    const auto* from = static_cast<decltype(type)>(tensor.data) + shape.offset;
    if (shape.channel_stride == 1 && shape.channels == kLanes<Real>) {
      for (int64_t t = 0; t < shape.tokens; ++t) {
        Store(out + t * row, LoadElements<Real>(from + t * shape.token_stride));
      }
    } else if (shape.token_stride == 1 && shape.before + shape.tokens >= kLanes<Real>) {
      LoadTransposed(from, shape, out, row);
    } else {
      LoadSparse(from, shape, out, row);
    }
  });
}

template <class Real>
void StoreTile(const Real* in, const VmTensor& tensor, const TileShape& shape) {
  WithElement(tensor.dtype, [&](auto* type) {
    auto* to = static_cast<decltype(type)>(tensor.data) + shape.offset;
    if (shape.channel_stride == 1 && shape.channels == kLanes<Real>) {
      for (int64_t t = 0; t < shape.tokens; ++t) {
        StoreElements<Real>(to + t * shape.token_stride, Load(in + t * kLanes<Real>));
      }
    } else if (shape.token_stride == 1 && shape.tokens >= kLanes<Real>) {
      StoreTransposed(in, to, shape);
    } else {
      StoreSparse(in, to, shape);
    }
  });
}

template void LoadTile(const VmTensor&, const TileShape&, float*, int64_t);
template void LoadTile(const VmTensor&, const TileShape&, double*, int64_t);
template void StoreTile(const float*, const VmTensor&, const TileShape&);
template void StoreTile(const double*, const VmTensor&, const TileShape&);

}  // namespace vmamba2
