// Strategy: the compact choice that planners make and people write; and the plan that it stands for.
//
//   pipelines, data parallel to each other; each has stages; a stage has devices (cp-major, tp-minor), layers, degrees.
//
// expand(strategy, roles) gives the annotation of every leaf and Reshard. With k0 * g0 = tp the cut of heads:
//   parameters   top D  {... tp axes}
//   activations  top S0 {... S1xcp, then tp axes}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hspmd/cluster/cluster.h"
#include "hspmd/graph/plan.h"
#include "hspmd/graph/roles.h"
#include "hspmd/schedule/schedule.h"

namespace hspmd {

struct LayerRange {
  int begin = 0;
  int end = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

enum class SequenceParallel { kOn, kOff };

struct StageSpec {
  std::vector<Device> devices;
  LayerRange layers;
  int tp = 1;
  int cp = 1;
  SequenceParallel sequence_parallel = SequenceParallel::kOn;
  Weights tp_weights = {};
  friend bool operator==(const StageSpec&, const StageSpec&) = default;
};

struct PipelineSpec {
  std::vector<std::int64_t> micro_batch_sizes;
  std::vector<StageSpec> stages;
  [[nodiscard]] std::int64_t sequences() const;
  friend bool operator==(const PipelineSpec&, const PipelineSpec&) = default;
};

struct Strategy {
  std::string name;
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  std::vector<PipelineSpec> pipelines;
  [[nodiscard]] std::int64_t global_batch() const;
  [[nodiscard]] std::vector<Device> devices() const;  // ascending
  friend bool operator==(const Strategy&, const Strategy&) = default;
};

// Everything that keeps this from being a strategy for a model of `layers` layers, a line each; empty when it is one.
[[nodiscard]] std::vector<std::string> problems(const Strategy& strategy, int layers);

// Likewise for a cluster: every device must be one of its devices.
[[nodiscard]] std::vector<std::string> problems(const Strategy& strategy, const Cluster& cluster);

// tp = k0 * g0 with the least ceil(K / k0) * ceil(G / g0), ties to the larger k0.
struct HeadCut {
  int kv = 1;     // k0
  int group = 1;  // g0
  friend bool operator==(const HeadCut&, const HeadCut&) = default;
};
[[nodiscard]] HeadCut cut_heads(int kv_heads, int group, int tp);

// Throws InvalidArgument with all problems.
[[nodiscard]] Plan expand(const Strategy& strategy, const ModelRoles& roles);

// One device, the whole batch in micro-batches of at most `micro_batch_size`.
[[nodiscard]] Strategy one_device(int layers, std::int64_t global_batch, std::int64_t micro_batch_size);

// A drawing: pipelines as rows, stages as boxes.
[[nodiscard]] std::string picture(const Strategy& strategy);

}  // namespace hspmd
