// Interval, Shape and Box: half-open pieces of the global index space of a tensor.
//
//   Box of a 10x6 tensor: {[0,5), [0,6)} is its upper half, 30 elements.
//
// Invariant: begin <= end in every dim. A box with an empty interval holds no element; a box of rank 0
// holds exactly one (a scalar). Shapes count elements per dim and are never negative.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "hspmd/base/inline_vector.h"

namespace hspmd {

inline constexpr std::size_t kMaxRank = 8;

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return begin >= end; }
  [[nodiscard]] bool contains(Interval other) const { return begin <= other.begin && other.end <= end; }
  friend auto operator<=>(const Interval&, const Interval&) = default;
};

// The common part; empty intervals have none.
[[nodiscard]] std::optional<Interval> intersect(Interval a, Interval b);

using Shape = InlineVector<std::int64_t, kMaxRank>;  // elements per dim
using Box = InlineVector<Interval, kMaxRank>;        // one interval per dim

[[nodiscard]] Box whole(const Shape& shape);
[[nodiscard]] Shape extents(const Box& box);

// Number of elements. Throws InvalidArgument beyond 2^62.
[[nodiscard]] std::int64_t volume(const Box& box);
[[nodiscard]] std::int64_t volume(const Shape& shape);

// The common part of two boxes of one rank; nullopt when it holds no element.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);
[[nodiscard]] bool contains(const Box& outer, const Box& inner);

// The row-major index in the whole tensor of element i of a box of it.
[[nodiscard]] std::int64_t global_index(const Box& box, std::int64_t i, const Shape& shape);

// "10x6" (a scalar is "scalar") and "[0,5)x[0,6)".
[[nodiscard]] std::string to_string(const Shape& shape);
[[nodiscard]] std::string to_string(const Box& box);

// Reads "10x6", "7" or "scalar". Throws InvalidArgument; each dim must be an integer in [0, 2^40].
[[nodiscard]] Shape parse_shape(const std::string& text);

}  // namespace hspmd
