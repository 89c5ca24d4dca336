// `hspmd-train/1`: everything of one training run. docs/formats.md describes each key and its default.
//
//   format: hspmd-train/1
//   model: {preset: tiny}
//   data: {path: text}
//   steps: 20
//
//   load_train_config("run.yaml", {{"optimizer.lr", "3e-4"}, {"strategy.pipelines.0.micro_batches", "2"}})
//
// Relative paths in a file are relative to its folder, those of an override to the working folder. What is read here
// has been checked as far as that goes without building the model: the strategy fits the model's layers and the
// cluster's devices, files and folders exist.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "hspmd/config/config_node.h"
#include "hspmd/models/llama.h"
#include "hspmd/runtime/executor.h"
#include "hspmd/specialize/strategy_file.h"

namespace hspmd {

struct DataConfig {
  std::vector<std::string> paths;
  std::vector<std::string> validation;  // empty: none
  std::int64_t sequence_length = 128;
  bool shuffle = true;
  std::int64_t global_batch = 0;  // 0: the strategy's sum
};

struct OptimizerConfig {
  double lr = 1e-3;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double clip_norm = 1;
};

enum class TransportKind { kThreads, kProcesses };

struct TrainConfig {
  LlamaConfig model;
  std::string model_name;
  DataConfig data;
  OptimizerConfig optimizer;
  Precision precision = Precision::kFp32;
  std::int64_t steps = 50;
  std::int64_t stop_after = 0;  // 0: run all steps; else stop so early, on the schedule of all
  [[nodiscard]] std::int64_t last_step() const { return stop_after > 0 ? std::min(stop_after, steps) : steps; }
  std::uint64_t seed = 1;
  std::optional<Strategy> strategy;             // absent: one device
  std::optional<PlanFile> plan;                 // in place of the strategy's own plan
  std::optional<TransportKind> transport;       // absent: processes where a launcher started this one, else threads
  std::string interface;                        // network interface between hosts
  std::string network_transports = "tcp,self";  // UCX's names of what it may use there
  double timeout_s = 60;
  Backend backend = Backend::kAten;
  std::optional<Cluster> cluster;
  std::string log_json;
  std::string trace;  // file for Perfetto; empty: none
  std::int64_t log_every = 1;
  std::int64_t eval_every = 0;  // 0: never
};

struct Override {
  std::string key;  // "optimizer.lr"
  std::string value;
};

// Reads a run file once and applies the overrides; one may reach into the file that `strategy` names.
// Throws InvalidArgument with all that config_node.h promises.
[[nodiscard]] ConfigNode load_run(const std::string& path, const std::vector<Override>& overrides);
[[nodiscard]] TrainConfig read_train_config(const ConfigNode& root);
[[nodiscard]] TrainConfig load_train_config(const std::string& path, const std::vector<Override>& overrides);
// The file with the overrides, as YAML.
[[nodiscard]] std::string print_train_config(const ConfigNode& root);

// A model by preset name, or by the path of a Hugging Face config. Throws InvalidArgument where it is neither.
[[nodiscard]] LlamaConfig load_model(const std::string& preset_or_path);

// The strategy of the run: the file's, the plan's, or one device.
[[nodiscard]] Strategy strategy_of(const TrainConfig& config);

// Linear warm-up, then cosine to min_lr at the last step; t from 1. Source: Loshchilov and Hutter 2017, one cycle.
[[nodiscard]] double learning_rate(const OptimizerConfig& optimizer, std::int64_t t, std::int64_t steps);

}  // namespace hspmd
