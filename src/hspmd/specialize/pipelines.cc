#include "hspmd/specialize/pipelines.h"

#include <algorithm>
#include <map>
#include <set>

namespace hspmd {
namespace {

const std::vector<Device>& devices_in(const Graph& graph, Layouts& layouts, ValueId value, int pipeline) {
  const Annotation& anchor = layouts.anchor(value);
  if (pipeline >= static_cast<int>(anchor.subgroups().size())) {
    invalid("[pipelines] every activation must have a part in each pipeline; {} has {} subgroups: {}",
            graph.label(value), anchor.subgroups().size(), to_string(anchor));
  }
  return anchor.subgroups()[static_cast<std::size_t>(pipeline)].devices();
}

bool disjoint(const std::vector<Device>& a, const std::vector<Device>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) == a.end();
}

bool forward_activation(const Node& node) {
  return node.time == Time::kMicroBatch && node.phase == Phase::kForward;
}

class Viewer {
 public:
  Viewer(const Graph& graph, Layouts& layouts, int pipeline) : graph_(graph), layouts_(layouts), pipeline_(pipeline) {
    view_.virtual_stage.assign(graph.nodes().size(), kUnset);
    view_.crosses.assign(graph.nodes().size(), false);
  }

  PipelineView run() {
    walk_forward();
    settle_inputs();
    settle_rest();
    follow_origins();
    view_.stages = 1 + *std::max_element(view_.virtual_stage.begin(), view_.virtual_stage.end());
    return std::move(view_);
  }

 private:
  static constexpr int kUnset = -1;

  int& stage_of(ValueId value) { return view_.virtual_stage[static_cast<std::size_t>(graph_.value(value).producer)]; }

  bool crossing(const Node& node) {
    if (!std::holds_alternative<Reshard>(node.what)) return false;
    const auto& from = devices_in(graph_, layouts_, node.inputs.front(), pipeline_);
    const auto& to = devices_in(graph_, layouts_, node.outputs.front(), pipeline_);
    const auto [found, fresh] = disjoint_.try_emplace({&from, &to}, false);
    if (fresh) found->second = disjoint(from, to);
    return found->second;
  }

  void walk_forward() {
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (!runs_each_micro_batch(graph_, node)) continue;
      view_.crosses[n] = node.time == Time::kMicroBatch && crossing(node);
      if (node.phase != Phase::kForward) continue;
      int stage = kUnset;
      for (const ValueId input : node.inputs) stage = std::max(stage, stage_of(input));
      view_.virtual_stage[n] = view_.crosses[n] ? std::max(stage, 0) + 1 : stage;
    }
  }

  // What depends on placeholders alone stands where it is used first.
  void settle_inputs() {
    std::vector<int> used(graph_.nodes().size(), kUnset);
    for (std::size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      if (!forward_activation(node) && !(node.phase == Phase::kForward && runs_each_micro_batch(graph_, node)))
        continue;
      int& stage = view_.virtual_stage[n];
      if (stage == kUnset) stage = used[n];
      if (stage == kUnset) continue;
      const int before = view_.crosses[n] ? stage - 1 : stage;
      for (const ValueId input : node.inputs) {
        int& use = used[static_cast<std::size_t>(graph_.value(input).producer)];
        use = use == kUnset ? before : std::min(use, before);
      }
    }
  }

  // What nobody uses later (a count of tokens) stands beside what it reads.
  void settle_rest() {
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      int& stage = view_.virtual_stage[n];
      if (stage != kUnset) continue;
      stage = 0;
      const Node& node = graph_.nodes()[n];
      if (node.phase != Phase::kForward || !runs_each_micro_batch(graph_, node)) continue;
      for (const ValueId input : node.inputs) stage = std::max(stage, stage_of(input));
    }
  }

  // A gradient stands with its forward node; the sum of a parameter's gradients with what it sums.
  void follow_origins() {
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.phase != Phase::kBackward || !node.origin) continue;
      const bool of_parameter = graph_.node(*node.origin).time == Time::kStep && !node.inputs.empty();
      view_.virtual_stage[n] =
          of_parameter ? stage_of(node.inputs.front()) : view_.virtual_stage[static_cast<std::size_t>(*node.origin)];
    }
  }

  const Graph& graph_;
  Layouts& layouts_;
  int pipeline_;
  PipelineView view_;
  std::map<std::pair<const std::vector<Device>*, const std::vector<Device>*>, bool> disjoint_;
};

}  // namespace

bool runs_each_micro_batch(const Graph& graph, const Node& node) {
  if (node.time == Time::kMicroBatch) return true;
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId v) { return graph.producer(v).time == Time::kMicroBatch; });
}

PipelineView view_pipeline(const Graph& graph, Layouts& layouts, int pipeline) {
  return Viewer(graph, layouts, pipeline).run();
}

int pipeline_count(const Graph& graph, Layouts& layouts) {
  for (const Node& node : graph.nodes()) {
    if (node.time == Time::kMicroBatch && node.phase == Phase::kForward) {
      return static_cast<int>(layouts.anchor(node.outputs.front()).subgroups().size());
    }
  }
  return 1;
}

std::vector<std::vector<Device>> stage_devices(const Graph& graph, Layouts& layouts, int pipeline) {
  const PipelineView view = view_pipeline(graph, layouts, pipeline);
  std::vector<std::set<Device>> stages(static_cast<std::size_t>(view.stages));
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (!forward_activation(node) || std::holds_alternative<Leaf>(node.what)) continue;
    const auto& devices = devices_in(graph, layouts, node.outputs.front(), pipeline);
    stages[static_cast<std::size_t>(view.virtual_stage[n])].insert(devices.begin(), devices.end());
  }
  std::vector<std::vector<Device>> lists;
  lists.reserve(stages.size());
  for (const auto& stage : stages) lists.emplace_back(stage.begin(), stage.end());
  return lists;
}

}  // namespace hspmd
