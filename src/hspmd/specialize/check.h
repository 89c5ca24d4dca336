// What `hspmd check` proves of a plan, by specialising and binding the programs of all devices:
//   every send has its receive (and every receive its send), box by box
//   the schedule of every pipeline is complete and free of deadlock when sends block
//   every layout follows, every activation stays within its pipeline
//   memory fits the devices of the cluster
#pragma once

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
};

// Every problem found, a line each; empty when all is proven.
[[nodiscard]] std::vector<std::string> check(const CheckRequest& request);

}  // namespace hspmd
