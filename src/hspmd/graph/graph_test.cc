// A graph's invariants, its messages, and that a program mended as a conflict says deduces.
#include "hspmd/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "hspmd/graph/autodiff.h"
#include "hspmd/graph/layouts.h"
#include "hspmd/graph/sums.h"

namespace hspmd {
namespace {

using ::testing::HasSubstr;

// x [rows, columns], w [columns] -> [rows, columns]; whole rows only.
class Weigh final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "weigh"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    ShardingRule rule{{"rc", "c"}, {"rc"}};
    rule.unsplittable = "c";
    return rule;
  }
};

const Operator& weigh() {
  static const Weigh op;
  return op;
}

TensorType floats(SymbolicShape shape) {
  return {std::move(shape), DType::kFloat};
}

// What InvalidArgument says; fails the test when nothing is thrown.
std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "it must be refused";
  return "";
}

// Inputs stand before their node; every value has one producer.
void expect_invariants(const Graph& graph) {
  int values = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) EXPECT_LT(index(input), values);
    for (const ValueId output : node.outputs) {
      EXPECT_EQ(index(output), values++);
      EXPECT_EQ(&graph.producer(output), &node);
    }
  }
  EXPECT_EQ(values, graph.value_count());
}

TEST(GraphLaw, InputsStandBeforeTheirNodeBackwardToo) {
  Graph graph;
  const ValueId x = graph.placeholder("x", floats({kBatch, 4}));
  const ValueId w = graph.parameter("w", {4}, Initializer::ones());
  (void)graph.compute(weigh(), {x, w});
  const ValueId a = graph.parameter("a", {}, Initializer::ones());
  const ValueId b = graph.placeholder("b", floats({}));
  const ValueId loss = graph.compute(add_operator(), {graph.reshard("a.here", a), a, b}).front();

  const auto gradients = differentiate(graph, loss);

  expect_invariants(graph);
  ASSERT_EQ(gradients.size(), 1U);  // no use of w reaches the loss
  EXPECT_EQ(graph.label(gradients[0].leaf), "a/master");
  EXPECT_EQ(graph.label(gradients[0].gradient), "a.sync");
}

TEST(Graph, NamesAreUniqueAmongLeavesAndReshards) {
  Graph graph;
  const ValueId x = graph.placeholder("x", floats({4}));
  (void)graph.parameter("w", {4}, Initializer::zeros());
  (void)graph.reshard("hidden", x);

  const std::pair<const char*, std::function<void()>> rows[] = {
      {"\"x\"", [&] { (void)graph.placeholder("x", floats({4})); }},
      {"\"x\"", [&] { (void)graph.reshard("x", x); }},
      {"\"hidden\"", [&] { (void)graph.reshard_keep("hidden", x); }},
      {"\"hidden\"", [&] { (void)graph.state("hidden", {4}); }},
      {"\"w/master\"", [&] { (void)graph.parameter("w", {4}, Initializer::zeros()); }},
      {"\"w.gather\"", [&] { (void)graph.ones_like(x, "w.gather"); }},
      {"must have a name", [&] { (void)graph.step_input("", floats({4})); }},
  };
  for (const auto& [expected, act] : rows) EXPECT_THAT(refusal(act), HasSubstr(expected));
}

TEST(Graph, FindsLeavesAndReshardsByName) {
  Graph graph;
  const ValueId x = graph.placeholder("x", floats({4}));
  const ValueId w = graph.parameter("w", {4}, Initializer::zeros());
  const ValueId sum = graph.compute(add_operator(), {x, w}).front();

  EXPECT_EQ(graph.find("x"), x);
  EXPECT_EQ(graph.find("w.gather"), w);
  EXPECT_TRUE(graph.find("w/master").has_value());
  EXPECT_FALSE(graph.find("w").has_value());
  EXPECT_EQ(graph.label(sum), fmt::format("add#{}", index(sum)));
}

TEST(Graph, ShapesThatDisagreeAreNamed) {
  Graph graph;
  const ValueId x = graph.placeholder("x", floats({kBatch, 4}));
  const ValueId short_weights = graph.placeholder("short", floats({3}));
  const ValueId matrix = graph.placeholder("matrix", floats({4, 4}));
  const ValueId sequence = graph.placeholder("sequence", floats({kSequence, 4}));

  const std::pair<std::vector<const char*>, std::function<void()>> rows[] = {
      {{"[weigh]", "\"c\"", "4 and 3"},
       [&] {
         (void)graph.compute(weigh(), {x, short_weights});
       }},
      {{"[weigh]", "operand 1", "4x4"},
       [&] {
         (void)graph.compute(weigh(), {x, matrix});
       }},
      {{"[weigh]", "2 operands", "Received 1"}, [&] { (void)graph.compute(weigh(), {x}); }},
      {{"[add]", "B and S"},
       [&] {
         (void)graph.compute(add_operator(), {x, sequence});
       }},
      {{"w", "integers", "Bx4"},
       [&] {
         (void)graph.parameter("w", {kBatch, 4}, Initializer::zeros());
       }},
  };
  for (const auto& [words, act] : rows) {
    const int before = graph.value_count();

    const std::string text = refusal(act);

    for (const char* word : words) EXPECT_THAT(text, HasSubstr(word));
    EXPECT_EQ(graph.value_count(), before);
  }
}

TEST(Graph, OnceAStepIsWhatReadsNoPlaceholder) {
  Graph graph;
  const ValueId w = graph.parameter("w", {4}, Initializer::zeros());
  const ValueId rate = graph.step_input("rate", floats({4}));
  const ValueId x = graph.placeholder("x", floats({4}));
  const auto time_of = [&](ValueId value) { return graph.producer(value).time; };

  const ValueId still = graph.compute(add_operator(), {w, rate}).front();
  const ValueId moving = graph.compute(add_operator(), {still, x}).front();
  const ValueId sum = graph.compute(accumulate_operator(), {moving}).front();

  EXPECT_EQ(time_of(still), Time::kStep);
  EXPECT_EQ(time_of(graph.reshard("moving", moving)), Time::kMicroBatch);
  EXPECT_EQ(time_of(sum), Time::kStep);
  EXPECT_EQ(time_of(graph.reshard("sum", sum)), Time::kStep);
}

// x and w into weigh, each through a Reshard of its own, where the plan may mend a conflict.
struct Weighing {
  Graph graph;
  Plan plan;
  ValueId result{};

  Weighing(const Annotation& x, const Annotation& w) {
    const ValueId a = graph.reshard("x.here", graph.placeholder("x", floats({6, 4})));
    const ValueId b = graph.reshard("w.here", graph.placeholder("w", floats({4})));
    result = graph.compute(weigh(), {a, b}).front();
    for (const char* name : {"x", "w"}) plan.set_tensor(name, parse_annotation("{0-5: Dx6}"));
    plan.set_reshard("x.here", x);
    plan.set_reshard("w.here", w);
  }
  [[nodiscard]] std::string deduce() const {
    Layouts layouts(graph, plan);
    return to_string(layouts.of(result));
  }
};

// The layout that the message proposes for a Reshard; what it has when the message leaves it alone.
Annotation proposed(const std::string& message, const std::string& reshard, const Annotation& now) {
  const std::size_t mend = message.find("Mend it by a Reshard of");
  const std::size_t at = mend == std::string::npos ? mend : message.find(reshard + " to ", mend);
  if (at == std::string::npos) return now;
  const std::size_t begin = at + reshard.size() + 4;
  return parse_annotation(message.substr(begin, message.find('}', begin) + 1 - begin));
}

TEST(Layouts, AConflictNamesAllThatMattersAndMendedItDeduces) {
  const std::pair<const char*, const char*> rows[] = {
      {"{0-5: S1x6}", "{0-5: S0x6}"},             // a factor that may not be split
      {"{0-5: S0x6}", "{0-5: S0x6}"},             // two factors on one axis
      {"{0-5: Px6}", "{0-5: Dx6}"},               // Partial where it is not linear
      {"{0-5: S0x2 Px3}", "{0-5: Px6}"},          // some of both
      {"{0-5: S0x6w1:2:3:4:5:0}", "{0-5: Px6}"},  // weights stay
      {"{0-5: S0x2 S1x3}", "{0-5: S0x3 Dx2}"},    // grids that do not align
      {"{0-5: S0x6}", "{5,0-4: Dx6}"},            // another order of devices
      {"top S0 w2:1 {0-3: S1x4 | 4-5: Dx2}", "top S0 {0-3: Dx4 | 4-5: Dx2}"},
      {"top P {0-2: Dx3 | 3-5: Dx3}", "top D {0-2: Dx3 | 3-5: Px3}"},
  };
  for (const auto& [x, w] : rows) {
    Weighing program(parse_annotation(x), parse_annotation(w));

    const std::string text = refusal([&] { (void)program.deduce(); });

    const std::string received[] = {std::string("x.here ") + x, std::string("w.here ") + w};
    for (const std::string& word :
         {std::string("[weigh]"), received[0], received[1], std::string("Mend it by a Reshard of")}) {
      EXPECT_THAT(text, HasSubstr(word));
    }
    Weighing mended(proposed(text, "x.here", parse_annotation(x)), proposed(text, "w.here", parse_annotation(w)));
    EXPECT_NO_THROW((void)mended.deduce()) << text;
  }
}

TEST(Layouts, WhatThePlanLacksIsNamed) {
  Graph graph;
  const ValueId x = graph.reshard("x.here", graph.placeholder("x", floats({4})));
  Plan plan;
  const auto message = [&] { return refusal([&] { (void)Layouts(graph, plan).of(x); }); };

  EXPECT_THAT(message(), HasSubstr("reshards must name x.here"));
  plan.set_reshard("x.here", parse_annotation("{0-1: S1x2}"));
  EXPECT_THAT(message(), HasSubstr("x.here has 1 dims"));
  EXPECT_THAT(refusal([&] { (void)Layouts(graph, plan).of(*graph.find("x")); }), HasSubstr("the leaf x"));
}

TEST(Plan, FallsBackFromMasterAndStatesToTheTensor) {
  const Annotation compute = parse_annotation("{0-1: Dx2}");
  const Annotation cut_up = parse_annotation("{0-1: S0x2}");
  Plan plan;
  plan.set_tensor("w", compute);
  for (const char* leaf : {"w", "w/master", "w/m"}) EXPECT_EQ(*plan.leaf(leaf), compute) << leaf;

  plan.set_tensor("w/master", cut_up);

  for (const char* leaf : {"w/master", "w/m", "w/v"}) EXPECT_EQ(*plan.leaf(leaf), cut_up) << leaf;
  EXPECT_EQ(*plan.reshard("w.gather"), compute);
  EXPECT_EQ(plan.reshard("w.sync"), nullptr);
  EXPECT_EQ(plan.leaf("v/master"), nullptr);
  EXPECT_EQ(Plan(plan), plan);
}

}  // namespace
}  // namespace hspmd
