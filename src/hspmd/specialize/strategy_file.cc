#include "hspmd/specialize/strategy_file.h"

#include <nlohmann/json.hpp>

namespace hspmd {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxDevice = (1 << 20) - 1;
constexpr std::int64_t kMaxBatch = 1 << 20;
constexpr std::int64_t kMaxWeight = 1 << 20;

StageSpec read_stage(const ConfigNode& node) {
  node.expect_keys({"devices", "layers", "tp", "cp", "sequence_parallel", "tp_weights", "cp_weights", "zero_weights",
                    "cp_kind", "recompute"});
  StageSpec stage;
  for (const ConfigNode& device : node.at("devices").list())
    stage.devices.push_back(static_cast<Device>(device.integer(0, kMaxDevice)));
  const auto layers = node.at("layers").list();
  if (layers.size() != 2 || layers[0].is_list())
    node.at("layers").fail(
        "[begin, end) as a list of two integers (one range for each virtual stage is not built yet)");
  stage.layers = {static_cast<int>(layers[0].integer(0, 1 << 20)), static_cast<int>(layers[1].integer(0, 1 << 20))};
  if (const auto cp = node.find("cp")) stage.cp = static_cast<int>(cp->integer(1, kMaxDevice));
  const auto count = static_cast<int>(stage.devices.size());
  stage.tp = std::max(1, count / stage.cp);
  if (const auto tp = node.find("tp")) {
    stage.tp = static_cast<int>(tp->integer(1, kMaxDevice));
    if (!node.find("cp") && count % stage.tp == 0) stage.cp = std::max(1, count / stage.tp);
  }
  if (const auto sequence = node.find("sequence_parallel"))
    stage.sequence_parallel = sequence->boolean() ? SequenceParallel::kOn : SequenceParallel::kOff;
  if (const auto weights = node.find("tp_weights")) {
    for (const ConfigNode& weight : weights->list()) stage.tp_weights.push_back(weight.integer(0, kMaxWeight));
  }
  if (const auto kind = node.find("cp_kind")) (void)kind->choice({"gather"}, {"ulysses"});
  if (const auto recompute = node.find("recompute")) (void)recompute->choice({"none"}, {"full", "attention"});
  for (const char* key : {"cp_weights", "zero_weights"}) {
    if (const auto later = node.find(key)) invalid("{} is not built yet; leave it out.", later->where());
  }
  return stage;
}

PipelineSpec read_pipeline(const ConfigNode& node) {
  node.expect_keys({"micro_batches", "micro_batch_size", "micro_batch_sizes", "stages"});
  PipelineSpec pipeline;
  const auto sizes = node.find("micro_batch_sizes");
  const auto size = node.find("micro_batch_size");
  const auto count = node.find("micro_batches");
  if (sizes && size) size->fail("absent where micro_batch_sizes stands");
  if (sizes) {
    for (const ConfigNode& entry : sizes->list()) pipeline.micro_batch_sizes.push_back(entry.integer(1, kMaxBatch));
    if (count && count->integer(1, kMaxBatch) != static_cast<std::int64_t>(pipeline.micro_batch_sizes.size())) {
      count->fail(fmt::format("the number of micro_batch_sizes, {}", pipeline.micro_batch_sizes.size()));
    }
  } else {
    const auto n = static_cast<std::size_t>(node.at("micro_batches").integer(1, kMaxBatch));
    pipeline.micro_batch_sizes.assign(n, size ? size->integer(1, kMaxBatch) : 1);
  }
  for (const ConfigNode& stage : node.at("stages").list()) pipeline.stages.push_back(read_stage(stage));
  return pipeline;
}

ScheduleKind read_schedule(const ConfigNode& node) {
  const std::string name = node.choice({"gpipe", "1f1b", "zero_bubble"}, {"interleaved"});
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kZeroBubble}) {
    if (name == to_string(kind)) return kind;
  }
  return ScheduleKind::kOneFOneB;
}

Json json_of(const Strategy& strategy) {
  Json json;
  json["format"] = "hspmd-strategy/1";
  if (!strategy.name.empty()) json["name"] = strategy.name;
  json["schedule"] = to_string(strategy.schedule);
  json["zero"] = 0;
  for (const PipelineSpec& pipeline : strategy.pipelines) {
    Json p;
    p["micro_batch_sizes"] = pipeline.micro_batch_sizes;
    for (const StageSpec& stage : pipeline.stages) {
      Json s;
      s["devices"] = stage.devices;
      s["layers"] = {stage.layers.begin, stage.layers.end};
      s["tp"] = stage.tp;
      s["cp"] = stage.cp;
      if (stage.sequence_parallel == SequenceParallel::kOff) s["sequence_parallel"] = false;
      if (!stage.tp_weights.empty()) s["tp_weights"] = stage.tp_weights;
      p["stages"].push_back(std::move(s));
    }
    json["pipelines"].push_back(std::move(p));
  }
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Strategy read_strategy(const ConfigNode& root) {
  expect_format(root, "hspmd-strategy/1");
  root.expect_keys({"format", "name", "schedule", "zero", "pipelines"});
  Strategy strategy;
  if (const auto name = root.find("name")) strategy.name = name->text();
  if (const auto schedule = root.find("schedule")) {
    strategy.schedule = read_schedule(*schedule);
  }
  if (const auto zero = root.find("zero")) (void)zero->choice({"0"}, {"1", "3"});
  for (const ConfigNode& pipeline : root.at("pipelines").list()) strategy.pipelines.push_back(read_pipeline(pipeline));
  return strategy;
}

Strategy load_strategy(const std::string& path) {
  const ConfigNode root = load_config(path);
  return named_after(read_strategy(root), path);
}

Strategy named_after(Strategy strategy, const std::string& path) {
  if (!strategy.name.empty()) return strategy;
  const std::size_t slash = path.rfind('/');
  strategy.name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  strategy.name = strategy.name.substr(0, strategy.name.find('.'));
  return strategy;
}

PlanFile load_plan(const std::string& path) {
  return read_plan(load_config(path));
}

PlanFile parse_plan(const std::string& text, const std::string& name) {
  return read_plan(parse_config(text, name));
}

PlanFile read_plan(const ConfigNode& root) {
  expect_format(root, "hspmd-plan/1");
  root.expect_keys({"format", "strategy", "tensors", "reshards"});
  PlanFile file;
  file.name = root.file();
  if (const auto strategy = root.find("strategy")) file.strategy = read_strategy(*strategy);
  const auto annotation = [](const ConfigNode& node) {
    try {
      return parse_annotation(node.text());
    } catch (const InvalidArgument& error) {
      invalid("{}: {}", node.where(), error.what());
    }
  };
  const ConfigNode tensors = root.at("tensors");
  for (const std::string& name : tensors.keys()) file.plan.set_tensor(name, annotation(tensors.at(name)));
  const ConfigNode reshards = root.at("reshards");
  for (const std::string& name : reshards.keys()) file.plan.set_reshard(name, annotation(reshards.at(name)));
  return file;
}

std::string to_json(const Strategy& strategy) {
  return dumped(json_of(strategy));
}

std::string to_json(const Plan& plan, const std::optional<Strategy>& strategy) {
  Json json;
  json["format"] = "hspmd-plan/1";
  if (strategy) json["strategy"] = json_of(*strategy);
  json["tensors"] = Json::object();
  json["reshards"] = Json::object();
  for (const auto& [name, annotation] : plan.tensors()) json["tensors"][name] = to_string(*annotation);
  for (const auto& [name, annotation] : plan.reshards()) json["reshards"][name] = to_string(*annotation);
  return dumped(json);
}

}  // namespace hspmd
