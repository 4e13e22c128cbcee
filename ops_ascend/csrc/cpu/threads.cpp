#include "threads.h"

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#include <pthread.h>
#endif

#include "call.h"

namespace vmamba2 {
namespace {

bool was_forked = false;

#if defined(__unix__) || defined(__APPLE__)
const int registered = pthread_atfork(nullptr, nullptr, [] { was_forked = true; });

void* Find(const char* name) { return dlsym(RTLD_DEFAULT, name); }
#else
void* Find(const char*) { return nullptr; }
#endif

using Parallel = void (*)(void (*work)(void*), void* argument, unsigned threads, unsigned flags);

}  // namespace

bool WasForked() { return was_forked; }

void RunOnThreads(int threads, void (*work)(void*), void* argument) {
  static const auto parallel = reinterpret_cast<Parallel>(Find("GOMP_parallel"));
  if (parallel) {
    parallel(work, argument, static_cast<unsigned>(threads), 0);
  } else {
    work(argument);
  }
}

}  // namespace vmamba2

int vmamba2_cpu_runs_here() {
#if VM_VECTOR_BYTES == 64 && defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
#elif VM_VECTOR_BYTES == 32 && defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("f16c");
#else
  return 1;
#endif
}
