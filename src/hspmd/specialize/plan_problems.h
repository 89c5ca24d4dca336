// Whether a plan is one for a graph under a strategy. A plan file is written by hand or by a planner; what it says must
// be what the strategy counts on.
//
//   tensors.model.norm.wieght is not known; the nearest known name is "model.norm.weight"
//   reshards.head.input must lie on the strategy's devices; 7 is none of them. Received {0,7: S1x2}
//   tensors.ids must have a subgroup for each of the strategy's 2 pipelines. Received {0-1: Dx2}
#pragma once

#include <string>
#include <vector>

#include "hspmd/graph/graph.h"
#include "hspmd/graph/plan.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd {

// Every problem, a line each, with the key in the plan file; empty when specialisation can begin. Layouts that do not
// follow from each other are found there.
[[nodiscard]] std::vector<std::string> problems(const Plan& plan, const Strategy& strategy, const Graph& graph);

}  // namespace hspmd
