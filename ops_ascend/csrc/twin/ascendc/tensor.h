// tensor.h -- GlobalTensor and LocalTensor (static-tensor style: a position, a byte address and a length).
#pragma once

#include "twin/ascendc/check.h"

namespace twin::api {

struct TensorView;

inline Memory memory_of(AscendC::TPosition position) {
  using AscendC::TPosition;
  switch (position) {
    case TPosition::A1:
    case TPosition::B1:
    case TPosition::C1:
    case TPosition::TSCM:
      return Memory::kL1;
    case TPosition::A2:
      return Memory::kL0a;
    case TPosition::B2:
      return Memory::kL0b;
    case TPosition::C2:
      return Memory::kBt;
    case TPosition::CO1:
      return Memory::kL0c;
    case TPosition::VECIN:
    case TPosition::VECOUT:
    case TPosition::VECCALC:
      return Memory::kUb;
    case TPosition::C2PIPE2GM:
      return Memory::kFb;
    default:
      refuse("LocalTensor", "pos", static_cast<int64_t>(position), "must name an on-chip memory");
  }
}

// Where a tensor of `bytes` at `address` lies; faults when it does not fit its memory.
inline Place local_place(AscendC::TPosition position, int64_t address, int64_t elements,
                         uint64_t element_bytes) {
  const Memory memory = memory_of(position);
  const uint64_t bytes = static_cast<uint64_t>(elements) * element_bytes;
  require(address % kBlockBytes == 0, "LocalTensor", "addr", address, "must be a multiple of 32 bytes");
  require(elements > 0, "LocalTensor", "tileSize", elements, "must be at least 1");
  require(bytes % kBlockBytes == 0, "LocalTensor", "tileSize in bytes", static_cast<int64_t>(bytes),
          "must be a multiple of 32");
  if (static_cast<uint64_t>(address) + bytes > capacity_bytes(memory)) {
    refuse("LocalTensor", std::string("end in ") + memory_name(memory), address + static_cast<int64_t>(bytes),
           "must be at most " + std::to_string(capacity_bytes(memory)));
  }
  return Place{memory, 0, static_cast<uint64_t>(address), bytes};
}

}  // namespace twin::api

namespace AscendC {

template <typename T>
class LocalTensor {
 public:
  using PrimType = T;

  __aicore__ inline LocalTensor() {}
  __aicore__ inline LocalTensor(TPosition pos, uint32_t addr, uint32_t tileSize)
      : place_(twin::api::local_place(pos, addr, tileSize, sizeof(T))), position_(pos), bound_(true) {}

  __aicore__ inline T GetValue(const uint32_t index) const {
    T value;
    std::memcpy(&value,
                twin::current().scalar_read(scalar_place("GetValue"), offset_ + uint64_t{index} * sizeof(T),
                                            sizeof(T), "GetValue"),
                sizeof(T));
    return value;
  }

  template <typename S>
  __aicore__ inline void SetValue(const uint32_t index, const S value) const {
    const T stored = static_cast<T>(value);
    std::memcpy(twin::current().scalar_write(scalar_place("SetValue"), offset_ + uint64_t{index} * sizeof(T),
                                             sizeof(T), "SetValue"),
                &stored, sizeof(T));
  }

  __aicore__ inline LocalTensor operator[](const uint32_t offset) const {
    LocalTensor part = *this;
    part.offset_ += uint64_t{offset} * sizeof(T);
    if (part.offset_ > place_.bytes) {
      twin::api::refuse("LocalTensor[]", "offset", static_cast<int64_t>(offset),
                        "must stay inside the tensor of " + std::to_string(GetSize()) + " elements");
    }
    return part;
  }

  template <typename U>
  __aicore__ inline LocalTensor<U> ReinterpretCast() const {
    LocalTensor<U> other;
    other.place_ = place_;
    other.offset_ = offset_;
    other.position_ = position_;
    other.bound_ = bound_;
    return other;
  }

  // An address in the tensor's memory, as the chips count it.
  __aicore__ inline uint64_t GetPhyAddr() const { return place_.begin + offset_; }
  __aicore__ inline uint64_t GetPhyAddr(const uint32_t offset) const {
    return GetPhyAddr() + uint64_t{offset} * sizeof(T);
  }

  __aicore__ inline int32_t GetPosition() const { return static_cast<int32_t>(position_); }
  __aicore__ inline uint32_t GetSize() const {
    return static_cast<uint32_t>((place_.bytes - offset_) / sizeof(T));
  }

 private:
  template <typename U>
  friend class LocalTensor;
  friend struct twin::api::TensorView;

  const twin::Place& scalar_place(const char* instruction) const {
    if (!bound_) twin::api::refuse(instruction, "tensor", "no buffer", "must be bound to memory before use");
    if (place_.memory != twin::Memory::kUb || twin::current().kind != twin::CoreKind::kAiv) {
      twin::api::refuse(instruction, "tensor", twin::memory_name(place_.memory),
                        "must be in the UB of an AIV");
    }
    return place_;
  }

  twin::Place place_;
  uint64_t offset_ = 0;
  TPosition position_ = TPosition::MAX;
  bool bound_ = false;
};

template <typename T>
class GlobalTensor {
 public:
  using PrimType = T;

  __aicore__ inline GlobalTensor() {}

  __aicore__ inline void SetGlobalBuffer(__gm__ T* buffer, uint64_t bufferSize) {
    SetGlobalBuffer(buffer);
    size_ = bufferSize;
  }

  // A null pointer leaves the tensor unbound: an optional argument that is not there.
  __aicore__ inline void SetGlobalBuffer(__gm__ T* buffer) {
    address_ = buffer;
    bound_ = buffer != nullptr;
    if (!bound_) return;
    const uint32_t index = twin::find_buffer(buffer, "SetGlobalBuffer");
    place_ = twin::Place{twin::Memory::kGm, index, 0, twin::buffer_bytes(index)};
    offset_ = twin::buffer_offset(index, buffer);
    if (offset_ % sizeof(T) != 0) {
      twin::api::refuse("SetGlobalBuffer", "buffer", static_cast<int64_t>(offset_),
                        "must be a multiple of the element's " + std::to_string(sizeof(T)) + " bytes");
    }
  }

  __aicore__ inline const __gm__ T* GetPhyAddr() const { return address_; }
  __aicore__ inline __gm__ T* GetPhyAddr(const uint64_t offset) const { return address_ + offset; }

  __aicore__ inline T GetValue(const uint64_t offset) const {
    if (!bound_) twin::api::refuse("GetValue", "tensor", "no buffer", "must be bound to memory before use");
    T value;
    std::memcpy(&value,
                twin::current().scalar_read(place_, offset_ + offset * sizeof(T), sizeof(T), "GetValue"),
                sizeof(T));
    return value;
  }

  // The store would stay in the scalar cache until DataCacheCleanAndInvalid, which is outside the twin's
  // subset.
  __aicore__ inline void SetValue(const uint64_t offset, T) {
    twin::api::refuse("SetValue", "global offset", static_cast<int64_t>(offset),
                      "must be written by a DMA: a scalar store stays in the cache");
  }

  __aicore__ inline uint64_t GetSize() const { return size_; }

  __aicore__ inline GlobalTensor operator[](const uint64_t offset) const {
    GlobalTensor part = *this;
    part.offset_ += offset * sizeof(T);
    if (bound_) part.address_ += offset;
    return part;
  }

  template <CacheRwMode rwMode = CacheRwMode::RW>
  __aicore__ inline void SetL2CacheHint(CacheMode) {}

 private:
  friend struct twin::api::TensorView;

  T* address_ = nullptr;
  twin::Place place_;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
  bool bound_ = false;
};

}  // namespace AscendC

namespace twin::api {

// Opens a tensor for the instructions; kernels have no business with it.
struct TensorView {
  template <typename T>
  static Operand of(const AscendC::LocalTensor<T>& tensor, const char* name) {
    return Operand{tensor.place_, tensor.offset_, name, tensor.bound_};
  }
  template <typename T>
  static Operand of(const AscendC::GlobalTensor<T>& tensor, const char* name) {
    return Operand{tensor.place_, tensor.offset_, name, tensor.bound_};
  }
};

}  // namespace twin::api
