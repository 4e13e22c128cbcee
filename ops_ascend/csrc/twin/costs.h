// costs.h -- what an instruction costs in the modelled timeline. The table and its sources are in costs.cpp.
//
// Everything here is an estimate in cycles of the core's clock; nothing of it decides whether a kernel is
// right.
#pragma once

#include <cstdint>

#include "twin/chips.h"

namespace twin {

struct Cost {
  double cycles = 1;
  uint64_t repeats = 1;  // 256 B repeats of a vector instruction, 1 for others
  uint64_t macs = 0;     // multiply-adds of a cube instruction
};

enum class VectorOp : uint8_t {
  kAdd,  // Add, Sub, Max, Min
  kMul,
  kDiv,
  kScalar,  // Adds, Muls, Maxs, Mins, Relu, Abs
  kExp,     // Exp, Ln, Sqrt
  kAxpy,    // dst += src * scalar
  kMulAdd,
  kMulAddStrided,  // any operand not one dense run
  kCast,
  kDuplicate,
  kCopy,  // UB -> UB in mask form
  kBrcb,
  kSelect,  // Select, Compare
  kBits,    // And, Or
  kNot,
  kTranspose,    // sixteen blocks per repeat
  kBlockReduce,  // one sum per block of 32 B
  kBlockReduceHalf,
  kRepeatReduce,  // one sum per repeat
};

Cost vector_cost(VectorOp op, uint64_t repeats);

// GM <-> UB, GM -> L1, UB <-> UB, UB <-> L1. `bursts` is the number of separate contiguous pieces (rows);
// short bursts are charged a minimum each.
Cost dma_cost(Memory from, Memory to, uint64_t bytes, uint64_t bursts);

Cost cube_load_cost(Memory to, uint64_t bytes, uint64_t fractals);  // L1 -> L0A, L0B (and L1 fill: to = kL1)

// m, n, k as given to Mmad; operand_bytes is the size of an operand's element (2 or 4), hf32 halves a float's
// price.
Cost mmad_cost(uint32_t m, uint32_t n, uint32_t k, uint32_t operand_bytes, bool hf32);

// L0C -> GM or UB. `rows` of `row_bytes` each when row-major (nz false); for NZ, rows = number of contiguous
// pieces.
Cost fixpipe_cost(Memory to, uint64_t rows, uint64_t row_bytes, bool nz);

// Fixed times of the control flow, in cycles.
double issue_cycles();                       // scalar unit, per instruction handed to a pipe
double flag_cycles();                        // SetFlag, WaitFlag, PipeBarrier on their pipe
double cross_core_cycles();                  // from a CrossCoreSetFlag to the wait that it releases
double scalar_access_cycles(Memory memory);  // GetValue, SetValue
double hbm_bytes_per_us();                   // measured copy roof, machine-wide
double ring_us_per_byte();                   // traffic produced and consumed in one launch

}  // namespace twin
