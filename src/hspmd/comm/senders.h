// The senders of a batch of copies.
//
// paired      the holder at the copy's own index: what collectives need
// balanced    BSR: each copy by the holder that lets it finish first, given the bytes, the links and what sender,
//             receiver and NICs carry already; then single copies move off the most loaded resource until nothing
//             helps. Large boxes are cut into chunks first, so that several holders can share one.
#pragma once

#include <vector>

#include "hspmd/comm/assign.h"
#include "hspmd/comm/price.h"

namespace hspmd::comm {

struct Sent {
  Copy copy;
  Device sender = 0;
};

[[nodiscard]] std::vector<Sent> paired(const std::vector<Copy>& copies);
[[nodiscard]] std::vector<Sent> balanced(const std::vector<Copy>& copies, const Cluster& cluster);

// A lower bound of the time in which any (also fractional) choice of senders can finish, latency aside: the linear
// relaxation, by weighting resources (every weighting bounds it; the weights are improved step by step).
[[nodiscard]] double finish_bound(const std::vector<Copy>& copies, const Cluster& cluster);

}  // namespace hspmd::comm
