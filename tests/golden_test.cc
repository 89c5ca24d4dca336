// The programs of three roles, as text: what they are is decided once and changes only on purpose. Where one should
// change, run with HSPMD_WRITE_GOLDEN=1 and read the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "hspmd/models/llama.h"
#include "hspmd/models/training_step.h"
#include "hspmd/specialize/pipelines.h"
#include "hspmd/specialize/program.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd {
namespace {

struct Golden {
  Graph graph;
  Plan plan;
};

Golden build() {
  LlamaConfig model = llama_preset("tiny");
  model.layers = 2;
  Golden golden;
  ModelRoles roles = llama_roles(model);
  const ModelOutputs outputs = build_llama(golden.graph, model);
  build_training_step(golden.graph, {outputs.loss, outputs.tokens}, {}, roles);
  const auto stage = [](std::vector<Device> devices, int begin, int end) {
    StageSpec s;
    s.tp = static_cast<int>(devices.size());
    s.devices = std::move(devices);
    s.layers = {begin, end};
    return s;
  };
  golden.plan = expand({"golden",
                        ScheduleKind::kOneFOneB,
                        {{{2, 2}, {stage({0, 3}, 0, 2)}}, {{1}, {stage({1}, 0, 1), stage({2}, 1, 2)}}}},
                       roles);
  return golden;
}

TEST(Golden, ProgramsOfEachRole) {
  const Golden golden = build();
  for (const Device device : {0, 1, 2}) {  // tensor parallel; first stage; last stage
    const std::string path = fmt::format("{}/tests/golden/device_{}.txt", HSPMD_SOURCE_DIR, device);
    const std::string text = to_string(specialize(golden.graph, golden.plan, device));
    if (std::getenv("HSPMD_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
    std::ostringstream expected;
    expected << std::ifstream(path).rdbuf();

    EXPECT_EQ(text, expected.str()) << path;
  }
}

TEST(Pipelines, AreFoundFromReshards) {
  const Golden golden = build();
  Layouts layouts(golden.graph, golden.plan);

  EXPECT_EQ(pipeline_count(golden.graph, layouts), 2);
  EXPECT_EQ(stage_devices(golden.graph, layouts, 0), (std::vector<std::vector<Device>>{{0, 3}}));
  EXPECT_EQ(stage_devices(golden.graph, layouts, 1), (std::vector<std::vector<Device>>{{1}, {2}}));
}

TEST(Strategy, CutsHeadsByLeastWork) {
  const auto expect_cut = [](int kv, int group, int tp, HeadCut cut) {
    EXPECT_EQ(cut_heads(kv, group, tp), cut) << kv << " " << group << " " << tp;
  };
  expect_cut(8, 1, 4, {4, 1});
  expect_cut(2, 4, 4, {2, 2});
  expect_cut(2, 2, 3, {3, 1});
  expect_cut(1, 8, 8, {1, 8});
  expect_cut(3, 2, 5, {5, 1});
}

}  // namespace
}  // namespace hspmd
