// The arithmetic of a reduction: into = sources[0] (+) sources[1] (+) ..., element by element, always in this order, so
// that a run repeats bit by bit. `into` may be any one of the sources. No source: the neutral element.
#pragma once

#include <cstddef>
#include <span>

#include "hspmd/annotation/annotation.h"

namespace hspmd {

// T is float, double or std::int32_t.
template <typename T>
void reduce(Reduction reduction, T* into, std::span<const void* const> sources, std::size_t n);

}  // namespace hspmd
