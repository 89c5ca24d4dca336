// Contractions by libtorch, on any device: one matrix product where the factors of rows, columns and sum lie together
// in the same order in all tensors (all of the Llama's do); elsewhere einsum, which allocates.
#pragma once

#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd::kernels {

[[nodiscard]] std::unique_ptr<Kernel> aten_dot(const KernelRequest& request);

}  // namespace hspmd::kernels
