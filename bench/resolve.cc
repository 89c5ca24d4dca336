// How long resolution takes and how good its plans are:
//   one weight between random asymmetric annotations over 48 devices (nodes of 8: 2 of H800, 4 of H20)
//   the parameters of an 80-layer Llama from one strategy on 1,024 devices to another, balanced together
#include <chrono>
#include <random>

#include "bars.h"
#include "hspmd/comm/comm_plan.h"
#include "hspmd/models/llama.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Cluster mixed_cluster() {
  DeviceType h800{"h800", {{"bf16", 990e12}}, 80.0 * (1 << 30), 3350e9};
  DeviceType h20{"h20", {{"bf16", 148e12}}, 96.0 * (1 << 30), 4000e9};
  std::vector<ClusterNode> nodes;
  for (int n = 0; n < 6; ++n) {
    const bool fast = n < 2;
    nodes.push_back({fmt::format("n{}", n), fast ? 0 : 1, 8, {fast ? 400e9 : 900e9, 2e-6}, {50e9, 5e-6}});
  }
  return {{h800, h20}, nodes};
}

// Pipelines of unlike TP degrees over all devices, copies of one another or split along a dim.
Annotation random_annotation(std::mt19937& random) {
  const auto draw = [&](int least, int most) { return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1)); };
  std::vector<Device> ids(48);
  for (int d = 0; d < 48; ++d) ids[static_cast<std::size_t>(d)] = d;
  if (draw(0, 1) == 0) std::shuffle(ids.begin(), ids.end(), random);
  std::vector<Subgroup> subgroups;
  std::size_t at = 0;
  while (at < ids.size()) {
    const auto size = static_cast<std::size_t>(std::min<int>(draw(1, 8), static_cast<int>(ids.size() - at)));
    const int dim = draw(0, 1);
    subgroups.emplace_back(std::vector<Device>(ids.begin() + static_cast<long>(at), ids.begin() + static_cast<long>(at + size)),
                           std::vector<Axis>{{Split{dim}, static_cast<int>(size)}});
    at += size;
    if (draw(0, 9) == 0 && at >= 16) break;
  }
  return {std::move(subgroups), Top{Duplicate{}}};
}

Strategy wide_strategy(int dp, int tp, int pp, int layers) {
  Strategy strategy{"wide", ScheduleKind::kOneFOneB, {}};
  Device next = 0;
  for (int p = 0; p < dp; ++p) {
    PipelineSpec pipeline{{1}, {}};
    for (int s = 0; s < pp; ++s) {
      StageSpec stage;
      for (int t = 0; t < tp; ++t) stage.devices.push_back(next++);
      stage.layers = {layers * s / pp, layers * (s + 1) / pp};
      stage.tp = tp;
      pipeline.stages.push_back(stage);
    }
    strategy.pipelines.push_back(pipeline);
  }
  return strategy;
}

void run() {
  constexpr int kPairs = 200;
  const Cluster cluster = mixed_cluster();
  std::mt19937 random(11);
  std::vector<double> times, byte_ratio, finish_ratio;
  for (int i = 0; i < kPairs; ++i) {
    const Annotation from = random_annotation(random);
    const Annotation to = random_annotation(random);
    const auto begin = Clock::now();
    const CommPlan fast = resolve_plan(from, to, {8192, 8192}, cluster, 2);
    times.push_back(seconds_since(begin));
    const CommPlan plan = resolve(from, to, {8192, 8192}, cluster, 2);
    if (plan.bytes == 0) continue;
    byte_ratio.push_back(static_cast<double>(plan.bytes) / static_cast<double>(plan.lower_bound_bytes));
    finish_ratio.push_back(plan.finish_s / plan.finish_bound_s);
  }
  fmt::print("one weight 8192x8192, 48 devices, {} pairs: {:.2f} ms a tensor (median), bytes / bound {:.3f}, finish / bound {:.3f} median, {:.3f} at 95 %\n", kPairs,
             quantile(times, 0.5) * 1e3, quantile(byte_ratio, 0.5), quantile(finish_ratio, 0.5), quantile(finish_ratio, 0.95));

  constexpr int kLayers = 80;
  const LlamaConfig model = llama_preset("70b");
  const ModelRoles roles = llama_roles(model);
  const Plan before = expand(wide_strategy(16, 8, 8, kLayers), roles);
  const Plan after = expand(wide_strategy(32, 4, 8, kLayers), roles);
  Graph graph;
  (void)build_llama(graph, model);
  std::vector<Relayout> tensors;
  for (const Node& node : graph.nodes()) {
    const auto* leaf = std::get_if<Leaf>(&node.what);
    if (leaf == nullptr || leaf->kind != LeafKind::kParameter) continue;
    tensors.push_back({before.leaf(leaf->name), after.leaf(leaf->name), concrete(graph.value(node.outputs.front()).type.shape, {}), 2});
  }
  std::vector<ClusterNode> nodes;
  for (int n = 0; n < 128; ++n) nodes.push_back({fmt::format("n{}", n), 0, 8, {400e9, 2e-6}, {50e9, 5e-6}});
  const Cluster large({{"h800", {{"bf16", 990e12}}, 0, 0}}, nodes);
  const auto begin = Clock::now();
  const std::vector<CommPlan> plans = resolve_fused(tensors, large);
  const double all = seconds_since(begin);
  double bytes = 0, bound = 0;
  for (const CommPlan& plan : plans) {
    bytes += static_cast<double>(plan.bytes);
    bound += static_cast<double>(plan.lower_bound_bytes);
  }
  const double model_ratio = plans.front().finish_s / plans.front().finish_bound_s;
  fmt::print("80-layer model, 1,024 devices, {} tensors: {:.2f} ms a tensor, {:.2f} s in all, bytes / bound {:.3f}, finish / bound {:.3f}\n", tensors.size(),
             all * 1e3 / static_cast<double>(tensors.size()), all, bytes / bound, model_ratio);

  const double median = quantile(finish_ratio, 0.5);
  print_bars("resolve", {{"one weight: finish / LP bound, median", median, quantile(finish_ratio, 0.025), quantile(finish_ratio, 0.975), "<= 1.05", median <= 1.05},
                         {"one weight: bytes / bound, median", quantile(byte_ratio, 0.5), quantile(byte_ratio, 0.025), quantile(byte_ratio, 0.975), "<= 1.05", quantile(byte_ratio, 0.5) <= 1.05},
                         {"80-layer model: finish / LP bound", model_ratio, model_ratio, model_ratio, "<= 1.05", model_ratio <= 1.05}});
}

}  // namespace
}  // namespace hspmd::bench

int main() { hspmd::bench::run(); }
