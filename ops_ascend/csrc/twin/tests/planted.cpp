// planted.cpp -- the C interface over all planted kernels.
#include "planted.h"

#include <cstring>

#include "twin/launch.h"

namespace planted {
namespace {

const Registry& registry() {
  static const Registry all = [] {
    Registry r;
    add_memory_faults(r);
    add_parameter_faults(r);
    add_vector_faults(r);
    add_reduce_faults(r);
    add_bit_faults(r);
    add_cube_faults(r);
    add_sync_faults(r);
    add_race_faults(r);
    add_legal_moves(r);
    add_legal_vector(r);
    add_legal_reduce(r);
    add_legal_bits(r);
    add_legal_cube(r);
    return r;
  }();
  return all;
}

// Numbers in [-1, 1) with 5 significant bits, so that every operand type holds them exactly.
Host fresh_host() {
  Host host;
  uint32_t state = 12345;
  for (uint32_t i = 0; i < kElements; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = (static_cast<int32_t>(state >> 26) - 32) / 32.0f;
    host.in.push_back(value);
    host.in16.push_back(static_cast<half>(value));
    host.inb.push_back(bfloat16_t(value));
    host.index.push_back(static_cast<int32_t>((i * 37) % 256));
  }
  host.out.assign(kElements, -7.0f);
  host.out16.assign(kElements, static_cast<half>(-7.0f));
  host.work.assign(kElements, -9.0f);
  return host;
}

template <typename T>
twin::GmBuffer buffer(const char* name, std::vector<T>& data, twin::GmBuffer::Kind kind) {
  twin::GmBuffer gm;
  gm.name = name;
  gm.data = data.data();
  gm.bytes = data.size() * sizeof(T);
  gm.granule = sizeof(T);
  gm.kind = kind;
  return gm;
}

template <typename T>
GM_ADDR address(std::vector<T>& data) {
  return reinterpret_cast<GM_ADDR>(data.data());
}

std::string run(const Case& test, uint64_t seed) {
  using Kind = twin::GmBuffer::Kind;
  Host host = fresh_host();
  const std::vector<twin::GmBuffer> buffers = {
      buffer("in", host.in, Kind::kInput),         buffer("in16", host.in16, Kind::kInput),
      buffer("inb", host.inb, Kind::kInput),       buffer("index", host.index, Kind::kInput),
      buffer("out", host.out, Kind::kOutput),      buffer("out16", host.out16, Kind::kOutput),
      buffer("work", host.work, Kind::kWorkspace),
  };
  const Gm gm = {address(host.in),  address(host.in16),  address(host.inb), address(host.index),
                 address(host.out), address(host.out16), address(host.work)};
  twin::Options options;
  options.seed = seed;
  options.vector_only = test.vector_only;
  const twin::Report report =
      twin::launch(test.name.c_str(), test.blocks, buffers, options, [&test, &gm] { test.kernel(gm); });
  if (!report.fault.empty() || !test.check) return report.fault;
  const std::string wrong = test.check(host);
  return wrong.empty() ? "" : test.name + ": wrong result: " + wrong;
}

}  // namespace
}  // namespace planted

#pragma GCC visibility push(default)
extern "C" {

int vm_planted_count() { return static_cast<int>(planted::registry().cases().size()); }

const char* vm_planted_name(int index) { return planted::registry().cases().at(index).name.c_str(); }

const char* vm_planted_expects(int index) { return planted::registry().cases().at(index).expects.c_str(); }

// The fault's sentence, "" when there is none; valid until the next call from the same thread.
const char* vm_planted_run(int index, uint64_t seed) {
  static thread_local std::string answer;
  answer = planted::run(planted::registry().cases().at(index), seed);
  return answer.c_str();
}

}  // extern "C"
#pragma GCC visibility pop
