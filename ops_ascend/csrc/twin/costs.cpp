// costs.cpp -- the cost table. Every figure names its source: PTO = the cost model fitted in pto-isa for A2
// and A3; KDA, KKT = measured on silicon by kda-ascendc and chunk-scaled-dot-kkt-ascendc; DK = asc-devkit's
// documents; "assumed" = no source at all. 3510 has no published timing: it reuses the figures of 2201 in
// cycles, except the paths that only it has (DK).
#include "twin/costs.h"

#include <algorithm>

namespace twin {
namespace {

constexpr double kCyclesPerNs = 1.8;  // KKT: 7 586 159 cycles in 4214.53 us on a 910B; assumed for 3510

struct Linear {
  double start;
  double per_repeat;
};

Linear vector_line(VectorOp op) {
  switch (op) {
    case VectorOp::kAdd:
      return {24, 2.11};  // PTO vadd
    case VectorOp::kMul:
      return {25, 2.3};  // PTO vmul
    case VectorOp::kDiv:
      return {31, 4.0};  // PTO vdiv
    case VectorOp::kScalar:
      return {28, 1.0};  // PTO vmuls, vadds: 26 to 31
    case VectorOp::kExp:
      return {31, 2.0};  // PTO vexp; Ln and Sqrt assumed alike
    case VectorOp::kAxpy:
      return {25, 2.3};  // assumed as vmul: it reads two operands
    case VectorOp::kMulAdd:
      return {29, 4.0};  // PTO vmla: 11 and the 18 that its other starts share
    case VectorOp::kMulAddStrided:
      return {29, 6.0};  // PTO vmla, likewise
    case VectorOp::kCast:
      return {28, 1.0};  // assumed as vmuls
    case VectorOp::kDuplicate:
      return {28, 1.0};  // assumed as vadds
    case VectorOp::kCopy:
      return {28, 1.0};  // assumed as vadds
    case VectorOp::kBrcb:
      return {28, 1.0};  // assumed as vadds
    case VectorOp::kSelect:
      return {27, 2.0};  // PTO vsel
    case VectorOp::kBits:
      return {20, 2.0};  // PTO vand, vor: 2 and the 18 that its other starts share
    case VectorOp::kNot:
      return {20, 1.0};  // PTO vnot, likewise
    case VectorOp::kTranspose:
      return {27, 24.0};  // PTO scatter_vnchwconv: 9 to start, likewise
    case VectorOp::kBlockReduce:
      return {38, 1.0};  // PTO vcgadd
    case VectorOp::kBlockReduceHalf:
      return {41, 7.0};  // PTO vcgadd on half
    case VectorOp::kRepeatReduce:
      return {46, 7.0};  // PTO vcadd
  }
  return {0, 0};
}

struct DmaLine {
  double start;  // cycles per call
  double bytes_per_cycle;
  double burst_cycles;  // least price of one contiguous piece
};

DmaLine dma_line(Memory from, Memory to) {
  constexpr double kCall = 47 * kCyclesPerNs;          // KDA 11.46: about 47 ns per DataCopy or Nd2Nz call
  constexpr double kRow = 512 / (110 / kCyclesPerNs);  // KKT: GM -> L1 reaches 110 GB/s with rows of 512 B
  if (from == Memory::kGm && to == Memory::kUb) return {kCall, 101 / kCyclesPerNs, kRow};  // PTO
  if (from == Memory::kGm && to == Memory::kL1) return {kCall, 135 / kCyclesPerNs, kRow};  // PTO
  if (from == Memory::kUb && to == Memory::kGm) return {kCall, 188 / kCyclesPerNs, kRow};  // PTO
  if (from == Memory::kUb && to == Memory::kUb)
    return {28, 1024 / kCyclesPerNs, 1};  // PTO; start assumed as vadds
  return {28, 128, 1};                    // DK: UB <-> L1 of 3510, 128 B/cycle; start assumed
}

}  // namespace

Cost vector_cost(VectorOp op, uint64_t repeats) {
  const Linear line = vector_line(op);
  return {line.start + line.per_repeat * static_cast<double>(repeats), repeats, 0};
}

Cost dma_cost(Memory from, Memory to, uint64_t bytes, uint64_t bursts) {
  const DmaLine line = dma_line(from, to);
  const double pieces = static_cast<double>(std::max<uint64_t>(bursts, 1));
  const double moving =
      std::max(static_cast<double>(bytes) / line.bytes_per_cycle, pieces * line.burst_cycles);
  return {line.start + moving, 1, 0};
}

Cost cube_load_cost(Memory to, uint64_t bytes, uint64_t fractals) {
  // DK: L1 -> L0A 256 B/cycle, L1 -> L0B 128 (2201) or 256 (3510). PTO's fits, 441 and 220 GB/s, agree within
  // 5 %.
  const double bytes_per_cycle = to == Memory::kL0b && !kIs3510 ? 128 : 256;
  constexpr double kStart = 20;  // assumed
  const double moving = std::max(static_cast<double>(bytes) / bytes_per_cycle, static_cast<double>(fractals));
  return {kStart + moving, 1, 0};
}

Cost mmad_cost(uint32_t m, uint32_t n, uint32_t k, uint32_t operand_bytes, bool hf32) {
  // DK: 16x16x16 multiply-adds per cycle for 2-byte operands, a quarter for float, a half for HF32.
  // Start: KKT 64x64x256 takes 299 cycles (256 ideal), KDA 64x64x128 203 (128 ideal): 43 and 75, the middle
  // taken.
  constexpr double kStart = 59;
  auto tiles = [](uint32_t size) { return static_cast<double>((size + 15) / 16); };
  const double slower = operand_bytes < 4 ? 1 : hf32 ? 2 : 4;
  return {kStart + tiles(m) * tiles(n) * tiles(k) * slower, 1, uint64_t{m} * n * k};
}

Cost fixpipe_cost(Memory to, uint64_t rows, uint64_t row_bytes, bool nz) {
  const double pieces = static_cast<double>(std::max<uint64_t>(rows, 1));
  constexpr double kStart = 28;  // assumed, only where the measurement below does not contain it
  if (to != Memory::kGm)
    return {kStart + pieces * static_cast<double>(row_bytes) / 128, 1, 0};  // DK: 128 B/cycle
  constexpr double kBytesPerCycle = 70 / kCyclesPerNs;                      // PTO: L0C -> GM 70 GB/s
  constexpr double kRow = 457 * kCyclesPerNs / 64;  // KDA 11.55: 64 rows of 256 B in 0.457 us, per row
  const double moving = static_cast<double>(row_bytes) / kBytesPerCycle;
  return {nz ? kStart + pieces * moving : pieces * std::max(kRow, moving), 1, 0};
}

double issue_cycles() { return 4; }                        // assumed
double flag_cycles() { return 10; }                        // assumed
double cross_core_cycles() { return 675 * kCyclesPerNs; }  // KDA 11.7: 0.65 to 0.7 us per hand-off phase
double scalar_access_cycles(Memory memory) { return memory == Memory::kGm ? 500 : 20; }  // assumed
double hbm_bytes_per_us() { return 1.165e6; }  // KDA 11.46: measured copy roof 1165 GB/s; assumed for 3510
double ring_us_per_byte() { return 0.2e-6; }   // KDA 11.12: about 0.2 ms/GB while a few MB are in flight

}  // namespace twin
