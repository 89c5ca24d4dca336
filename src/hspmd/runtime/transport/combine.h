// The arithmetic of a reduction between two ranks' data.
#pragma once

#include <algorithm>
#include <span>

#include "hspmd/annotation/annotation.h"

namespace hspmd {

// into = lower (+) upper, element by element; `into` may be either. Lower is the operand that comes first, which
// decides the bits where a sum or a maximum meets what is not a number.
template <typename T>
void combine(Reduction reduction, std::span<const T> lower, std::span<const T> upper, std::span<T> into) {
  if (reduction == Reduction::kSum) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = lower[i] + upper[i];
  } else {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(lower[i], upper[i]);
  }
}

}  // namespace hspmd
