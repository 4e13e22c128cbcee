// scratch.h -- memory for what a call needs on its way: one block for all threads, cut into aligned pieces.
//
//   struct Tiles {
//     float *b, *decay;
//     explicit Tiles(Cutter& cutter) : b(cutter.Cut<float>(64 * n)), decay(cutter.Cut<float>(64)) {}
//   };
//   Scratch<Tiles> scratch(threads, [&](Cutter& cutter) { return Tiles(cutter); });
//   if (!scratch.ok()) return 1;
//   ... scratch[thread].b ...
#ifndef VMAMBA2_CPU_SCRATCH_H
#define VMAMBA2_CPU_SCRATCH_H

#include <cstdint>
#include <cstdlib>
#include <new>

namespace vmamba2 {

constexpr int64_t kCacheLine = 64;
// A thread that calls keeps its block for the next call up to here: fresh pages cost more than a small call.
constexpr int64_t kKeptBytes = int64_t{16} << 20;

// Cuts a block into pieces, each on a cache line of its own; without a block it only counts.
class Cutter {
 public:
  explicit Cutter(char* block) : block_(block) {}

  template <class T>
  T* Cut(int64_t count) {
    T* piece = block_ ? reinterpret_cast<T*>(block_ + used_) : nullptr;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kCacheLine - 1) / kCacheLine * kCacheLine;
    return piece;
  }

  int64_t used() const { return used_; }

 private:
  char* block_;
  int64_t used_ = 0;
};

class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(memory_); }

  // At least `bytes`, with whatever is in it; null without memory.
  char* Get(int64_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      memory_ = static_cast<char*>(std::aligned_alloc(kCacheLine, RoundUpToLine(bytes)));
      size_ = memory_ ? bytes : 0;
    }
    return memory_;
  }

  void ReleaseBeyond(int64_t bytes) {
    if (size_ > bytes) {
      std::free(memory_);
      memory_ = nullptr;
      size_ = 0;
    }
  }

 private:
  static size_t RoundUpToLine(int64_t bytes) {
    return static_cast<size_t>((bytes + kCacheLine - 1) / kCacheLine * kCacheLine);
  }

  char* memory_ = nullptr;
  int64_t size_ = 0;
};

inline Block& KeptBlock() {
  static thread_local Block block;
  return block;
}

// `Pieces` of each of several threads. One at a time in a thread that calls.
template <class Pieces>
class Scratch {
 public:
  template <class Make>
  Scratch(int threads, Make make) {
    Cutter counter(nullptr);
    make(counter);
    const int64_t each = counter.used() + kCacheLine;
    char* block = KeptBlock().Get(each * threads);
    ok_ = block != nullptr;
    if (!ok_) return;
    pieces_ = static_cast<Pieces*>(std::malloc(sizeof(Pieces) * static_cast<size_t>(threads)));
    ok_ = pieces_ != nullptr;
    for (int thread = 0; ok_ && thread < threads; ++thread) {
      Cutter cutter(block + each * thread);
      new (&pieces_[thread]) Pieces(make(cutter));
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::free(pieces_);  // pieces are pointers: nothing to destroy
    KeptBlock().ReleaseBeyond(kKeptBytes);
  }

  bool ok() const { return ok_; }
  Pieces& operator[](int thread) { return pieces_[thread]; }

 private:
  bool ok_ = false;
  Pieces* pieces_ = nullptr;
};

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_SCRATCH_H
