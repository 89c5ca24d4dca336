// What `check` refuses and what it lets pass, on the random family of strategies and on plans damaged by hand.
#include "hspmd/specialize/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hspmd/models/training_step.h"
#include "hspmd/specialize/plan_problems.h"
#include "hspmd/specialize/strategy_file.h"
#include "random_strategy.h"

namespace hspmd {
namespace {

using ::testing::HasSubstr;
using testing::kLayers;
using testing::small_model;
using testing::stage;

struct Built {
  Graph graph;
  Plan plan;
};

Built build(const Strategy& strategy) {
  const LlamaConfig model = small_model(TiedEmbeddings::kNo);
  Built built;
  ModelRoles roles = llama_roles(model);
  const ModelOutputs outputs = build_llama(built.graph, model);
  build_training_step(built.graph, {outputs.loss, outputs.tokens}, {}, roles);
  built.plan = expand(strategy, roles);
  return built;
}

std::vector<std::string> check_plan(const Strategy& strategy, const Built& built) {
  const Cluster cluster = Cluster::uniform(8);
  CheckRequest request;
  request.graph = &built.graph;
  request.plan = &built.plan;
  request.strategy = &strategy;
  request.cluster = &cluster;
  request.sequence_length = 8;
  return check(request);
}

Strategy two_stages() {
  return {"two", ScheduleKind::kOneFOneB, {{{1, 1, 1}, {stage({0, 1}, 0, 2, 2), stage({2}, 2, kLayers, 1)}}}};
}

TEST(Check, ProvesTheRandomFamily) {
  testing::RandomStrategies random(7);
  for (int i = 0; i < 40; ++i) {
    const Strategy strategy = random.next();
    SCOPED_TRACE(picture(strategy));
    const Built built = build(strategy);

    EXPECT_THAT(check_plan(strategy, built), ::testing::IsEmpty());
    const PlanFile read = parse_plan(to_json(built.plan, strategy), "printed");  // a plan prints and reads back
    EXPECT_EQ(read.plan, built.plan);
    EXPECT_EQ(read.strategy, strategy);
    EXPECT_EQ(read_strategy(parse_config(to_json(strategy), "printed")), strategy);
  }
}

TEST(Check, PlansThatDoNotFitAreRefusedByKey) {
  struct Row {
    const char* key;
    const char* annotation;
    std::vector<const char*> says;
  };
  const Row rows[] = {
      {"tensors.model.norm.wieght", "{2:}", {"is not known", "\"model.norm.weight\""}},
      {"tensors.model.norm.weight/masters", "{2:}", {"is not known", "\"model.norm.weight/master\""}},
      {"reshards.head.inputt", "{2:}", {"is not known", "\"head.input\""}},
      {"tensors.model.norm.weight", "{7:}", {"the strategy's devices", "7 is none of them", "{7:}"}},
      {"reshards.head.input", "top S0 {2: | 0:}", {"a subgroup for each of the strategy's 1 pipelines"}},
      {"tensors.ids", "top S0 {0: | 1:}", {"a subgroup for each of the strategy's 1 pipelines"}},
  };
  for (const Row& row : rows) {
    const std::string key = row.key;
    const std::string name = key.substr(key.find('.') + 1);
    const Strategy strategy = two_stages();
    Built built = build(strategy);
    if (key.starts_with("tensors.")) built.plan.set_tensor(name, parse_annotation(row.annotation));
    if (key.starts_with("reshards.")) built.plan.set_reshard(name, parse_annotation(row.annotation));

    const auto found = check_plan(strategy, built);

    ASSERT_EQ(found.size(), 1U) << key;
    EXPECT_THAT(found.front(), HasSubstr(key));
    for (const char* part : row.says) EXPECT_THAT(found.front(), HasSubstr(part));
  }
}

TEST(Check, EveryPipelineHasItsOwnDevices) {
  const Strategy strategy = {"two", ScheduleKind::kGPipe, {{{1}, {stage({0}, 0, 4, 1)}}, {{1}, {stage({1}, 0, 4, 1)}}}};
  Built built = build(strategy);
  built.plan.set_reshard("head.input", parse_annotation("top S0 {1: | 0:}"));

  EXPECT_THAT(check_plan(strategy, built), ::testing::Contains(HasSubstr("in the subgroup of its pipeline")));
}

TEST(Check, TwoVirtualStagesOnADeviceAreRefused) {
  const Strategy strategy = {"wave", ScheduleKind::kOneFOneB, {{{1, 1}, {stage({0}, 0, 2, 1), stage({1}, 2, 4, 1)}}}};
  Built built = build(strategy);
  const auto whole = parse_annotation("{0:}");
  const Plan before = built.plan;
  for (const auto& [name, annotation] : before.reshards()) {
    const bool last = name.starts_with("model.layers.3.") || name.starts_with("head.");
    if (last) built.plan.set_reshard(name, whole);
  }
  for (const auto& [name, annotation] : before.tensors()) {
    const bool last =
        name.find("layers.3.") != std::string::npos || name.starts_with("lm_head") || name == "model.norm.weight";
    if (last) built.plan.set_tensor(name, whole);
  }

  EXPECT_THAT(check_plan(strategy, built),
              ::testing::ElementsAre(
                  HasSubstr("device 0 must have one stage of pipeline 0; the plan gives it the virtual stages 0, 2")));
}

TEST(Strategy, DevicesMustBeTheClusters) {
  EXPECT_THAT(problems(two_stages(), Cluster::uniform(3)), ::testing::IsEmpty());
  EXPECT_THAT(problems(two_stages(), Cluster::uniform(2)),
              ::testing::ElementsAre("pipelines[0].stages[1].devices: device 2 must be one of the cluster's 2"));
}

TEST(Strategy, StagesWithoutLayersSaySo) {
  const Strategy strategy = {"none", ScheduleKind::kGPipe, {{{1}, {stage({0}, 0, 0, 1), stage({1}, 0, 4, 1)}}}};

  EXPECT_EQ(picture(strategy), "pipeline 0  [ dev 0 | no layers ] --> [ dev 1 | layers 0-3 ]  micro-batches 1 x 1\n");
}

}  // namespace
}  // namespace hspmd
