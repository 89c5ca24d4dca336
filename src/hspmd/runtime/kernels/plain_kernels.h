// Kernels written with ATen's tensor operations alone: they run wherever the tensors lie. The aten backend has them
// for devices other than the CPU, and on the CPU for what has no fused loop.
//
// A run allocates no tensor storage on the CPU, but for a `dot` that is no matrix product (einsum has no out= form).
// On CUDA, ATen's own reductions and index_put_ take temporary memory from its caching allocator, whatever the form.
// Sums run in one fixed order on each kind of device, so that the same run gives the same bits: index_put_ sorts
// where index_add_ would use atomics.
#pragma once

#include <span>

#include "hspmd/runtime/kernels/kernel_call.h"

namespace hspmd::kernels {

// The kernels of each file, plain_NAME.cc.
[[nodiscard]] std::span<const Entry> plain_elements();    // element by element, and sums over all elements
[[nodiscard]] std::span<const Entry> plain_rows();        // vectors of the last dim
[[nodiscard]] std::span<const Entry> plain_vocabulary();  // look-ups and the cross entropy
[[nodiscard]] std::span<const Entry> plain_attention();   // in blocks of queries, each against all keys
[[nodiscard]] std::span<const Entry> plain_adamw();

}  // namespace hspmd::kernels
