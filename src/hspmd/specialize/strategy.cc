#include "hspmd/specialize/strategy.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace hspmd {
namespace {

constexpr std::size_t kMostProblems = 20;  // one slip of the pen may repeat on every device

void find_stage_problems(const StageSpec& stage, const std::string& where, std::vector<std::string>& found) {
  const auto count = static_cast<std::int64_t>(stage.devices.size());
  if (stage.devices.empty()) found.push_back(where + ": devices must name at least one device");
  if (stage.tp < 1 || stage.cp < 1 || static_cast<std::int64_t>(stage.tp) * stage.cp != count) {
    found.push_back(
        fmt::format("{}: tp x cp must be the {} devices. Received tp {} and cp {}", where, count, stage.tp, stage.cp));
  }
  if (!stage.tp_weights.empty() && stage.tp_weights.size() != static_cast<std::size_t>(stage.tp)) {
    found.push_back(fmt::format("{}: tp_weights must have {} entries, one a part. Received {}", where, stage.tp,
                                stage.tp_weights.size()));
  } else if (std::any_of(stage.tp_weights.begin(), stage.tp_weights.end(),
                         [](std::int64_t w) { return w < 0 || w > (1 << 20); }) ||
             (!stage.tp_weights.empty() &&
              std::all_of(stage.tp_weights.begin(), stage.tp_weights.end(), [](std::int64_t w) { return w == 0; }))) {
    found.push_back(fmt::format("{}: tp_weights must be from 0 to 2^20, not all 0. Received [{}]", where,
                                fmt::join(stage.tp_weights, ", ")));
  }
  for (const Device d : stage.devices) {
    if (d < 0 || d >= (1 << 20))
      found.push_back(fmt::format("{}: a device must be from 0 to 2^20 - 1. Received {}", where, d));
  }
}

void find_layer_problems(const PipelineSpec& pipeline, const std::string& where, int layers,
                         std::vector<std::string>& found) {
  int next = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const LayerRange range = pipeline.stages[s].layers;
    const std::string stage = fmt::format("{}.stages[{}].layers", where, s);
    if (range.begin > range.end)
      found.push_back(
          fmt::format("{}: must be [begin, end) with begin <= end. Received [{}, {}]", stage, range.begin, range.end));
    if (range.begin > next)
      found.push_back(fmt::format("{}: layers {} to {} are missing before it; begin must be {}. Received [{}, {}]",
                                  stage, next, range.begin - 1, next, range.begin, range.end));
    if (range.begin < next)
      found.push_back(fmt::format("{}: overlaps the stage before; begin must be {}. Received [{}, {}]", stage, next,
                                  range.begin, range.end));
    next = std::max(next, range.end);
  }
  if (next != layers && !pipeline.stages.empty()) {
    found.push_back(fmt::format("{}: its stages must hold the model's {} layers, the last must end at {}. Received {}",
                                where, layers, layers, next));
  }
}

Annotation joined(std::vector<Subgroup> subgroups, Placement top) {
  return {std::move(subgroups), Top{top}};
}

class Expander {
 public:
  Expander(const Strategy& strategy, const ModelRoles& roles) : strategy_(strategy), roles_(roles) {}

  Plan run() {
    Plan plan;
    for (const auto& [name, role] : roles_.tensors) plan.set_tensor(name, annotation(role));
    for (const auto& [name, role] : roles_.reshards) plan.set_reshard(name, annotation(role));
    return plan;
  }

 private:
  Annotation annotation(const Role& role) const {
    if (role.where == Where::kEverywhere) {
      const std::vector<Device> all = strategy_.devices();
      const auto count = static_cast<int>(all.size());
      return Annotation(Subgroup(all, {{role.addends ? Placement{Partial{}} : Placement{Duplicate{}}, count}}));
    }
    std::vector<Subgroup> subgroups;
    for (const PipelineSpec& pipeline : strategy_.pipelines) subgroups.push_back(subgroup(pipeline, role));
    return joined(std::move(subgroups),
                  role.batch_dim == kNoDim ? Placement{Duplicate{}} : Placement{Split{role.batch_dim}});
  }

  Subgroup subgroup(const PipelineSpec& pipeline, const Role& role) const {
    if (role.where == Where::kPipeline) {
      std::vector<Device> all;
      for (const StageSpec& stage : pipeline.stages) all.insert(all.end(), stage.devices.begin(), stage.devices.end());
      const auto count = static_cast<int>(all.size());
      return {std::move(all), {{Duplicate{}, count}}};
    }
    const StageSpec& stage = stage_of(pipeline, role);
    std::vector<Axis> axes = {
        {role.context_dim == kNoDim ? Placement{Duplicate{}} : Placement{Split{role.context_dim}}, stage.cp}};
    add_tensor_axes(axes, stage, role);
    return {stage.devices, std::move(axes)};
  }

  static const StageSpec& stage_of(const PipelineSpec& pipeline, const Role& role) {
    if (role.where == Where::kFirst) return pipeline.stages.front();
    if (role.where == Where::kLast) return pipeline.stages.back();
    for (const StageSpec& stage : pipeline.stages) {
      if (role.layer >= stage.layers.begin && role.layer < stage.layers.end) return stage;
    }
    throw InternalError("[strategy] a layer of a checked strategy lies on a stage");
  }

  void add_tensor_axes(std::vector<Axis>& axes, const StageSpec& stage, const Role& role) const {
    if (role.heads_dim != kNoDim) {
      const HeadCut heads =
          stage.tp_weights.empty() ? cut_heads(roles_.kv_heads, roles_.group, stage.tp) : HeadCut{stage.tp, 1};
      axes.push_back({Split{role.heads_dim}, heads.kv, stage.tp_weights});
      axes.push_back(
          {role.group_dim == kNoDim ? Placement{Duplicate{}} : Placement{Split{role.group_dim}}, heads.group});
      return;
    }
    const bool sequence = role.sequence_dim != kNoDim && stage.sequence_parallel == SequenceParallel::kOn;
    const int dim = role.tensor_dim != kNoDim ? role.tensor_dim : sequence ? role.sequence_dim : kNoDim;
    if (dim == kNoDim) {
      axes.push_back({Duplicate{}, stage.tp});
    } else {
      axes.push_back({Split{dim}, stage.tp, stage.tp_weights});
    }
  }

  const Strategy& strategy_;
  const ModelRoles& roles_;
};

}  // namespace

std::int64_t PipelineSpec::sequences() const {
  return std::accumulate(micro_batch_sizes.begin(), micro_batch_sizes.end(), std::int64_t{0});
}

std::int64_t Strategy::global_batch() const {
  std::int64_t total = 0;
  for (const PipelineSpec& pipeline : pipelines) total += pipeline.sequences();
  return total;
}

std::vector<Device> Strategy::devices() const {
  std::vector<Device> all;
  for (const PipelineSpec& pipeline : pipelines) {
    for (const StageSpec& stage : pipeline.stages) all.insert(all.end(), stage.devices.begin(), stage.devices.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> problems(const Strategy& strategy, int layers) {
  std::vector<std::string> found;
  if (strategy.pipelines.empty()) found.emplace_back("pipelines: must have at least one");
  std::map<Device, std::string> used;
  for (std::size_t p = 0; p < strategy.pipelines.size(); ++p) {
    const PipelineSpec& pipeline = strategy.pipelines[p];
    const std::string where = fmt::format("pipelines[{}]", p);
    if (pipeline.stages.empty()) found.push_back(where + ".stages: must have at least one");
    if (pipeline.micro_batch_sizes.empty()) found.push_back(where + ".micro_batches: must be at least 1");
    for (const std::int64_t size : pipeline.micro_batch_sizes) {
      if (size < 1 || size > (1 << 20))
        found.push_back(fmt::format("{}.micro_batch_size: must be from 1 to 2^20. Received {}", where, size));
    }
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const std::string stage = fmt::format("{}.stages[{}]", where, s);
      find_stage_problems(pipeline.stages[s], stage, found);
      for (const Device d : pipeline.stages[s].devices) {
        const auto [other, fresh] = used.emplace(d, stage);
        if (!fresh)
          found.push_back(fmt::format("{}.devices: device {} stands already in {}; a device takes part once", stage, d,
                                      other->second));
      }
    }
    find_layer_problems(pipeline, where, layers, found);
  }
  if (found.size() > kMostProblems) {
    const std::size_t more = found.size() - kMostProblems;
    found.resize(kMostProblems);
    found.push_back(fmt::format("and {} problems more", more));
  }
  return found;
}

std::vector<std::string> problems(const Strategy& strategy, const Cluster& cluster) {
  std::vector<std::string> found;
  for (std::size_t p = 0; p < strategy.pipelines.size(); ++p) {
    const auto& stages = strategy.pipelines[p].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (const Device d : stages[s].devices) {
        if (d >= cluster.device_count())
          found.push_back(fmt::format("pipelines[{}].stages[{}].devices: device {} must be one of the cluster's {}", p,
                                      s, d, cluster.device_count()));
      }
    }
  }
  return found;
}

HeadCut cut_heads(int kv_heads, int group, int tp) {
  HeadCut best;
  std::int64_t least = 0;
  for (int kv = tp; kv >= 1; --kv) {  // descending: ties to the larger
    if (tp % kv != 0) continue;
    const int rest = tp / kv;
    const std::int64_t work = static_cast<std::int64_t>((kv_heads + kv - 1) / kv) * ((group + rest - 1) / rest);
    if (least != 0 && work >= least) continue;
    least = work;
    best = {kv, rest};
  }
  return best;
}

Plan expand(const Strategy& strategy, const ModelRoles& roles) {
  const auto found = problems(strategy, roles.layers);
  if (!found.empty()) invalid("[strategy] {}", fmt::join(found, "\n[strategy] "));
  return Expander(strategy, roles).run();
}

Strategy one_device(int layers, std::int64_t global_batch, std::int64_t micro_batch_size) {
  PipelineSpec pipeline;
  for (std::int64_t left = global_batch; left > 0; left -= micro_batch_size)
    pipeline.micro_batch_sizes.push_back(std::min(left, micro_batch_size));
  StageSpec stage;
  stage.devices = {0};
  stage.layers = {0, layers};
  pipeline.stages.push_back(stage);
  return {"one device", ScheduleKind::kOneFOneB, {pipeline}};
}

std::string picture(const Strategy& strategy) {
  std::string text;
  for (std::size_t p = 0; p < strategy.pipelines.size(); ++p) {
    const PipelineSpec& pipeline = strategy.pipelines[p];
    std::string boxes;
    for (const StageSpec& stage : pipeline.stages) {
      std::string degrees = stage.tp > 1 ? fmt::format(" TP {}", stage.tp) : "";
      if (stage.cp > 1) degrees += fmt::format(" CP {}", stage.cp);
      const LayerRange range = stage.layers;
      const std::string layers =
          range.begin == range.end ? "no layers" : fmt::format("layers {}-{}", range.begin, range.end - 1);
      boxes += fmt::format("{}[ dev {}{} | {} ]", boxes.empty() ? "" : " --> ", fmt::join(stage.devices, ","), degrees,
                           layers);
    }
    const auto& sizes = pipeline.micro_batch_sizes;
    const bool alike = std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t s) { return s == sizes.front(); });
    const std::string batches = alike && !sizes.empty() ? fmt::format("{} x {}", sizes.size(), sizes.front())
                                                        : fmt::format("{}", fmt::join(sizes, "+"));
    text += fmt::format("pipeline {}  {}  micro-batches {}\n", p, boxes, batches);
  }
  return text;
}

}  // namespace hspmd
