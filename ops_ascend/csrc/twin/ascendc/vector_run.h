// vector_run.h -- the elementwise loop of every vector instruction: accesses first, then arithmetic, repeat
// after repeat.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "twin/ascendc/convert.h"
#include "twin/ascendc/vector_shape.h"

namespace twin::api {

enum class Touching { kRead, kWrite, kUpdate };

// Makes the accesses of one operand and returns the host address of its lane 0 of repeat 0.
inline uint8_t* touch(Access& access, const Shape& shape, const Strided& o, Touching how) {
  const auto rows = [&](uint64_t offset, uint64_t count, uint64_t bytes, uint64_t stride) -> uint8_t* {
    const uint64_t at = o.at.offset + offset;
    const auto step = static_cast<int64_t>(stride);
    if (how == Touching::kRead) {
      return const_cast<uint8_t*>(access.read_rows(o.at.place, at, count, bytes, step, o.at.name));
    }
    return how == Touching::kWrite ? access.write_rows(o.at.place, at, count, bytes, step, o.at.name)
                                   : access.update_rows(o.at.place, at, count, bytes, step, o.at.name);
  };
  if (shape.flat) return rows(0, 1, shape.count * o.size, 0);
  uint8_t* base = nullptr;
  for_pieces(shape, o.blk != kBlockBytes, o.size, [&](uint32_t begin, uint32_t end) {
    const uint64_t offset = o.lane_offset(begin);
    uint8_t* piece = rows(offset, shape.repeats, uint64_t{end - begin} * o.size, o.rep);
    if (base == nullptr) base = piece - offset;
  });
  return base;
}

inline bool is_dense(const Shape& shape, const Strided& o) {
  return shape.flat || (shape.full() && o.blk == kBlockBytes &&
                        (shape.repeats == 1 || o.rep == uint64_t{shape.lanes} * o.size));
}

// Calls body(element offsets in bytes of every operand..., n) for each contiguous piece.
template <size_t N, typename F>
void for_elements(const Shape& shape, const Strided (&operands)[N], F body) {
  uint64_t offsets[N] = {};
  bool all_dense = true, cut = false;
  uint32_t widest = 0;
  for (const Strided& o : operands) {
    all_dense = all_dense && is_dense(shape, o);
    cut = cut || o.blk != kBlockBytes;
    widest = std::max(widest, o.size);
  }
  if (all_dense) {
    body(offsets, shape.flat ? shape.count : shape.repeats * shape.lanes);
    return;
  }
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    for_pieces(shape, cut, widest, [&](uint32_t begin, uint32_t end) {
      for (size_t i = 0; i < N; ++i) offsets[i] = r * operands[i].rep + operands[i].lane_offset(begin);
      body(offsets, uint64_t{end - begin});
    });
  }
}

// out[i] = f(in[i]...) on n floats, a register at a time; NaN from finite lanes is noticed.
template <typename T, typename F>
void map_unary(T* out, const T* in, uint64_t n, F f, NanWatch& nan) {
  for (uint64_t i = 0; i < n; i += kLanes) {
    const uint64_t lanes = std::min(kLanes, n - i);
    const Floats x = lanes == kLanes ? load_lanes(in + i) : load_some(in + i, lanes);
    const Floats y = f(x);
    nan.see(y, is_finite(x));
    lanes == kLanes ? store_lanes(out + i, y) : store_some(out + i, y, lanes);
  }
}

template <typename T, typename F>
void map_binary(T* out, const T* a, const T* b, uint64_t n, F f, NanWatch& nan) {
  for (uint64_t i = 0; i < n; i += kLanes) {
    const uint64_t lanes = std::min(kLanes, n - i);
    const Floats x = lanes == kLanes ? load_lanes(a + i) : load_some(a + i, lanes);
    const Floats y = lanes == kLanes ? load_lanes(b + i) : load_some(b + i, lanes);
    const Floats z = f(x, y);
    nan.see(z, is_finite(x) & is_finite(y));
    lanes == kLanes ? store_lanes(out + i, z) : store_some(out + i, z, lanes);
  }
}

template <typename T, typename F>
void issue_unary(const Shape& shape, VectorOp op, const Strided& dst, const Strided& src, F f) {
  current().issue(Pipe::kV, shape.instruction, vector_cost(op, shape.repeats), [=](Access& access) {
    const uint8_t* from = touch(access, shape, src, Touching::kRead);
    uint8_t* to = touch(access, shape, dst, Touching::kWrite);
    NanWatch nan;
    for_elements(shape, {dst, src}, [&](const uint64_t (&at)[2], uint64_t n) {
      auto* out = reinterpret_cast<T*>(to + at[0]);
      const auto* in = reinterpret_cast<const T*>(from + at[1]);
      if constexpr (kIsFloating<T>) {
        map_unary(out, in, n, f, nan);
      } else {
        for (uint64_t i = 0; i < n; ++i) out[i] = f(in[i]);
      }
    });
    access.check_nan(true, nan.any(), dst.at.name);
  });
}

template <typename T, typename F>
void issue_binary(const Shape& shape, VectorOp op, const Strided& dst, const Strided& src0,
                  const Strided& src1, F f) {
  current().issue(Pipe::kV, shape.instruction, vector_cost(op, shape.repeats), [=](Access& access) {
    const uint8_t* left = touch(access, shape, src0, Touching::kRead);
    const uint8_t* right = touch(access, shape, src1, Touching::kRead);
    uint8_t* to = touch(access, shape, dst, Touching::kWrite);
    NanWatch nan;
    for_elements(shape, {dst, src0, src1}, [&](const uint64_t (&at)[3], uint64_t n) {
      auto* out = reinterpret_cast<T*>(to + at[0]);
      const auto* a = reinterpret_cast<const T*>(left + at[1]);
      const auto* b = reinterpret_cast<const T*>(right + at[2]);
      if constexpr (kIsFloating<T>) {
        map_binary(out, a, b, n, f, nan);
      } else {
        for (uint64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
      }
    });
    access.check_nan(true, nan.any(), dst.at.name);
  });
}

}  // namespace twin::api
