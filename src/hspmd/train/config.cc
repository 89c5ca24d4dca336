#include "hspmd/train/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <sstream>

#include "hspmd/models/llama_config.h"

namespace hspmd {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;

std::vector<std::string> read_paths(const ConfigNode& node) {
  std::vector<std::string> paths;
  if (node.is_list()) {
    for (const ConfigNode& path : node.list()) paths.push_back(path.path());
  } else {
    paths.push_back(node.path());
  }
  if (paths.empty()) node.fail("at least one file or folder");
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::exists(path, error))
      invalid("{}: the file or folder must exist. Received \"{}\".", node.where(), path);
  }
  return paths;
}

void read_model(const ConfigNode& node, TrainConfig& config) {
  node.expect_keys({"preset", "config", "weights"});
  if (const auto weights = node.find("weights"))
    invalid("{} is not built yet; use preset or config.", weights->where());
  const auto preset = node.find("preset");
  const auto file = node.find("config");
  if (preset.has_value() == file.has_value()) node.fail("a map with exactly one of preset and config");
  if (preset) {
    const auto names = llama_presets();
    config.model_name = preset->choice({names.begin(), names.end()});
    config.model = llama_preset(config.model_name);
  } else {
    config.model_name = file->text();
    config.model = load_llama_config(file->path());
  }
}

void read_data(const ConfigNode& node, TrainConfig& config) {
  node.expect_keys(
      {"path", "validation", "tokenizer", "sequence_length", "shuffle", "global_batch", "packing", "tokens_per_step"});
  config.data.paths = read_paths(node.at("path"));
  if (const auto validation = node.find("validation")) config.data.validation = read_paths(*validation);
  if (const auto tokenizer = node.find("tokenizer")) {
    if (tokenizer->text().starts_with("sentencepiece:"))
      invalid("{}: SentencePiece is not built yet; it must be byte.", tokenizer->where());
    (void)tokenizer->choice({"byte"});
  }
  if (const auto length = node.find("sequence_length")) config.data.sequence_length = length->integer(1, 1 << 20);
  if (const auto shuffle = node.find("shuffle")) config.data.shuffle = shuffle->boolean();
  if (const auto batch = node.find("global_batch")) config.data.global_batch = batch->integer(1, 1 << 24);
  if (const auto packing = node.find("packing")) (void)packing->choice({"stream"}, {"pack", "pad"});
  if (const auto tokens = node.find("tokens_per_step")) invalid("{} is not built yet; leave it out.", tokens->where());
}

void read_optimizer(const ConfigNode& node, OptimizerConfig& o) {
  node.expect_keys({"lr", "min_lr", "warmup_steps", "weight_decay", "betas", "eps", "clip_norm"});
  if (const auto lr = node.find("lr")) o.lr = lr->number(0, 1e6);
  if (const auto min_lr = node.find("min_lr")) o.min_lr = min_lr->number(0, 1e6);
  if (const auto warmup = node.find("warmup_steps")) o.warmup_steps = warmup->integer(0, kMany);
  if (const auto decay = node.find("weight_decay")) o.weight_decay = decay->number(0, 1e6);
  if (const auto eps = node.find("eps")) o.eps = eps->number(0, 1);
  if (const auto clip = node.find("clip_norm")) o.clip_norm = clip->number(0, 1e12);
  if (const auto betas = node.find("betas")) {
    const auto list = betas->list();
    if (list.size() != 2) betas->fail("two numbers");
    o.beta1 = list[0].number(0, 0.999999999);
    o.beta2 = list[1].number(0, 0.999999999);
  }
}

void read_transport(const ConfigNode& node, TrainConfig& config) {
  node.expect_keys({"kind", "timeout_s", "threads_per_device", "interface", "network"});
  if (const auto kind = node.find("kind")) {
    const bool processes = kind->choice({"threads", "processes"}) == "processes";
    config.transport = processes ? TransportKind::kProcesses : TransportKind::kThreads;
  }
  if (const auto interface = node.find("interface")) config.interface = interface->text();
  if (const auto network = node.find("network"))
    config.network_transports = network->choice({"tcp", "rdma"}) == "tcp" ? "tcp,self" : "rc,ud,self";
  if (const auto timeout = node.find("timeout_s")) config.timeout_s = timeout->number(1e-3, 1e9);
  if (const auto threads = node.find("threads_per_device")) (void)threads->choice({"1"}, {"auto", "2", "4", "8"});
}

Backend read_backend(const ConfigNode& node) {
  const std::string word = node.choice({"aten", "reference", "paced"});
  return word == "aten" ? Backend::kAten : word == "reference" ? Backend::kReference : Backend::kPaced;
}

void read_rest(const ConfigNode& root, TrainConfig& config) {
  if (const auto precision = root.find("precision"))
    config.precision = precision->choice({"fp32", "fp64"}, {"bf16"}) == "fp64" ? Precision::kFp64 : Precision::kFp32;
  if (const auto steps = root.find("steps")) config.steps = steps->integer(0, kMany);
  if (const auto stop = root.find("stop_after")) config.stop_after = stop->integer(0, kMany);
  if (const auto seed = root.find("seed")) config.seed = static_cast<std::uint64_t>(seed->integer(0, kMany));
  if (const auto transport = root.find("transport")) read_transport(*transport, config);
  if (const auto cluster = root.find("cluster")) config.cluster = load_cluster(cluster->path());
  if (const auto kernels = root.find("kernels")) {
    config.backend = read_backend(*kernels);
    if (config.backend == Backend::kPaced && !config.cluster)
      kernels->fail("given together with a cluster, which says how fast the devices are");
  }
  if (const auto checkpoint = root.find("checkpoint"))
    invalid("{} is not built yet; leave it out.", checkpoint->where());
  if (const auto trace = root.find("trace")) config.trace = trace->path();
  if (const auto log = root.find("log")) {
    log->expect_keys({"json", "every"});
    if (const auto json = log->find("json")) config.log_json = json->path();
    if (const auto every = log->find("every")) config.log_every = every->integer(1, kMany);
  }
  if (const auto eval = root.find("eval")) {
    eval->expect_keys({"every"});
    config.eval_every = eval->at("every").integer(1, kMany);
    if (config.data.validation.empty()) eval->fail("given together with data.validation, which says on what");
  }
}

[[noreturn]] void refuse(const std::string& place, const std::vector<std::string>& found) {
  std::string text;
  for (const std::string& problem : found) text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", place, problem);
  invalid("{}", text);
}

Strategy read_strategy_of_run(const ConfigNode& node, const ConfigNode& root) {
  if (!node.is_map()) return load_strategy(node.path());
  const bool of_a_file = node.file() != root.file();
  return of_a_file ? named_after(read_strategy(node), node.file()) : read_strategy(node);
}

void read_distribution(const ConfigNode& root, TrainConfig& config) {
  const auto strategy = root.find("strategy");
  const auto plan = root.find("plan");
  std::string place = root.file();
  if (plan) {
    place = plan->path();
    config.plan = load_plan(place);
    if (!config.plan->strategy)
      invalid("{}: the plan must have its `strategy`, which says schedule and micro-batches.", plan->where());
    config.strategy = config.plan->strategy;
  } else if (strategy) {
    place = strategy->is_map() ? strategy->file() : strategy->path();
    config.strategy = read_strategy_of_run(*strategy, root);
  }
  const Strategy chosen = strategy_of(config);
  if (const auto found = problems(chosen, config.model.layers); !found.empty()) refuse(place, found);
  if (!config.cluster) return;
  if (const auto found = problems(chosen, *config.cluster); !found.empty()) refuse(place, found);
}

}  // namespace

ConfigNode load_run(const std::string& path, const std::vector<Override>& overrides) {
  ConfigNode root = load_config(path);
  expect_format(root, "hspmd-train/1");
  for (const Override& o : overrides) {
    const auto strategy = o.key.starts_with("strategy.") ? root.find("strategy") : std::nullopt;
    if (strategy && strategy->yaml().IsScalar()) graft(root, "strategy", load_config(strategy->path()));
    apply_override(root, o.key, o.value);
  }
  return root;
}

TrainConfig load_train_config(const std::string& path, const std::vector<Override>& overrides) {
  return read_train_config(load_run(path, overrides));
}

TrainConfig read_train_config(const ConfigNode& root) {
  expect_format(root, "hspmd-train/1");
  root.expect_keys({"format", "model", "data", "optimizer", "precision", "steps", "stop_after", "seed", "strategy",
                    "plan", "transport", "kernels", "cluster", "checkpoint", "log", "trace", "eval"});
  TrainConfig config;
  read_model(root.at("model"), config);
  read_data(root.at("data"), config);
  if (const auto optimizer = root.find("optimizer")) read_optimizer(*optimizer, config.optimizer);
  read_rest(root, config);
  read_distribution(root, config);
  const Strategy strategy = strategy_of(config);
  if (config.data.global_batch != 0 && strategy.global_batch() != config.data.global_batch) {
    root.at("data")
        .at("global_batch")
        .fail(fmt::format("what the strategy's micro-batches sum to, {}", strategy.global_batch()));
  }
  return config;
}

std::string print_train_config(const ConfigNode& root) {
  std::ostringstream text;
  text << root.yaml();
  return text.str() + "\n";
}

LlamaConfig load_model(const std::string& preset_or_path) {
  const auto names = llama_presets();
  if (std::find(names.begin(), names.end(), preset_or_path) != names.end()) return llama_preset(preset_or_path);
  std::error_code error;
  if (!std::filesystem::exists(preset_or_path, error)) {
    invalid("[model] a model must be a preset ({}) or the path of a Hugging Face config. Received \"{}\".",
            fmt::join(names, ", "), preset_or_path);
  }
  return load_llama_config(preset_or_path);
}

Strategy strategy_of(const TrainConfig& config) {
  if (config.strategy) return *config.strategy;
  const std::int64_t batch = config.data.global_batch == 0 ? 8 : config.data.global_batch;
  return one_device(config.model.layers, batch, std::min<std::int64_t>(batch, 4));
}

double learning_rate(const OptimizerConfig& o, std::int64_t t, std::int64_t steps) {
  if (t <= o.warmup_steps) return o.lr * static_cast<double>(t) / static_cast<double>(o.warmup_steps);
  if (steps <= o.warmup_steps) return o.lr;
  const double progress = static_cast<double>(t - o.warmup_steps) / static_cast<double>(steps - o.warmup_steps);
  return o.min_lr + 0.5 * (o.lr - o.min_lr) * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace hspmd
