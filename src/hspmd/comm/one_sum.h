// Whether all copies that a plan makes hold the same bits. Sums of floating-point numbers depend on the order in which
// they are taken, so copies that are summed apart must be summed alike; else the replicas of a parameter drift apart.
//
//   top P {0-1: Px2 | 2:} -> all copies:
//     each adds 0, 1, 2 in this order                                one sum
//     0 adds 2 to its own, then 0 and 1 all-reduce; 2 adds 0 and 1   (0+2)+1 beside 2+(0+1): not one
#pragma once

#include "hspmd/comm/comm_plan.h"

namespace hspmd::comm {

// Every element of r.to: its holders have one sum. Of a Partial r.to these are the holders of one subgroup and addend.
// Where subgroups of r.from are copies of each other but unlike sums, their values differ from the beginning: then the
// holders of one subgroup of r.to.
[[nodiscard]] bool one_sum(const CommPlan& plan, const Relayout& r);

}  // namespace hspmd::comm
