// `hspmd-strategy/1` and `hspmd-plan/1`: reading and writing. What is not built yet is refused with its place.
#pragma once

#include <optional>
#include <string>

#include "hspmd/config/config_node.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd {

[[nodiscard]] Strategy read_strategy(const ConfigNode& root);
[[nodiscard]] Strategy load_strategy(const std::string& path);
[[nodiscard]] std::string to_yaml(const Strategy& strategy);

struct PlanFile {
  Plan plan;
  std::optional<Strategy> strategy;  // what it came from
};
[[nodiscard]] PlanFile load_plan(const std::string& path);
[[nodiscard]] std::string to_json(const Plan& plan, const std::optional<Strategy>& strategy);

}  // namespace hspmd
