// `hspmd-strategy/1` and `hspmd-plan/1`: reading and writing (docs/formats.md has every key). JSON is YAML: what
// to_json writes, the readers read.
//
//   load_strategy("s.yaml")     format: hspmd-strategy/1
//                               pipelines: [{micro_batches: 4, stages: [{devices: [0, 1], layers: [0, 4], tp: 2}]}]
//   load_plan("p.json")         {"format": "hspmd-plan/1", "tensors": {"ids": "{0-1: Dx2}", ...}, "reshards": {...}}
//
// Throws InvalidArgument: an unknown key, a value out of range, an annotation that does not parse, or what is not built
// yet, each with file, line and key. Whether a strategy fits a model is what `problems` says (strategy.h), whether a
// plan fits a graph what plan_problems.h says.
#pragma once

#include <optional>
#include <string>

#include "hspmd/config/config_node.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd {

[[nodiscard]] Strategy read_strategy(const ConfigNode& root);
// Named after the file where it has no name.
[[nodiscard]] Strategy load_strategy(const std::string& path);
[[nodiscard]] Strategy named_after(Strategy strategy, const std::string& path);
[[nodiscard]] std::string to_json(const Strategy& strategy);

struct PlanFile {
  Plan plan;
  std::optional<Strategy> strategy;  // what it came from
  std::string name;                  // for messages
};
[[nodiscard]] PlanFile read_plan(const ConfigNode& root);
[[nodiscard]] PlanFile load_plan(const std::string& path);
[[nodiscard]] PlanFile parse_plan(const std::string& text, const std::string& name);
[[nodiscard]] std::string to_json(const Plan& plan, const std::optional<Strategy>& strategy);

}  // namespace hspmd
