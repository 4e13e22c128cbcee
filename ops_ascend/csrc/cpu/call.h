// call.h -- the C interface of the CPU kernels: what a call looks like. Plain C, so that ctypes can fill it.
//
// One library for each set of instructions (generic, avx2, avx512) with the same functions; every name inside
// is in a namespace of its own or static, so that several may live in one process.
#ifndef VMAMBA2_CPU_CALL_H
#define VMAMBA2_CPU_CALL_H

#include <cstdint>

extern "C" {

enum VmDtype : int64_t { kVmFloat32, kVmFloat64, kVmBFloat16, kVmFloat16, kVmInt32, kVmInt64 };

// A tensor where the caller has it. Strides count elements, one for each dimension, and may be anything: 0 where
// it was expanded, more than 1 in the innermost dimension. `data` is null for a tensor that is not there.
struct VmTensor {
  void* data;
  int64_t dtype;
  int64_t strides[4];
};

// ssd_scan and ssd_cross_scan; shapes as in ops_ascend.ssd_scan. x, B, C, z, y and their gradients have one
// dtype; each of dt, A, D, dt_bias and initial_states has its own, its gradient the same. States are float64
// where x is, else float32, and so is everything that is computed.
//
// A plain scan has directions = 0. A cross scan has 1, 2 or 4 and a grid: its y is the mean of one scan for each
// order (grid.py), its skip and gate are applied to the mean, and it has no states and no seq_idx.
struct VmSsdCall {
  int64_t batch, seqlen, nheads, headdim, ngroups, dstate;
  int64_t dt_softplus;
  int64_t d_per_channel;  // D and dD are (nheads, headdim), else (nheads)
  int64_t directions, height, width;
  int64_t threads;  // at most that many
  double dt_min, dt_max;
  VmTensor x, dt, a, b, c, d, z, dt_bias, initial_states, seq_idx;  // seq_idx is int32 or int64
};

struct VmSsdResults {
  VmTensor y, final_states;  // final_states may be absent
};

// dy or dstates may be absent: zero. Of the results, those of tensors that the call has not are absent.
struct VmSsdGradients {
  VmTensor dy, dstates;
  VmTensor dx, ddt, da, db, dc, dd, dz, ddt_bias, dinitial_states;
};

// selective_scan; b and c are (batch, ngroups, dstate, seqlen).
struct VmSelectiveCall {
  int64_t batch, dim, seqlen, ngroups, dstate;
  int64_t delta_softplus;
  int64_t threads;
  VmTensor u, delta, a, b, c, d, z, delta_bias;
};

struct VmSelectiveResults {
  VmTensor y, last_state;
};

struct VmSelectiveGradients {
  VmTensor dy, dlast_state;
  VmTensor du, ddelta, da, db, dc, dd, dz, ddelta_bias;
};

// Every result is written in full. 0, or 1 when there was no memory for what is needed on the way.
int vmamba2_cpu_ssd_forward(const VmSsdCall* call, const VmSsdResults* results);
int vmamba2_cpu_ssd_backward(const VmSsdCall* call, const VmSsdGradients* gradients);
int vmamba2_cpu_selective_forward(const VmSelectiveCall* call, const VmSelectiveResults* results);
int vmamba2_cpu_selective_backward(const VmSelectiveCall* call, const VmSelectiveGradients* gradients);

// Whether the processor has the instructions that this library was compiled for.
int vmamba2_cpu_runs_here();
}

#endif  // VMAMBA2_CPU_CALL_H
