// How long one device's program of an 80-layer Llama takes on 16,384 devices of two types (pipelines of two kinds), and
// how that grows with the number of devices.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "bars.h"
#include "hspmd/models/llama.h"
#include "hspmd/models/training_step.h"
#include "hspmd/specialize/program.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd::bench {
namespace {

constexpr int kLayers = 80;
constexpr int kTp = 8;
constexpr int kStages = 8;

// Half of the pipelines run on slower devices, with the layers cut otherwise.
Strategy strategy_of(int devices) {
  Strategy strategy{"wide", ScheduleKind::kOneFOneB, {}};
  Device next = 0;
  const int pipelines = devices / (kTp * kStages);
  for (int p = 0; p < pipelines; ++p) {
    PipelineSpec pipeline{std::vector<std::int64_t>(p % 2 == 0 ? 8 : 4, 1), {}};
    for (int s = 0; s < kStages; ++s) {
      StageSpec stage;
      for (int t = 0; t < kTp; ++t) stage.devices.push_back(next++);
      const auto cut_at = [&](int i) {
        return p % 2 == 0 || i == 0 || i == kStages ? kLayers * i / kStages : kLayers * i / kStages + 2;
      };
      stage.layers = {cut_at(s), cut_at(s + 1)};
      stage.tp = kTp;
      pipeline.stages.push_back(stage);
    }
    strategy.pipelines.push_back(pipeline);
  }
  return strategy;
}

struct Result {
  double seconds = 0;
  double megabytes = 0;
  int instructions = 0;
};

// In a process of its own, so that memory is this program's alone.
Result measure(int devices) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    const auto begin = std::chrono::steady_clock::now();
    const LlamaConfig model = llama_preset("70b");
    ModelRoles roles = llama_roles(model);
    Graph graph;
    const ModelOutputs outputs = build_llama(graph, model);
    build_training_step(graph, {outputs.loss, outputs.tokens}, {}, roles);
    const Plan plan = expand(strategy_of(devices), roles);
    const Program program = specialize(graph, plan, devices / 2 + 3);
    Result result{std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 0, 0};
    for (const Section& section : program.sections)
      result.instructions += static_cast<int>(section.instructions.size());
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    result.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
    const bool sent = write(ends[1], &result, sizeof result) == static_cast<ssize_t>(sizeof result);
    _exit(sent ? 0 : 1);
  }
  Result result;
  const bool received = read(ends[0], &result, sizeof result) == static_cast<ssize_t>(sizeof result);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return received ? result : Result{};
}

void run() {
  std::vector<double> seconds, megabytes;
  Result quarter;
  for (const int devices : {1024, 4096, 16384}) {
    const Result r = measure(devices);
    fmt::print("{:>6} devices: {:.2f} s, {:.0f} MB, {} instructions\n", devices, r.seconds, r.megabytes,
               r.instructions);
    if (devices == 4096) quarter = r;
  }
  for (int i = 0; i < 5; ++i) {
    const Result r = measure(16384);
    seconds.push_back(r.seconds);
    megabytes.push_back(r.megabytes);
  }
  const double s = quantile(seconds, 0.5);
  const double m = quantile(megabytes, 0.5);
  const double growth = s / quarter.seconds / 4;
  print_bars("specialize",
             {{"seconds for one of 16,384 devices", s, quantile(seconds, 0), quantile(seconds, 1), "<= 2",
               quantile(seconds, 1) <= 2},
              {"megabytes", m, quantile(megabytes, 0), quantile(megabytes, 1), "<= 200", quantile(megabytes, 1) <= 200},
              {"growth of time over growth of the data-parallel group, 4,096 to 16,384", growth, growth, growth,
               "<= 1.1", growth <= 1.1}});
}

}  // namespace
}  // namespace hspmd::bench

int main() {
  hspmd::bench::run();
}
