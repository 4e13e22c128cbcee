// vector_fill.h -- Duplicate, Brcb, Copy, CreateVecIndex, Gather: values put into place without arithmetic.
#pragma once

#include "twin/ascendc/vector_unary.h"

namespace twin::api {

template <typename T>
constexpr bool kPlaced = kIsOneOf<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>;

template <typename T>
void duplicate(const Shape& shape, const Strided& dst, T value) {
  type_allowed<kPlaced<T>>(shape.instruction, type_name<T>());
  check_operands(shape, dst, {});
  current().issue(Pipe::kV, shape.instruction, vector_cost(VectorOp::kDuplicate, shape.repeats),
                  [=](Access& access) {
                    uint8_t* out = touch(access, shape, dst, Touching::kWrite);
                    for_elements(shape, {dst}, [&](const uint64_t (&at)[1], uint64_t n) {
                      auto* to = reinterpret_cast<T*>(out + at[0]);
                      std::fill(to, to + n, value);
                    });
                  });
}

// Element 8 r + j of src fills block j of repeat r.
template <typename T>
void brcb(const Operand& dst, const Operand& src, const Wide<uint8_t>& repeats,
          const AscendC::BrcbRepeatParams& params) {
  const char* const name = "Brcb";
  type_allowed<kPlaced<T>>(name, type_name<T>());
  Shape shape = repeat_shape(name, repeats, sizeof(T));
  shape.runs.push_back({0, shape.lanes});
  const Strided to = strided(name, dst, sizeof(T), params.dstBlkStride, params.dstRepStride, "dstBlkStride",
                             "dstRepStride", 65535);
  check_operands(shape, to, {});
  lives_in(name, src, Memory::kUb, kBlockBytes);
  const uint64_t count = 8 * shape.repeats;
  const Extent from{src.address(), src.address() + count * sizeof(T)};
  if (extent(shape, to).meets(from)) refuse(name, "src", "overlap", "must not overlap dst");
  current().issue(Pipe::kV, name, vector_cost(VectorOp::kBrcb, shape.repeats), [=](Access& access) {
    const auto* in =
        reinterpret_cast<const T*>(access.read(src.place, src.offset, count * sizeof(T), src.name));
    uint8_t* out = touch(access, shape, to, Touching::kWrite);
    for (uint64_t i = 0; i < count; ++i) {
      auto* block = reinterpret_cast<T*>(out + i / 8 * to.rep + i % 8 * to.blk);
      std::fill(block, block + kBlockBytes / sizeof(T), in[i]);
    }
  });
}

template <typename T, typename M>
void copy_masked(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, M mask,
                 const Wide<uint8_t>& repeats, const AscendC::CopyRepeatParams& p) {
  const char* const name = "Copy";
  type_allowed<kPlaced<T>>(name, type_name<T>());
  const Shape shape = masked_shape(name, mask, repeats, sizeof(T));
  const Strided to = strided(name, TensorView::of(dst, "dst"), sizeof(T), p.dstStride, p.dstRepeatSize,
                             "dstStride", "dstRepeatSize", 4095);
  const Strided from = strided(name, TensorView::of(src, "src"), sizeof(T), p.srcStride, p.srcRepeatSize,
                               "srcStride", "srcRepeatSize", 4095);
  check_operands(shape, to, {&from});
  current().issue(Pipe::kV, name, vector_cost(VectorOp::kCopy, shape.repeats), [=](Access& access) {
    const uint8_t* in = touch(access, shape, from, Touching::kRead);
    uint8_t* out = touch(access, shape, to, Touching::kWrite);
    for_elements(shape, {to, from}, [&](const uint64_t (&at)[2], uint64_t n) {
      std::memmove(out + at[0], in + at[1], n * sizeof(T));
    });
  });
}

template <typename T>
void create_index(const AscendC::LocalTensor<T>& dst, T first, uint32_t count) {
  const char* const name = "CreateVecIndex";
  type_allowed<kIsOneOf<T, int16_t, half, int32_t, float>>(name, type_name<T>());
  const Shape shape = flat_shape(name, count, sizeof(T));
  const Strided to = dense(TensorView::of(dst, "dst"), sizeof(T));
  check_operands(shape, to, {});
  current().issue(Pipe::kV, name, vector_cost(VectorOp::kScalar, shape.repeats), [=](Access& access) {
    auto* out = reinterpret_cast<T*>(touch(access, shape, to, Touching::kWrite));
    for (uint64_t i = 0; i < shape.count; ++i)
      out[i] = static_cast<T>(static_cast<float>(first) + static_cast<float>(i));
  });
}

template <>
inline void create_index<int32_t>(const AscendC::LocalTensor<int32_t>& dst, int32_t first, uint32_t count) {
  const char* const name = "CreateVecIndex";
  const Shape shape = flat_shape(name, count, sizeof(int32_t));
  const Strided to = dense(TensorView::of(dst, "dst"), sizeof(int32_t));
  check_operands(shape, to, {});
  current().issue(Pipe::kV, name, vector_cost(VectorOp::kScalar, shape.repeats), [=](Access& access) {
    auto* out = reinterpret_cast<int32_t*>(touch(access, shape, to, Touching::kWrite));
    for (uint64_t i = 0; i < shape.count; ++i) out[i] = first + static_cast<int32_t>(i);
  });
}

// dst[i] = the element at byte base + offset[i] of src.
template <typename T>
void gather(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
            const AscendC::LocalTensor<uint32_t>& offsets, uint32_t base, uint32_t count) {
  const char* const name = "Gather";
  type_allowed<kPlaced<T>>(name, type_name<T>());
  const Shape shape = flat_shape(name, count, sizeof(T));
  const Strided to = dense(TensorView::of(dst, "dst"), sizeof(T));
  const Strided at = dense(TensorView::of(offsets, "srcOffset"), sizeof(uint32_t));
  const Operand from = TensorView::of(src, "src");
  check_operands(shape, to, {});
  lives_in(name, at.at, Memory::kUb, kBlockBytes);
  lives_in(name, from, Memory::kUb, kBlockBytes);
  require(base % sizeof(T) == 0, name, "srcBaseOffset", base, "must be a multiple of the element's bytes");
  if (extent(shape, to).meets({from.address(), from.place.begin + from.place.bytes})) {
    refuse(name, "src", "overlap", "must not overlap dst");
  }
  if (extent(shape, to).meets(extent(shape, at)))
    refuse(name, "srcOffset", "overlap", "must not overlap dst");
  current().issue(Pipe::kV, name, vector_cost(VectorOp::kSelect, shape.repeats), [=](Access& access) {
    const auto* offset = reinterpret_cast<const uint32_t*>(touch(access, shape, at, Touching::kRead));
    auto* out = reinterpret_cast<T*>(touch(access, shape, to, Touching::kWrite));
    for (uint64_t i = 0; i < shape.count; ++i) {
      if (offset[i] % sizeof(T) != 0) {
        access.fault("srcOffset", std::to_string(offset[i]), "must be a multiple of the element's bytes");
      }
      std::memcpy(out + i, access.read(from.place, from.offset + base + offset[i], sizeof(T), from.name),
                  sizeof(T));
    }
  });
}

}  // namespace twin::api

namespace AscendC {

template <typename T, bool isSetMask = true>
__aicore__ inline void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask,
                                 const twin::Wide<uint8_t> repeatTime,
                                 const twin::Wide<uint16_t> dstBlockStride,
                                 const twin::Wide<uint8_t> dstRepeatStride) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  const auto shape = twin::api::masked_shape("Duplicate", mask, repeatTime, sizeof(T));
  twin::api::duplicate<T>(
      shape,
      twin::api::strided("Duplicate", twin::api::TensorView::of(dst, "dst"), sizeof(T), dstBlockStride,
                         dstRepeatStride, "dstBlockStride", "dstRepeatStride"),
      scalarValue);
}

template <typename T, bool isSetMask = true>
__aicore__ inline void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[],
                                 const twin::Wide<uint8_t> repeatTime,
                                 const twin::Wide<uint16_t> dstBlockStride,
                                 const twin::Wide<uint8_t> dstRepeatStride) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  const auto shape =
      twin::api::masked_shape("Duplicate", static_cast<const uint64_t*>(mask), repeatTime, sizeof(T));
  twin::api::duplicate<T>(
      shape,
      twin::api::strided("Duplicate", twin::api::TensorView::of(dst, "dst"), sizeof(T), dstBlockStride,
                         dstRepeatStride, "dstBlockStride", "dstRepeatStride"),
      scalarValue);
}

template <typename T>
__aicore__ inline void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count) {
  twin::api::duplicate<T>(twin::api::flat_shape("Duplicate", count, sizeof(T)),
                          twin::api::dense(twin::api::TensorView::of(dst, "dst"), sizeof(T)), scalarValue);
}

template <typename T>
__aicore__ inline void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                            const twin::Wide<uint8_t> repeatTime, const BrcbRepeatParams& repeatParams) {
  twin::api::brcb<T>(twin::api::TensorView::of(dst, "dst"), twin::api::TensorView::of(src, "src"), repeatTime,
                     repeatParams);
}

template <typename T, bool isSetMask = true>
__aicore__ inline void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask[],
                            const twin::Wide<uint8_t> repeatTime, const CopyRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::copy_masked<T>(dst, src, mask, repeatTime, repeatParams);
}

template <typename T, bool isSetMask = true>
__aicore__ inline void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask,
                            const twin::Wide<uint8_t> repeatTime, const CopyRepeatParams& repeatParams) {
  static_assert(isSetMask, "masks set beforehand are outside the twin's subset");
  twin::api::copy_masked<T>(dst, src, mask, repeatTime, repeatParams);
}

template <typename T>
__aicore__ inline void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count) {
  twin::api::create_index<T>(dst, firstValue, count);
}

template <typename T>
__aicore__ inline void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                              const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseOffset,
                              const uint32_t count) {
  twin::api::gather<T>(dst, src, srcOffset, srcBaseOffset, count);
}

}  // namespace AscendC
