// ssd_backward_float64.cpp -- ssd_backward.cpp of float64 tensors.
#include "ssd_backward_tasks.h"

namespace vmamba2 {
namespace ssd_backward {

int RunFloat64(const VmSsdCall& call, const VmSsdGradients& gradients) {
  return Backward<double>(call, gradients).Run();
}

}  // namespace ssd_backward
}  // namespace vmamba2
