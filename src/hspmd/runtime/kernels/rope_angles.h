// The frequencies of rotary position embedding, with Llama 3's scaling for long contexts.
// Source: RoFormer (Su et al. 2021); Hugging Face's "llama3" rope type.
#pragma once

#include <vector>

#include "hspmd/graph/operator.h"

namespace hspmd::kernels {

// width / 2 of them, radians a position.
[[nodiscard]] std::vector<double> rope_frequencies(const Attributes& attributes, std::int64_t width);

}  // namespace hspmd::kernels
