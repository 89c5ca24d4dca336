#include "hspmd/comm/one_sum.h"

#include <gtest/gtest.h>

namespace hspmd {
namespace {

CommStage stage_of(std::vector<Move> moves) {
  return {std::nullopt, std::nullopt, {{CommKind::kBatchedSendReceive, {0, 1, 2}, std::move(moves)}}};
}

TEST(OneSum, CopiesMustBeSummedAlike) {
  const Annotation from = parse_annotation("top P {0-1: Px2 | 2:}");
  const Annotation to = parse_annotation("top D {0-1: Dx2 | 2:}");
  const Box all = {{0, 4}}, half = {{0, 2}}, rest = {{2, 4}};
  struct Row {
    const char* what;
    std::vector<CommStage> stages;
    bool one;
  };
  const Row rows[] = {
      {"each adds in one order", {stage_of({{all, {0, 1, 2}, {0, 1, 2}}})}, true},
      {"one adds in another order", {stage_of({{all, {0, 1, 2}, {0, 1}}, {all, {2, 0, 1}, {2}}})}, false},
      {"one part in another order, for all",
       {stage_of({{half, {0, 1, 2}, {0, 1, 2}}, {rest, {2, 1, 0}, {0, 1, 2}}})},
       true},
      {"two sums of two stages",
       {stage_of({
            {all, {0, 2}, {0}},
            {all, {1}, {1}},
            {all, {0, 1}, {2}},
        }),
        stage_of({{all, {0, 1}, {0, 1}}, {all, {2}, {2}}})},
       false},
      {"one sum, then copies", {stage_of({{all, {0, 1, 2}, {1}}}), stage_of({{all, {1}, {0, 1, 2}}})}, true},
  };
  for (const Row& row : rows) {
    CommPlan plan;
    plan.stages = row.stages;

    EXPECT_EQ(comm::one_sum(plan, {&from, &to, {4}}), row.one) << row.what;
  }
}

TEST(OneSum, UnlikePipelinesGetOneSumOfASmallTensor) {
  const Annotation from = parse_annotation("top P {0-2: Px3 | 3-4: Px2 | 6-7: Px2}");
  const Annotation to = parse_annotation("top D {0-2: Dx3 | 3-4: Dx2 | 6-7: Dx2}");

  const CommPlan plan = resolve_plan(from, to, {48}, Cluster::uniform(8));

  EXPECT_TRUE(comm::one_sum(plan, {&from, &to, {48}})) << to_string(plan);
}

}  // namespace
}  // namespace hspmd
