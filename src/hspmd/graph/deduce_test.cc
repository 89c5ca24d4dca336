#include "hspmd/graph/deduce.h"

#include <gtest/gtest.h>

#include "hspmd/graph/layouts.h"

namespace hspmd {
namespace {

// {operand layouts} -> layout of the first result, or "" for a conflict.
std::string deduced(const ShardingRule& rule, const std::vector<std::string>& texts) {
  std::vector<Annotation> operands;
  for (const std::string& text : texts) operands.push_back(parse_annotation(text));
  std::vector<const Annotation*> pointers;
  for (const Annotation& a : operands) pointers.push_back(&a);
  const Deduced result = deduce(rule, pointers);
  return std::holds_alternative<Conflict>(result) ? "" : to_string(std::get<0>(result).front());
}

ShardingRule dot() {
  ShardingRule rule{{"bsk", "kn"}, {"bsn"}};
  rule.linear = {0, 1};
  return rule;
}

ShardingRule add() {
  ShardingRule rule{{"ab", "ab"}, {"ab"}};
  rule.jointly_linear = true;
  return rule;
}

ShardingRule norm() {
  ShardingRule rule{{"bsh", "h"}, {"bsh", "bs"}};
  rule.unsplittable = "h";
  rule.linear = {1};
  rule.aside = {1};
  return rule;
}

TEST(Deduce, FollowsTheTable) {
  struct Row {
    ShardingRule rule;
    std::vector<std::string> operands;
    std::string result;
  };
  const Row rows[] = {
      {dot(), {"{0-1: S0x2}", "{0-1: Dx2}"}, "{0-1: S0x2}"},
      {dot(), {"{0-1: S1x2w2:1}", "{0-1: Dx2}"}, "{0-1: S1x2w2:1}"},
      {dot(), {"{0-1: Dx2}", "{0-1: S1x2}"}, "{0-1: S2x2}"},
      {dot(), {"{0-1: S2x2}", "{0-1: S0x2}"}, "{0-1: Px2}"},
      {dot(), {"{0-3: S2x2 Dx2}", "{0-3: S0x2 S1x2}"}, "{0-3: Px2 S2x2}"},
      {dot(), {"{0-3: S0x2 Dx2}", "{0-3: Dx4}"}, "{0-3: S0x2 Dx2}"},
      {dot(), {"{0-1: Px2}", "{0-1: Dx2}"}, "{0-1: Px2}"},
      {dot(), {"top S0 {0-1: Dx2 | 2:}", "top D {0-1: S1x2 | 2:}"}, "top S0 {0-1: S2x2 | 2:}"},
      {dot(), {"top S2 {0: | 1:}", "top S0 {0: | 1:}"}, "top P {0: | 1:}"},
      {dot(), {"{0-1: Px2}", "{0-1: Px2}"}, ""},        // not linear in both at once
      {dot(), {"{0-1: S2x2}", "{0-1: Dx2}"}, ""},       // k split on one side alone
      {dot(), {"{0-1: S2x2w2:1}", "{0-1: S0x2}"}, ""},  // by other weights
      {dot(), {"{0-1: S0x2}", "{0-1: S1x2}"}, ""},      // two factors on one axis
      {dot(), {"{0-1: S0x2}", "{1,0: Dx2}"}, ""},       // another order of devices
      {dot(), {"{0-1: S0x2}", "{0-2: Dx3}"}, ""},       // other devices
      {dot(), {"{0-1: Pmaxx2}", "{0-1: Dx2}"}, ""},     // a max passes through nothing
      {dot(), {"{0-5: S0x2 Dx3}", "{0-5: Dx6}"}, "{0-5: S0x2 Dx3}"},
      {add(), {"{0-1: Px2}", "{0-1: Px2}"}, "{0-1: Px2}"},
      {add(), {"{0-1: Px2}", "{0-1: Dx2}"}, ""},  // a copy would count twice
      {add(), {"{0-1: S1x2}", "{0-1: S1x2}"}, "{0-1: S1x2}"},
      {norm(), {"{0-1: S1x2}", "{0-1: Dx2}"}, "{0-1: S1x2}"},
      {norm(), {"{0-1: Dx2}", "{0-1: Px2}"}, "{0-1: Px2}"},
      {norm(), {"{0-1: S2x2}", "{0-1: S0x2}"}, ""},  // h may not be split
      {norm(), {"{0-1: Px2}", "{0-1: Dx2}"}, ""},
  };
  for (const Row& row : rows)
    EXPECT_EQ(deduced(row.rule, row.operands), row.result) << fmt::format("{}", fmt::join(row.operands, "  "));
}

TEST(Deduce, TheGradientsRuleIsTheTranspose) {
  const int wanted[] = {1};
  const int given[] = {0};
  const ShardingRule weight = transposed(dot(), wanted, given);

  EXPECT_EQ(deduced(weight, {"{0-1: S1x2}", "{0-1: Dx2}", "{0-1: S1x2}"}),
            "{0-1: Px2}");  // a split sequence: partial sums
  EXPECT_EQ(deduced(weight, {"{0-1: Dx2}", "{0-1: S1x2}", "{0-1: S2x2}"}), "{0-1: S1x2}");  // column-parallel
  EXPECT_EQ(deduced(weight, {"{0-1: S2x2}", "{0-1: S0x2}", "{0-1: Dx2}"}), "{0-1: S0x2}");  // row-parallel
}

TEST(Deduce, DualsReadPartialAsDuplicate) {
  EXPECT_EQ(to_string(dual(parse_annotation("top P {0-1: Px2 | 2-3: S0x2}"))), "top D {0-1: Dx2 | 2-3: S0x2}");
  const auto kept =
      dual_keeping(parse_annotation("{0-3: S1x2 Dx2}"), parse_annotation("{0-3: Dx4}"), parse_annotation("{0-3: Px4}"));
  EXPECT_EQ(to_string(kept), "{0-3: S1x2 Px2}");
}

class Twice final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "twice"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    return {{"ab", "ab"}, {"ab"}};
  }
};

TEST(Layouts, AConflictNamesOperatorTensorsLayoutsAndMend) {
  static const Twice twice;
  Graph graph;
  const ValueId a = graph.placeholder("a", {{4, 4}, DType::kFloat});
  const ValueId b = graph.placeholder("b", {{4, 4}, DType::kFloat});
  const ValueId sum = graph.compute(twice, {a, b}).front();
  Plan plan;
  plan.set_tensor("a", parse_annotation("{0-1: S0x2}"));
  plan.set_tensor("b", parse_annotation("{0-1: S1x2}"));
  Layouts layouts(graph, plan);

  try {
    (void)layouts.of(sum);
    FAIL() << "the layouts must conflict";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    for (const char* word : {"[twice]", "a {0-1: S0x2}", "b {0-1: S1x2}", "Mend it by a Reshard of b to {0-1: S0x2}"}) {
      EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
    }
  }
  plan.set_tensor("b", parse_annotation("{0-1: S0x2}"));
  Layouts mended(graph, plan);
  EXPECT_EQ(to_string(mended.of(sum)), "{0-1: S0x2}");
}

TEST(Graph, RefusesWhatMakesNoProgram) {
  Graph graph;
  (void)graph.placeholder("x", {{4}, DType::kFloat});
  EXPECT_THROW((void)graph.placeholder("x", {{4}, DType::kFloat}), InvalidArgument);
  EXPECT_THROW((void)graph.parameter("w", {kBatch}, Initializer::ones()), InvalidArgument);
  static const Twice twice;
  const ValueId y = graph.placeholder("y", {{5, 4}, DType::kFloat});
  const ValueId z = graph.placeholder("z", {{4, 4}, DType::kFloat});
  EXPECT_THROW((void)graph.compute(twice, {y, z}), InvalidArgument);
  EXPECT_THROW((void)graph.compute(twice, {y}), InvalidArgument);
}

}  // namespace
}  // namespace hspmd
