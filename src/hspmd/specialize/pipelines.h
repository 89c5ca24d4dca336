// Pipelines are found, not declared: in each subgroup of the activations' layouts a Reshard between disjoint sets of
// devices of the forward pass begins the next virtual stage; all others stay within their stage.
#pragma once

#include <vector>

#include "hspmd/graph/layouts.h"

namespace hspmd {

// What every node of the graph is to one pipeline.
struct PipelineView {
  std::vector<int> virtual_stage;  // by node; of the receiving side where a Reshard crosses; 0 outside micro-batches
  std::vector<bool> crosses;       // by node
  int stages = 1;
};
[[nodiscard]] PipelineView view_pipeline(const Graph& graph, Layouts& layouts, int pipeline);

// Whether a node runs in the sections of a micro-batch: an accumulation runs with the value it sums.
[[nodiscard]] bool runs_each_micro_batch(const Graph& graph, const Node& node);

// The number of pipelines: subgroups of the activations' layouts.
[[nodiscard]] int pipeline_count(const Graph& graph, Layouts& layouts);

// The devices of each virtual stage of a pipeline, ascending.
[[nodiscard]] std::vector<std::vector<Device>> stage_devices(const Graph& graph, Layouts& layouts, int pipeline);

}  // namespace hspmd
