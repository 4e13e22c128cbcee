// planted.h -- tiny kernels that prove the twin's checks: each plants one fault, or none and computes
// something checkable.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernel_operator.h"

namespace planted {

using namespace AscendC;

// Global memory of a planted kernel, as the kernel sees it.
struct Gm {
  GM_ADDR in;     // float, input
  GM_ADDR in16;   // half, input: the same numbers
  GM_ADDR inb;    // bfloat16_t, input: the same numbers
  GM_ADDR index;  // int32_t, input: a permutation
  GM_ADDR out;    // float, output
  GM_ADDR out16;  // half or bfloat16_t, output
  GM_ADDR work;   // float, workspace
};

constexpr uint32_t kElements = 16384;  // of every buffer

// The same memory after the launch, for the checks of legal kernels.
struct Host {
  std::vector<float> in, out, work;
  std::vector<half> in16, out16;
  std::vector<bfloat16_t> inb;
  std::vector<int32_t> index;
};

using Kernel = std::function<void(const Gm&)>;
using Check = std::function<std::string(const Host&)>;  // "" when the result is right

struct Case {
  std::string name;
  std::string expects;  // part of the fault's sentence; "" for a clean kernel
  Kernel kernel;
  Check check;
  int blocks = 1;
  bool vector_only = false;
};

class Registry {
 public:
  void fault(const char* name, const char* expects, Kernel kernel, int blocks = 1) {
    cases_.push_back({name, expects, std::move(kernel), nullptr, blocks});
  }
  // Blocks of one AIV.
  void vector_only(const char* name, Kernel kernel, Check check, const char* expects, int blocks) {
    cases_.push_back({name, expects, std::move(kernel), std::move(check), blocks, true});
  }
  void clean(const char* name, Kernel kernel, int blocks = 1) {
    cases_.push_back({name, "", std::move(kernel), nullptr, blocks});
  }
  void legal(const std::string& name, Kernel kernel, Check check, int blocks = 1) {
    cases_.push_back({name, "", std::move(kernel), std::move(check), blocks});
  }
  const std::vector<Case>& cases() const { return cases_; }

 private:
  std::vector<Case> cases_;
};

void add_memory_faults(Registry& registry);
void add_parameter_faults(Registry& registry);
void add_vector_faults(Registry& registry);
void add_reduce_faults(Registry& registry);
void add_bit_faults(Registry& registry);
void add_cube_faults(Registry& registry);
void add_sync_faults(Registry& registry);
void add_race_faults(Registry& registry);
void add_legal_moves(Registry& registry);
void add_legal_vector(Registry& registry);
void add_legal_reduce(Registry& registry);
void add_legal_bits(Registry& registry);
void add_legal_cube(Registry& registry);

template <typename T>
GlobalTensor<T> global(GM_ADDR address) {
  GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address), kElements);
  return tensor;
}

template <typename T = float>
LocalTensor<T> ub(uint32_t address, uint32_t elements = 1024) {
  return LocalTensor<T>(TPosition::VECCALC, address, elements);
}

// Hands over from one pipe to another.
template <HardEvent event>
void hand_over(int32_t id = 0) {
  SetFlag<event>(id);
  WaitFlag<event>(id);
}

inline void on_aiv(const std::function<void()>& body) {
  if ASCEND_IS_AIV {
    if (GetSubBlockIdx() == 0) body();
  }
}
inline void on_aic(const std::function<void()>& body) {
  if ASCEND_IS_AIC {
    body();
  }
}

}  // namespace planted
