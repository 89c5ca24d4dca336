#include <ATen/Parallel.h>
#include <cblas.h>

#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd {

// ATen's setting does not reach Debian's OpenBLAS: both must be told.
void limit_kernel_threads(int threads) {
  at::set_num_threads(threads);
  openblas_set_num_threads(threads);
}

}  // namespace hspmd
