// The overlay of two layouts: the space cut at every boundary of every holder before and after, and for each cell
// who holds it and who requires it.
//
//   {0-1: S0x2} -> {0-2: S0x3} of 6 rows: cells [0,2) [2,3) [3,4) [4,6)
//
// A side of a cell is a list of alternatives (top Duplicate: one a subgroup; Split: one; Partial: all subgroups
// merged into one), each a list of addends, each a list of replicas.
#pragma once

#include <vector>

#include "hspmd/annotation/annotation.h"

namespace hspmd::comm {

using Replicas = std::vector<Device>;
using Alternative = std::vector<Replicas>;  // by addend
using Side = std::vector<Alternative>;

struct Cell {
  Box box;
  Side source;
  Side destination;
};

// Cells in row-major order. A shape without elements has none.
[[nodiscard]] std::vector<Cell> overlay(const Annotation& from, const Annotation& to, const Shape& shape);

// The boundaries that overlay cuts at, per dim, ascending, the ends included.
[[nodiscard]] std::vector<std::vector<std::int64_t>> boundaries(const Annotation& from, const Annotation& to, const Shape& shape);

}  // namespace hspmd::comm
