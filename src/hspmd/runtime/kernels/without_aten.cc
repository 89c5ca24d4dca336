// What stands in for the aten backend in a build without libtorch.
#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd {

std::unique_ptr<Kernel> make_aten_kernel(const KernelRequest&) {
  invalid("[kernels] this build has no libtorch; choose `kernels: reference`, or build with -DHSPMD_ATEN=ON");
}

void limit_kernel_threads(int) {}

}  // namespace hspmd
