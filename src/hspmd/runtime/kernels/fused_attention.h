// Causal attention in blocks of queries: the scores of one block against all keys it may see are one matrix product
// that stays in the cache; blocks of keys that no query sees are skipped.
// Source of the recomputing backward pass: FlashAttention (Dao et al. 2022).
#pragma once

#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd::kernels {

template <typename T>
[[nodiscard]] std::unique_ptr<Kernel> fused_attention(const KernelRequest& request);
template <typename T>
[[nodiscard]] std::unique_ptr<Kernel> fused_attention_grad(const KernelRequest& request);

}  // namespace hspmd::kernels
