// ssd_traffic.h -- rows of the next chunk asked for while this one is computed, and results sent past the caches.
//
// Rows of one head lie as far apart as those of all heads together: often a page, where the processor's own
// prefetchers stop. Without this a third of the time of a scan is waiting for its rows.
#ifndef VMAMBA2_CPU_SSD_TRAFFIC_H
#define VMAMBA2_CPU_SSD_TRAFFIC_H

#include "ssd_chunk.h"

namespace vmamba2 {

// Results of this many bytes or more are not kept in the caches.
constexpr int64_t kPastCaches = int64_t{1} << 20;

// Stores without reading the line first, which an ordinary store to memory outside the caches does. For aligned
// vectors that fill whole lines one after the other; FinishStores before another thread may look.
template <class Real>
inline void StorePast(Real* to, Vector<Real> value) {
#if !defined(__x86_64__)
  Store(to, value);
#elif defined(__clang__)
  __builtin_nontemporal_store(value, reinterpret_cast<Vector<Real>*>(to));
#elif VM_VECTOR_BYTES == 64
  if constexpr (sizeof(Real) == sizeof(float)) __builtin_ia32_movntps512(to, value);
  if constexpr (sizeof(Real) == sizeof(double)) __builtin_ia32_movntpd512(to, value);
#elif VM_VECTOR_BYTES == 32
  if constexpr (sizeof(Real) == sizeof(float)) __builtin_ia32_movntps256(to, value);
  if constexpr (sizeof(Real) == sizeof(double)) __builtin_ia32_movntpd256(to, value);
#else
  if constexpr (sizeof(Real) == sizeof(float)) __builtin_ia32_movntps(to, value);
  if constexpr (sizeof(Real) == sizeof(double)) __builtin_ia32_movntpd(to, value);
#endif
}

inline void FinishStores() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

template <class Real>
constexpr int64_t kDtypeOf = sizeof(Real) == sizeof(double) ? kVmFloat64 : kVmFloat32;

// Whether rows of a result are whole lines of Real, and `elements`, all of them, more than the caches hold.
template <class Real>
inline bool GoesPast(const VmTensor& result, int64_t inner, int64_t elements) {
  constexpr int64_t kLine = kCacheLine / static_cast<int64_t>(sizeof(Real));
  bool lines = reinterpret_cast<uintptr_t>(result.data) % kCacheLine == 0 && inner % kLine == 0;
  for (int i = 0; i < 3; ++i) lines = lines && result.strides[i] % kLine == 0;
  return lines && result.dtype == kDtypeOf<Real> && result.strides[3] == 1 &&
         elements * static_cast<int64_t>(sizeof(Real)) >= kPastCaches;
}

inline int64_t ElementBytes(int64_t dtype) {
  return dtype == kVmFloat64 || dtype == kVmInt64 ? 8 : dtype == kVmFloat32 || dtype == kVmInt32 ? 4 : 2;
}

// Asks for the rows of some tensors, a few lines at a time: the few requests that a core has in flight are also
// what its operands from the second-level cache wait for.
class Prefetch {
 public:
  // Of `length` tokens.
  Prefetch(const int64_t* tokens, int64_t length) : tokens_(tokens), length_(length) {}

  // Rows of `count` heads (or groups) from `first` on, `inner` elements each; nothing of tensors whose elements
  // are far apart.
  void Add(const VmTensor& tensor, int64_t batch, int64_t first, int64_t count, int64_t inner) {
    const int64_t bytes = ElementBytes(tensor.dtype);
    const int64_t row = (count - 1) * tensor.strides[2] + (inner - 1) * tensor.strides[3] + 1;
    if (!tensor.data || row < 1 || row > 2 * count * inner) return;
    const auto* base = static_cast<const char*>(tensor.data);
    rows_[streams_++] = {base + (batch * tensor.strides[0] + first * tensor.strides[2]) * bytes,
                         tensor.strides[1] * bytes, row * bytes};
    lines_ += length_ * ((row * bytes + kCacheLine - 1) / kCacheLine);
  }

  // All rows will have been asked for after that many calls of Ask.
  void Spread(int64_t asks) {
    lines_of_ask_ = (lines_ + asks - 1) / asks;
    Begin();
  }

  void Ask() {
    for (int64_t line = 0; line < lines_of_ask_ && stream_ < streams_; ++line) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kCacheLine;
      if (at_ < end_) continue;
      if (++token_ == length_) {
        token_ = 0;
        ++stream_;
      }
      Begin();
    }
  }

 private:
  struct Rows {
    const char* base;
    int64_t stride, bytes;
  };

  void Begin() {
    if (stream_ == streams_) return;
    at_ = rows_[stream_].base + tokens_[token_] * rows_[stream_].stride;
    end_ = at_ + rows_[stream_].bytes;
  }

  static constexpr int kMost = 4;
  const int64_t* tokens_;
  int64_t length_, lines_ = 0, lines_of_ask_ = 0, token_ = 0;
  int streams_ = 0, stream_ = 0;
  const char *at_ = nullptr, *end_ = nullptr;
  Rows rows_[kMost];
};

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SSD_TRAFFIC_H
