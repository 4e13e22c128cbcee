// ssd_backward.cpp -- gradients of the Mamba-2 scan (arXiv:2405.21060) and of its mean over orders of a grid.
//
// float64 is compiled in a file of its own, ssd_backward_float64.cpp.
#include "call.h"
#include "ssd_backward_tasks.h"

namespace vmamba2 {
namespace ssd_backward {

int RunFloat64(const VmSsdCall& call, const VmSsdGradients& gradients);

}  // namespace ssd_backward
}  // namespace vmamba2

int vmamba2_cpu_ssd_backward(const VmSsdCall* call, const VmSsdGradients* gradients) {
  using namespace vmamba2::ssd_backward;
  return call->x.dtype == kVmFloat64 ? RunFloat64(*call, *gradients)
                                     : Backward<float>(*call, *gradients).Run();
}
