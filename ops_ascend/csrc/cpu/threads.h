// threads.h -- tasks dealt to the threads of the OpenMP runtime that the process has, denormals flushed.
//
// A second pool of threads beside PyTorch's would fight with it for the cores. So the library is not compiled
// with OpenMP, whose code is for one runtime: it looks up the entry point that GNU's and LLVM's both have. Where
// the process has none, every call runs on the thread that made it.
#ifndef VMAMBA2_CPU_THREADS_H
#define VMAMBA2_CPU_THREADS_H

#include <atomic>
#include <cstdint>

namespace vmamba2 {

// Whether this process came out of a fork: the runtime's threads did not come along, and it would wait for them.
bool WasForked();

// Runs work(argument) on that many threads of the process's OpenMP runtime, this one among them.
void RunOnThreads(int threads, void (*work)(void*), void* argument);

// Multiply-adds below which a second thread is not worth waking.
constexpr double kGrain = 2e6;

// How many threads a call gets: at most `allowed`, one for little work or a single task.
inline int ThreadsFor(int64_t allowed, int64_t tasks, double multiply_adds) {
  const bool one = allowed <= 1 || tasks <= 1 || multiply_adds < 2 * kGrain || WasForked();
  // All or one: a runtime that is asked for another number each time makes and ends threads each time.
  return one ? 1 : static_cast<int>(allowed);
}

// Numbers too small for a normal exponent are zero while one of these lives; the caller's mode comes back.
class FlushDenormals {
 public:
  FlushDenormals() : mode_(Read()) { Write(mode_ | kFlush); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
  ~FlushDenormals() { Write(mode_); }

 private:
#if defined(__x86_64__)
  using Mode = unsigned int;
  static constexpr Mode kFlush = 0x8040;  // flush to zero, denormals are zero
  static Mode Read() { return __builtin_ia32_stmxcsr(); }
  static void Write(Mode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = 1u << 24;
  static Mode Read() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Write(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = int;
  static constexpr Mode kFlush = 0;
  static Mode Read() { return 0; }
  static void Write(Mode) {}
#endif

  Mode mode_;
};

// body(task, thread) for every task; which thread takes which differs from run to run.
template <class Body>
inline void ForEachTask(int64_t tasks, int threads, Body body) {
  struct Shared {
    Body& body;
    int64_t tasks;
    std::atomic<int64_t> next_task{0};
    std::atomic<int> next_thread{0};
  } shared{body, tasks};
  const auto work = [](void* argument) {
    auto& dealt = *static_cast<Shared*>(argument);
    FlushDenormals flush;
    const int thread = dealt.next_thread++;
    for (int64_t task = dealt.next_task++; task < dealt.tasks; task = dealt.next_task++)
      dealt.body(task, thread);
  };
  if (threads == 1) {
    work(&shared);
  } else {
    RunOnThreads(threads, work, &shared);
  }
}

}  // namespace vmamba2

#endif  // VMAMBA2_CPU_THREADS_H
