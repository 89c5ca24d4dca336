// What `hspmd check` proves of a plan, by specialising and binding the programs of all devices:
//   the plan names what the graph has, on the devices of the strategy (plan_problems.h)
//   every send has its receive (and every receive its send), box by box
//   the schedule of every pipeline is complete and free of deadlock when sends block
//   the exchanges of the real programs, run in that order, all come to their end (replay.h)
//   every layout follows, every activation stays within its pipeline
//   memory fits the devices of the cluster: what a run plans, to the byte
//
//   check({.graph = &graph, .plan = &plan, .strategy = &strategy, .cluster = &cluster})
//     {}, or {"device 0 (h800) must hold 97165484032 bytes (90.492 GiB), has 85899345920 (80.000 GiB); give it ..."}
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hspmd/specialize/bind.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd {

struct CheckRequest {
  const Graph* graph = nullptr;
  const Plan* plan = nullptr;
  const Strategy* strategy = nullptr;
  const Cluster* cluster = nullptr;  // its memory limits hold
  std::int64_t sequence_length = 128;
  std::size_t float_bytes = 4;
  // What the kernel of an instruction works in, in bytes (runtime/prepare.h). Without it that is not counted.
  std::function<std::size_t(const BoundCompute&)> workspace = {};
  // A second program that the devices hold beside the first: the evaluation of a training run.
  const Graph* evaluation = nullptr;
  const Plan* evaluation_plan = nullptr;
};

// Every problem found, a line each; empty when all is proven.
[[nodiscard]] std::vector<std::string> check(const CheckRequest& request);

}  // namespace hspmd
