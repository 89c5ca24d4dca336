// A small Llama on random tokens under any strategy, for tests: what it gives step by step.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "hspmd/models/llama.h"
#include "hspmd/models/training_step.h"
#include "hspmd/runtime/device_run.h"
#include "hspmd/specialize/check.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd::testing {

struct RunResult {
  std::vector<double> losses;  // means
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> leaves;  // logical tensors after the last step
};

struct RunSetting {
  LlamaConfig model;
  std::int64_t sequence_length = 8;
  int steps = 10;
  Precision precision = Precision::kFp64;
  Backend backend = Backend::kReference;
  std::string interface;  // between hosts
};

// Sequence i of step t is the same under every strategy; pipelines take the batch in order. Some targets are masked.
inline void feed_tokens(const Strategy& strategy, const RunSetting& setting, int step, const FeedRequest& request) {
  const std::string& name = request.feed->name;
  if (request.micro_batch < 0) {
    const double values[3] = {1e-2, 1 - std::pow(0.9, step + 1), 1 - std::pow(0.95, step + 1)};
    for (int i = 0; i < 3; ++i) {
      if (setting.precision == Precision::kFp64) {
        static_cast<double*>(request.data)[i] = values[i];
      } else {
        static_cast<float*>(request.data)[i] = static_cast<float>(values[i]);
      }
    }
    return;
  }
  std::int64_t first = 0;
  for (int p = 0; p < request.pipeline; ++p) first += strategy.pipelines[static_cast<std::size_t>(p)].sequences();
  const auto& sizes = strategy.pipelines[static_cast<std::size_t>(request.pipeline)].micro_batch_sizes;
  for (int m = 0; m < request.micro_batch; ++m) first += sizes[static_cast<std::size_t>(m)];
  auto* data = static_cast<std::int32_t*>(request.data);
  const Box& box = *request.box;
  for (std::int64_t b = box[0].begin; b < box[0].end; ++b) {
    for (std::int64_t s = box[1].begin; s < box[1].end; ++s) {
      const std::int64_t sequence = step * 1000 + first + b;
      const auto token = [&](std::int64_t at) {
        return static_cast<std::int32_t>((sequence * 7919 + at * at * 31 + at * 5) % setting.model.vocabulary);
      };
      const std::int64_t document = s / 5;  // two documents in a sequence of 8
      std::int32_t value = 0;
      if (name == "ids") value = token(s);
      if (name == "targets") value = (sequence + s) % 7 == 0 ? -1 : token(s + 1);
      if (name == "positions") value = static_cast<std::int32_t>(s - document * 5);
      if (name == "segments") value = static_cast<std::int32_t>(document);
      *data++ = value;
    }
  }
}

// What a process has of a run: its device's parts of the leaves, which must be the same of `one`.
using StateCheck = std::function<void(const TrainState&)>;

// With a rendezvous this process is one device of the run; its result has no leaves.
inline RunResult run_llama(const Strategy& strategy, const RunSetting& setting, Rendezvous* rendezvous = nullptr,
                           const StateCheck& check_state = {}) {
  Graph graph;
  ModelRoles roles = llama_roles(setting.model);
  const ModelOutputs outputs = build_llama(graph, setting.model);
  ops::AdamWAttributes adamw;
  adamw.weight_decay = 0.1;
  adamw.clip_norm = 0.5;
  build_training_step(graph, {outputs.loss, outputs.tokens}, adamw, roles);
  const Plan plan = expand(strategy, roles);
  RunOptions options;
  options.precision = setting.precision;
  options.backend = setting.backend;
  options.schedule = strategy.schedule;
  options.sequence_length = setting.sequence_length;
  for (const PipelineSpec& pipeline : strategy.pipelines)
    options.micro_batch_sizes.push_back(pipeline.micro_batch_sizes);
  options.timeout_s = 30;
  options.interface = setting.interface;
  const Cluster cluster = Cluster::uniform(8);
  const auto made =
      rendezvous == nullptr
          ? std::make_unique<DeviceRun>(graph, plan, strategy.devices(), options, cluster)
          : std::make_unique<DeviceRun>(graph, plan, strategy.devices(), options, cluster, *rendezvous, "train");
  DeviceRun& run = *made;
  run.initialise();
  RunResult result;
  for (int step = 0; step < setting.steps; ++step) {
    run.step([&](const FeedRequest& request) { feed_tokens(strategy, setting, step, request); });
    result.losses.push_back(run.output("loss") / run.output("tokens"));
    result.norms.push_back(std::sqrt(run.output("sumsq")) / run.output("tokens"));
  }
  const TrainState state = run.state();
  if (check_state) check_state(state);
  if (rendezvous != nullptr) return result;
  for (const auto& [name, tensor] : state.tensors) result.leaves[name] = logical_values(tensor, state.element_bytes);
  return result;
}

}  // namespace hspmd::testing
