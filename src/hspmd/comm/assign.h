// Who sends what to whom: the moves that serve every requirer of every cell, before they are named and priced.
//
// A cell whose fewest addends are 1 is copied: a requirer that holds it keeps it, the others are served by a holder.
// A cell with more is reduced first, where no requirers beyond the reducing group stand in one stage:
//   requirers = a reducing group          one stage, each sums (AllReduce)
//   one requirer                          one stage, it sums (ReduceScatter)
//   anything else                         reduced at one device (of both sides if there is one), then copied
// A destination with several addends takes one alternative whole; each source addend goes to exactly one
// destination addend, where the fewest bytes move; the others are zeros.
#pragma once

#include <vector>

#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/overlay.h"

namespace hspmd::comm {

// A copy whose sender is still open: every device of `holders` could send the box to `requirer`.
struct Copy {
  std::size_t tensor = 0;  // of a fused resolution
  Box box;
  std::vector<Device> holders;
  Device requirer = 0;
  std::size_t pair = 0;   // the holder at this index (modulo) pairs with the requirer in a collective
  std::int64_t bytes = 0;
};

// The moves of up to two stages. `copies` belong to the last stage.
struct Assignment {
  bool reduces_first = false;         // two stages: `first`, then `last` with `copies`
  std::vector<Move> first;
  std::vector<Move> last;
  std::vector<Copy> copies;
};

[[nodiscard]] Assignment assign(const std::vector<Cell>& cells, int element_bytes);

}  // namespace hspmd::comm
