// Parts: how a buffer is cut among the ranks of a collective, as a list of element counts.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>

namespace hspmd {

// Element where part `index` begins.
[[nodiscard]] inline std::size_t begin_of_part(std::span<const std::size_t> parts, int index) {
  return std::accumulate(parts.begin(), parts.begin() + index, std::size_t{0});
}

}  // namespace hspmd
