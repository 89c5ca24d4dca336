// bench/resolve: how fast resolutions are found, how many bytes they move, how near their finish is to the bound.
//
//   one weight     8192x8192 in bf16 between random asymmetric layouts over 16 H800 and 32 H20, six nodes of eight
//   whole model    the parameters of Llama 70B from one strategy on 1,024 devices to another, fused
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "hspmd/comm/comm_plan.h"

namespace hspmd {
namespace {

constexpr int kBf16 = 2;
constexpr double kGb = 1e9;

using Random = std::mt19937;

std::size_t draw(Random& random, std::size_t least, std::size_t most) {
  return least + random() % (most - least + 1);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

ClusterNode node(int type, double link_gb, double nic_gb) {
  ClusterNode n;
  n.type = type;
  n.devices = 8;
  n.link = {link_gb * kGb, 2e-6};
  n.nic = {nic_gb * kGb, 5e-6};
  return n;
}

// 16 H800 (NVLink 400 GB/s) and 32 H20 (900 GB/s), in nodes of 8 behind NICs of 50 GB/s.
Cluster mixed_cluster() {
  DeviceType h800, h20;
  h800.name = "h800";
  h20.name = "h20";
  std::vector<ClusterNode> nodes(2, node(0, 400, 50));
  nodes.resize(6, node(1, 900, 50));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].name = fmt::format("n{}", i);
  return {{h800, h20}, nodes};
}

Cluster large_cluster() {
  DeviceType type;
  type.name = "h800";
  std::vector<ClusterNode> nodes(128, node(0, 400, 50));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].name = fmt::format("n{}", i);
  return {{type}, nodes};
}

std::vector<Device> range(std::size_t first, std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(static_cast<Device>(first + i));
  return devices;
}

// Data-parallel pipelines whose stages hold the weight with tensor parallelism of unlike degrees, some by weights.
Annotation random_weight(Random& random) {
  std::vector<Subgroup> subgroups;
  for (std::size_t first = draw(random, 0, 7); first < 44;) {
    const std::size_t degree = std::min<std::size_t>(std::size_t{1} << draw(random, 0, 3), 48 - first);
    const std::size_t odd = draw(random, 0, 3) == 0 && degree > 2 ? degree - 1 : degree;
    Axis axis{Split{static_cast<int>(draw(random, 0, 1))}, static_cast<int>(odd)};
    if (draw(random, 0, 3) == 0) {
      for (std::size_t i = 0; i < odd; ++i) axis.weights.push_back(static_cast<std::int64_t>(draw(random, 1, 3)));
    }
    subgroups.emplace_back(range(first, odd), std::vector<Axis>{axis});
    first += odd + draw(random, 0, 9);
  }
  return {std::move(subgroups), Top{Duplicate{}}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The 95 % bootstrap interval of the median.
std::pair<double, double> interval(const std::vector<double>& values) {
  Random random(3);
  std::vector<double> medians;
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> sample;
    for (std::size_t k = 0; k < values.size(); ++k) sample.push_back(values[random() % values.size()]);
    medians.push_back(median(std::move(sample)));
  }
  std::sort(medians.begin(), medians.end());
  return {medians[50], medians[1949]};
}

struct Bar {
  std::string name;
  std::vector<double> values;
  double most = 0;
};

std::string json(const Bar& bar) {
  const auto [low, high] = interval(bar.values);
  return fmt::format(R"({{"name":"{}","value":{:.4g},"interval":[{:.4g},{:.4g}],"must":"<= {:g}","met":{}}})", bar.name,
                     median(bar.values), low, high, bar.most, high <= bar.most);
}

struct Measured {
  std::vector<double> microseconds;
  std::vector<double> bytes;   // against the bound
  std::vector<double> finish;  // against the bound
};

void print(const char* what, const Measured& m) {
  std::printf("%-44s %10.1f us a tensor   bytes %.4f   finish %.4f (worst %.4f) of the bound\n", what,
              median(m.microseconds), median(m.bytes), median(m.finish),
              *std::max_element(m.finish.begin(), m.finish.end()));
}

Measured one_weight(int pairs) {
  Random random(1);
  const Cluster cluster = mixed_cluster();
  const Shape shape = {8192, 8192};
  Measured measured;
  while (static_cast<int>(measured.finish.size()) < pairs) {
    const Annotation from = random_weight(random);
    const Annotation to = random_weight(random);
    const auto begin = std::chrono::steady_clock::now();
    (void)resolve_plan(from, to, shape, cluster, kBf16);
    const double seconds = seconds_since(begin);
    const CommPlan plan = resolve(from, to, shape, cluster, kBf16);
    if (plan.bytes == 0) continue;
    measured.microseconds.push_back(1e6 * seconds);
    measured.bytes.push_back(static_cast<double>(plan.bytes) / static_cast<double>(plan.lower_bound_bytes));
    measured.finish.push_back(plan.finish_s / plan.finish_bound_s);
  }
  return measured;
}

constexpr int kLayers = 80;

// Which devices hold a layer: one group of each pipeline.
struct Pipelines {
  struct Pipeline {
    std::size_t first = 0;  // device
    std::size_t stages = 1;
    std::size_t tp = 1;
  };
  std::vector<Pipeline> pipelines;

  [[nodiscard]] Annotation of(std::size_t layer, const Placement& placement) const {
    std::vector<Subgroup> subgroups;
    for (const Pipeline& p : pipelines) {
      const std::size_t stage = layer * p.stages / kLayers;
      subgroups.emplace_back(range(p.first + stage * p.tp, p.tp),
                             std::vector<Axis>{{placement, static_cast<int>(p.tp)}});
    }
    return {std::move(subgroups), Top{Duplicate{}}};
  }
};

// 1,024 devices in pipelines of unlike depth and tensor parallelism.
Pipelines random_strategy(Random& random) {
  Pipelines result;
  for (std::size_t first = 0; first < 1024;) {
    const std::size_t tp = std::size_t{1} << draw(random, 1, 3);
    const std::size_t stages = draw(random, 4, 20);
    if (first + tp * stages > 1024) {
      result.pipelines.push_back({first, std::max<std::size_t>((1024 - first) / tp, 1), std::min(tp, 1024 - first)});
      break;
    }
    result.pipelines.push_back({first, stages, tp});
    first += (tp * stages + 7) / 8 * 8;
  }
  return result;
}

Measured whole_model(int pairs) {
  Random random(2);
  const Cluster cluster = large_cluster();
  struct Weight {
    Shape shape;
    Placement placement;
  };
  const std::vector<Weight> weights = {{{8192, 8192}, Split{0}},  {{1024, 8192}, Split{0}},  {{1024, 8192}, Split{0}},
                                       {{8192, 8192}, Split{1}},  {{28672, 8192}, Split{0}}, {{28672, 8192}, Split{0}},
                                       {{8192, 28672}, Split{1}}, {{8192}, Duplicate{}},     {{8192}, Duplicate{}}};
  Measured measured;
  for (int i = 0; i < pairs; ++i) {
    const Pipelines before = random_strategy(random);
    const Pipelines after = random_strategy(random);
    std::vector<Annotation> layouts;
    layouts.reserve(2 * kLayers * weights.size());
    std::vector<Relayout> tensors;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      for (const Weight& w : weights) {
        layouts.push_back(before.of(layer, w.placement));
        layouts.push_back(after.of(layer, w.placement));
        tensors.push_back({&layouts[layouts.size() - 2], &layouts.back(), w.shape, kBf16});
      }
    }
    const auto begin = std::chrono::steady_clock::now();
    (void)resolve_fused_plans(tensors, cluster);
    measured.microseconds.push_back(1e6 * seconds_since(begin) / static_cast<double>(tensors.size()));
    const std::vector<CommPlan> plans = resolve_fused(tensors, cluster);
    double bytes = 0, bound = 0;
    for (const CommPlan& plan : plans) {
      bytes += static_cast<double>(plan.bytes);
      bound += static_cast<double>(plan.lower_bound_bytes);
    }
    measured.bytes.push_back(bytes / bound);
    measured.finish.push_back(plans.front().finish_s / plans.front().finish_bound_s);
  }
  return measured;
}

}  // namespace
}  // namespace hspmd

int main() {
  using namespace hspmd;
  const Measured weight = one_weight(300);
  print("one weight, 48 devices, 300 pairs", weight);
  const Measured model = whole_model(15);
  print("Llama 70B, 1,024 devices, fused, 15 pairs", model);
  const std::vector<Bar> bars = {{"one weight, bytes / bound", weight.bytes, 1.0},
                                 {"one weight, finish / bound", weight.finish, 1.05},
                                 {"one weight, microseconds", weight.microseconds, 1000},
                                 {"whole model, bytes / bound", model.bytes, 1.0},
                                 {"whole model, finish / bound", model.finish, 1.05},
                                 {"whole model, microseconds a tensor", model.microseconds, 1000}};
  std::string line;
  for (const Bar& bar : bars) line += (line.empty() ? "" : ",") + json(bar);
  std::printf("{\"bench\":\"resolve\",\"bars\":[%s]}\n", line.c_str());
  return 0;
}
