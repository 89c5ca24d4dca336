// The overlay of two layouts: the space cut at every boundary of every holder before and after, and for each cell
// who holds it and who requires it.
//
//   {0-1: S0x2} -> {0-2: S0x3} of 6 rows: cells [0,2) [2,3) [3,4) [4,6)
//
// Devices of one subgroup that hold the same box are one Part, so that a cell names parts, not devices. A side of a
// cell is a list of alternatives, each a list of addends, each a list of replicas:
//   top Split        one part, the one alternative
//   top Duplicate    a part a subgroup, each an alternative
//   top Partial      a part a subgroup, whose addends all make one alternative
// A dim is cut only where parts that share the dims before are cut: a subgroup's cuts do not reach into another's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hspmd/annotation/annotation.h"

namespace hspmd::comm {

using Replicas = std::vector<Device>;

struct Part {
  Box box;  // never empty
  std::vector<Replicas> addends;
};

enum class Subgroups { kAlternatives, kAddends };

struct Layout {
  std::vector<Part> parts;  // subgroup by subgroup
  Subgroups subgroups = Subgroups::kAlternatives;
};

struct Cell {
  Box box;
  std::uint32_t first = 0;   // parts[first, middle) of the overlay are the sources' parts,
  std::uint32_t middle = 0;  // parts[middle, last) the destinations'
  std::uint32_t last = 0;
};

struct Overlay {
  Layout from;
  Layout to;
  std::vector<Cell> cells;           // row-major
  std::vector<std::uint32_t> parts;  // indices into from.parts and to.parts

  [[nodiscard]] std::span<const std::uint32_t> sources(const Cell& c) const {
    return {parts.data() + c.first, parts.data() + c.middle};
  }
  [[nodiscard]] std::span<const std::uint32_t> destinations(const Cell& c) const {
    return {parts.data() + c.middle, parts.data() + c.last};
  }
};

// Cells cover the tensor once. A shape without elements has none.
[[nodiscard]] Overlay overlay(const Annotation& from, const Annotation& to, const Shape& shape);

}  // namespace hspmd::comm
