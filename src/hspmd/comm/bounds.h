// What no plan can beat.
//
// least_bytes   per cell with k the fewest addends of any alternative, H all holders (of the whole value if k = 1),
//               R the requirers: |R \ H| if k = 1, else k - 1 + |R| - [R and H meet]; nothing towards Partial
// least_direct  for plans that serve every requirer from a holder: the linear relaxation of the choice of senders
// least_any     for plans that add, or whose requirers pass data on: of the bytes alone, in all and at each device and
// NIC All times count the least latency that a message has here.
#pragma once

#include <vector>

#include "hspmd/comm/assign.h"
#include "hspmd/comm/price.h"

namespace hspmd::comm {

[[nodiscard]] std::int64_t least_bytes(const Overlay& overlay, int element_bytes);

// By weak duality: for weights y >= 0 of the resources that sum to 1, no assignment finishes before the sum over the
// demands of the cheapest choice priced by y. The weights begin where a balanced assignment has its loads, and are then
// improved step by step.
[[nodiscard]] double least_direct(const std::vector<Job>& jobs, const Links& links);

[[nodiscard]] double least_any(const Overlay& overlay, int element_bytes, const DeviceIndex& devices,
                               const Cluster& cluster);

}  // namespace hspmd::comm
