// What stands in for the aten backend in a build without libtorch.
#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd {

std::unique_ptr<Kernel> make_aten_kernel(const KernelRequest&) {
  invalid("[kernels] this build has no libtorch; choose `kernels: reference`, or build with -DHSPMD_ATEN=ON");
}

std::unique_ptr<Kernel> make_plain_kernel(const KernelRequest& request) {
  return make_aten_kernel(request);
}

void limit_kernel_threads(int) {}

}  // namespace hspmd
