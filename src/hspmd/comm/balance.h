// The senders of a batch of jobs.
//
// paired      the holder at the requirer's own index: what collectives need
// balanced    BSR: each requirer by the holder that lets it finish first, given the bytes, the links and what sender,
//             receiver and NICs carry already; then shares of jobs move off the more loaded of their resources until
//             nothing helps. A large box is shared out by slices among several holders.
//
//   {0-3: Dx4} -> {4-6: Dx3}    paired: 0 to 4, 1 to 5, 2 to 6    balanced: each sender sends 3/4 of the box
//
// Deterministic: jobs, holders and rounds come in a fixed order.
#pragma once

#include <vector>

#include "hspmd/comm/assign.h"
#include "hspmd/comm/price.h"

namespace hspmd::comm {

// The moves of the jobs, in their order; `tensor` tells where each belongs.
struct Sent {
  std::size_t tensor = 0;
  Move move;
};
struct Balance {
  std::vector<Sent> sent;
  Loads loads;  // that they make
};

[[nodiscard]] std::vector<Sent> paired(const std::vector<Job>& jobs);
[[nodiscard]] Balance balanced(const std::vector<Job>& jobs, const Links& links);

}  // namespace hspmd::comm
