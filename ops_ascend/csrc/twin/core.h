// core.h -- the machine that instructions are written against: one block = an AIC and two AIVs, or a single
// AIV in a vector-only launch.
//
// A kernel's scalar program runs in a fiber per core. An instruction checks its parameters when it is called
// and ends in Core::issue, which queues `work` on a pipe; the scheduler runs `work` later, in an adversarial
// legal order. `work` makes every access through Access (bounds, initialised bytes, happens-before,
// counters), then does the arithmetic on the host addresses it got.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "twin/chips.h"
#include "twin/costs.h"
#include "twin/modes.h"

namespace twin {

// Where a tensor lives. begin and bytes are the tensor's extent inside its memory (or GM buffer).
// buffer: GM: index from find_buffer(). UB: which AIV when the AIC names it (Fixpipe to UB on 3510), else
// ignored: an AIV's UB is its own. L1, L0, BT and FB are the AIC's; an AIV reaches only L1, and only on 3510.
struct Place {
  Memory memory = Memory::kUb;
  uint32_t buffer = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// what() is the whole sentence: "ssd_forward, block 3 AIV1, Mul: src1RepStride (300) must be at most 255".
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Unwinds a scalar program after a fault elsewhere. Never catch it in a kernel or an instruction.
struct Cancelled {};

struct CoreState;  // pipes.h
struct Executing;  // memory.h: the instruction that runs now
class Access;

class Core {
 public:
  CoreKind kind = CoreKind::kAic;
  int block = 0;
  int sub = 0;  // 0 or 1 on an AIV, 0 on the AIC
  int blocks = 0;
  int aivs = kSubCores;  // of a block; 1 in a vector-only launch, which has no AIC
  Modes modes;           // a wrapper copies what it needs into its `work` at issue

  // A refused call. operand may be "", then value is ignored: "kernel, block 0 AIC, Add: must run on an AIV".
  [[noreturn]] void fault(const char* instruction, const std::string& operand, const std::string& value,
                          const std::string& rule) const;

  // Queue an instruction. `instruction` must be a string literal: it is kept. Faults when the core has no
  // such pipe.
  void issue(Pipe pipe, const char* instruction, const Cost& cost, std::function<void(Access&)> work);

  // Events inside the core. id 0..5, strictly alternating.
  void set_flag(Pipe src, Pipe dst, int id);
  void wait_flag(Pipe src, Pipe dst, int id);
  void pipe_barrier(Pipe pipe);
  void pipe_barrier_all();

  // Flags between the AIC and its AIVs: mode 2, and mode 4 on 3510. On 2201 the hardware ignores the pipe of
  // a wait and holds back every later instruction of the core; the twin does too.
  void cross_set(int mode, Pipe pipe, int id);
  void cross_set_all_pipes(int mode, int id);  // PIPE_ALL: always a fault
  void cross_wait(int mode, Pipe pipe, int id);

  // The scalar unit's own accesses (GetValue, SetValue): done at once, on pipe S. The address is good for
  // this access only.
  const uint8_t* scalar_read(const Place& place, uint64_t offset, uint64_t bytes, const char* instruction);
  uint8_t* scalar_write(const Place& place, uint64_t offset, uint64_t bytes, const char* instruction);

  CoreState* state = nullptr;  // the twin's own
};

// The core whose scalar program, or whose instruction, runs now. Throws std::logic_error outside a launch.
Core& current();
bool in_launch();

// GM buffers of the launch, found by host address; a pointer outside every buffer is a fault of
// `instruction`.
uint32_t find_buffer(const void* address, const char* instruction);
uint64_t buffer_bytes(uint32_t buffer);
uint64_t buffer_offset(uint32_t buffer, const void* address);  // bytes from the buffer's start
uint8_t* buffer_data(uint32_t buffer);
const char* buffer_name(uint32_t buffer);

class Access {
 public:
  explicit Access(Executing& executing) : executing_(executing) {}

  // offset counts from place.begin. On chip it must stay inside the tensor; in GM it must stay inside the
  // buffer (and may be negative, as a wrapped uint64_t). Returns the host address of the first byte. bytes 0
  // checks nothing.
  const uint8_t* read(const Place& place, uint64_t offset, uint64_t bytes, const char* operand);
  uint8_t* write(const Place& place, uint64_t offset, uint64_t bytes, const char* operand);
  // Read-modify-write: accumulate on chip, atomic add in GM (two atomic adds never race with each other).
  uint8_t* update(const Place& place, uint64_t offset, uint64_t bytes, const char* operand);

  // `rows` runs of `bytes` each, `stride_bytes` from start to start (0: the same run again, counted once for
  // the shadow).
  const uint8_t* read_rows(const Place& place, uint64_t offset, uint64_t rows, uint64_t bytes,
                           int64_t stride_bytes, const char* operand);
  uint8_t* write_rows(const Place& place, uint64_t offset, uint64_t rows, uint64_t bytes,
                      int64_t stride_bytes, const char* operand);
  uint8_t* update_rows(const Place& place, uint64_t offset, uint64_t rows, uint64_t bytes,
                       int64_t stride_bytes, const char* operand);

  // A write of what nobody may read: afterwards the bytes count as never written. On chip only.
  void forget(const Place&, uint64_t offset, uint64_t bytes, const char* operand);

  // Bytes moved along a path. The GM bytes that this instruction touches are split (compulsory, ring, other)
  // by the reads and writes themselves; a DMA calls this once, or once per path.
  void count_path(Memory from, Memory to, uint64_t bytes);

  // Mmad with cmatrixInitVal = false: when (m/16)*(n/16) < 10 the earlier Mmad into these L0C bytes needs a
  // PipeBarrier<PIPE_M> in between. Call before update().
  void mmad_accumulate(const Place& place, uint64_t offset, uint64_t bytes, uint32_t m, uint32_t n);

  // Call when the instruction has written its output.
  void check_nan(bool inputs_finite, bool output_has_nan, const char* operand) {
    if (inputs_finite && output_has_nan) fault(operand, "NaN", "must not come from finite input");
  }

  [[noreturn]] void fault(const std::string& operand, const std::string& value,
                          const std::string& rule) const;

  Core& core() const;

 private:
  Executing& executing_;
};

}  // namespace twin
