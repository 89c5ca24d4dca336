// Gradients of every operator against central finite differences, through the graph: every element of every parameter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"
#include "hspmd/runtime/device_run.h"

namespace hspmd {
namespace {

// Builds an expression over tensors that parameters reach.
struct Expression {
  Graph& g;
  Plan& plan;
  int made = 0;

  // A tensor that is a parameter, once a micro-batch: parameter times a placeholder of ones.
  ValueId operand(SymbolicShape shape) {
    const std::string name = fmt::format("w{}", made++);
    const ValueId w = g.parameter(name, shape, Initializer::normal(0.7));
    const ValueId ones = g.placeholder("ones." + name, {shape, DType::kFloat});
    plan.set_tensor(name, parse_annotation("{0:}"));
    plan.set_tensor("ones." + name, parse_annotation("{0:}"));
    return ops::mul(g, ones, w);
  }

  ValueId integers(const std::string& name, SymbolicShape shape) {
    plan.set_tensor(name, parse_annotation("{0:}"));
    return g.placeholder(name, {std::move(shape), DType::kInt32});
  }

  // A tensor that no parameter reaches.
  ValueId fixed(const std::string& name, SymbolicShape shape) {
    plan.set_tensor(name, parse_annotation("{0:}"));
    return g.placeholder(name, {std::move(shape), DType::kFloat});
  }

  ValueId against_target(ValueId value) { return ops::squared_error(g, value, fixed("target", type_of(value))); }
  [[nodiscard]] SymbolicShape type_of(ValueId value) const { return g.value(value).type.shape; }

  ops::Visibility visibility(std::int64_t queries, std::int64_t keys) {
    return {integers("query_positions", {1, queries}), integers("key_positions", {1, keys}),
            integers("query_segments", {1, queries}), integers("key_segments", {1, keys})};
  }
};

using Build = std::function<ValueId(Expression&)>;  // the loss

struct Row {
  const char* op;  // stands in the forward pass
  const char* name;
  Build build;
};

std::vector<Row> rows() {
  const ops::RopeScaling scaled{8, 1, 4, 16};
  return {
      {"dot", "a matrix product",
       [](Expression& e) {
         return e.against_target(ops::dot(e.g, "ab,cb->ac", e.operand({3, 5}), e.operand({2, 5})));
       }},
      {"dot", "many dims",
       [](Expression& e) {
         return e.against_target(ops::dot(e.g, "bsh,kgdh->bskgd", e.operand({1, 2, 3}), e.operand({2, 1, 3, 3})));
       }},
      {"dot", "a factor in all three",
       [](Expression& e) {
         return e.against_target(ops::dot(e.g, "nab,nbc->nac", e.operand({2, 3, 2}), e.operand({2, 2, 3})));
       }},
      {"dot", "one operand fixed",
       [](Expression& e) {
         return e.against_target(ops::dot(e.g, "ab,bc->ac", e.fixed("waves", {3, 5}), e.operand({5, 2})));
       }},
      {"add", "three terms",
       [](Expression& e) {
         return e.against_target(ops::add(e.g, {e.operand({3}), e.operand({3}), e.operand({3})}));
       }},
      {"add", "to itself",
       [](Expression& e) {
         const ValueId x = e.operand({3});
         return e.against_target(ops::add(e.g, {x, x}));
       }},
      {"mul", "two tensors",
       [](Expression& e) {
         return e.against_target(ops::mul(e.g, e.operand({3, 3}), e.operand({3, 3})));
       }},
      {"mul", "with itself",
       [](Expression& e) {
         const ValueId x = e.operand({5});
         return e.against_target(ops::mul(e.g, x, x));
       }},
      {"silu_mul", "two tensors",
       [](Expression& e) { return e.against_target(ops::silu_mul(e.g, e.operand({7}), e.operand({7}))); }},
      {"silu_mul", "with itself",
       [](Expression& e) {
         const ValueId x = e.operand({7});
         return e.against_target(ops::silu_mul(e.g, x, x));
       }},
      {"tanh", "", [](Expression& e) { return e.against_target(ops::tanh(e.g, e.operand({7}))); }},
      {"add_bias", "both",
       [](Expression& e) {
         return e.against_target(ops::add_bias(e.g, e.operand({3, 5}), e.operand({5})));
       }},
      {"add_bias", "the bias alone",
       [](Expression& e) {
         return e.against_target(ops::add_bias(e.g, e.fixed("waves", {2, 3, 5}), e.operand({5})));
       }},
      {"scale", "", [](Expression& e) { return e.against_target(ops::scale(e.g, e.operand({5}), -2.5)); }},
      {"rms_norm", "input and weight",
       [](Expression& e) {
         return e.against_target(ops::rms_norm(e.g, e.operand({2, 3, 5}), e.operand({5}), 1e-2));
       }},
      {"embedding", "ids that repeat, and ids outside",
       [](Expression& e) {
         return e.against_target(ops::embedding(e.g, e.integers("ids", {1, 7}), e.operand({5, 3})));
       }},
      {"rope", "scaled frequencies",
       [=](Expression& e) {
         return e.against_target(
             ops::rope(e.g, e.operand({1, 3, 2, 6}), e.integers("positions", {1, 3}), 10000, scaled));
       }},
      {"attention", "segments, permuted positions, a query that sees no key",
       [](Expression& e) {
         return e.against_target(ops::attention(e.g, e.operand({1, 5, 2, 3, 3}), e.operand({1, 7, 2, 3}),
                                                e.operand({1, 7, 2, 3}), e.visibility(5, 7)));
       }},
      {"attention", "one tensor for all",
       [](Expression& e) {
         const ValueId x = e.operand({1, 5, 3});
         const ValueId query = ops::dot(e.g, "bsh,kgdh->bskgd", x, e.operand({1, 2, 3, 3}));
         const ValueId key = ops::dot(e.g, "bsh,kdh->bskd", x, e.operand({1, 3, 3}));
         return e.against_target(ops::attention(e.g, query, key, key, e.visibility(5, 5)));
       }},
      {"nll", "ignored targets, and targets outside the vocabulary",
       [](Expression& e) {
         for (const char* point : {"head.max", "head.sum", "head.target"})
           e.plan.set_reshard(point, parse_annotation("{0:}"));
         return ops::cross_entropy(e.g, "head", e.operand({1, 7, 5}), e.integers("targets", {1, 7}));
       }},
      {"squared_error", "",
       [](Expression& e) {
         return ops::squared_error(e.g, e.operand({3, 5}), e.fixed("target", {3, 5}));
       }},
  };
}

// Sums over the micro-batches, updates, counts, parts of the cross entropy (nll has the gradient of the whole), and the
// gradients themselves.
const std::set<std::string_view> kWithoutGradient = {
    "accumulate",     "adamw",     "attention_grad", "bias_grad",     "count_tokens", "cross_entropy_grad",
    "embedding_grad", "pick",      "rms_norm_grad",  "silu_mul_grad", "sum_exp",      "squared_error_grad",
    "sumsq",          "tanh_grad", "vocab_max"};

void feed(const FeedRequest& request) {
  const std::map<std::string, std::vector<std::int32_t>> integers = {
      {"ids", {2, 0, 2, -1, 4, 5, 2}},      {"positions", {0, 70, 3}},
      {"query_positions", {0, 6, 2, 9, 4}}, {"key_positions", {4, 1, 7, 2, 3, 5, 6}},
      {"query_segments", {0, 0, 0, 1, 0}},  {"key_segments", {0, 0, 0, 0, 1, 0, 1}},
      {"targets", {3, -1, 0, 4, 7, -5, 3}},
  };
  const std::string& name = request.feed->name;
  const std::int64_t n = volume(*request.box);
  const auto found = integers.find(name);
  for (std::int64_t i = 0; i < n; ++i) {
    if (found != integers.end()) {
      static_cast<std::int32_t*>(request.data)[i] = found->second.at(static_cast<std::size_t>(i));
    } else {
      static_cast<double*>(request.data)[i] =
          name.starts_with("ones.") ? 1 : 0.3 * std::sin(static_cast<double>(i) + 0.5);
    }
  }
}

// A leaf's values, in place.
using Values = std::span<double>;

std::map<std::string, Values> values_of(DeviceRun& run) {
  std::map<std::string, Values> values;
  for (const auto& view : run.executors().front()->leaves())
    values[view.leaf->name] = {static_cast<double*>(view.data), static_cast<std::size_t>(volume(view.box))};
  return values;
}

// Every parameter's gradient is added to a state of its own, so that it can be read.
void keep_gradients(Graph& g, Plan& plan, ValueId loss) {
  for (const LeafGradient& entry : differentiate(g, loss)) {
    const std::string name = "gradient." + g.label(entry.leaf);
    const ValueId state = g.state(name, g.value(entry.leaf).type.shape);
    plan.set_tensor(name, parse_annotation("{0:}"));
    g.update(state, ops::add(g, {state, entry.gradient}));
  }
}

void expect_slopes(const Row& row) {
  SCOPED_TRACE(fmt::format("{}: {}", row.op, row.name));
  Graph g;
  Plan plan;
  Expression expression{g, plan};
  const ValueId loss = row.build(expression);
  g.output("loss", ops::accumulate(g, loss));
  keep_gradients(g, plan, loss);
  RunOptions options;
  options.precision = Precision::kFp64;
  options.backend = Backend::kReference;
  options.sequence_length = 1;
  options.micro_batch_sizes = {{1, 1}};  // twice the same: the gradient accumulates
  const Cluster cluster = Cluster::uniform(1);
  DeviceRun run(g, plan, {0}, options, cluster);
  run.initialise();
  const std::map<std::string, Values> leaves = values_of(run);
  const auto loss_at = [&](double& element, double value) {
    element = value;
    run.step(feed);
    return run.output("loss");
  };

  run.step(feed);
  std::map<std::string, std::vector<double>> gradients;
  for (int w = 0; w < expression.made; ++w) {
    const std::string name = fmt::format("w{}/master", w);
    const Values gradient = leaves.at("gradient." + name);
    gradients[name].assign(gradient.begin(), gradient.end());
  }

  constexpr double kStep = 1e-5;
  for (const auto& [name, gradient] : gradients) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& element = leaves.at(name)[i];
      const double middle = element;
      const double slope = (loss_at(element, middle + kStep) - loss_at(element, middle - kStep)) / (2 * kStep);
      element = middle;
      EXPECT_NEAR(gradient[i], slope, 1e-7 * (1 + std::abs(slope))) << name << " element " << i;
    }
  }
}

TEST(Gradients, AgreeWithFiniteDifferences) {
  for (const Row& row : rows()) expect_slopes(row);
}

bool computes(const Graph& g, std::string_view op) {
  return std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& node) {
    const auto* compute = std::get_if<Compute>(&node.what);
    return compute != nullptr && compute->op->name() == op;
  });
}

TEST(Gradients, AreTriedForEveryOperatorThatHasOne) {
  std::set<std::string_view> tried;
  for (const Row& row : rows()) {
    Graph g;
    Plan plan;
    Expression expression{g, plan};
    (void)row.build(expression);
    EXPECT_TRUE(computes(g, row.op)) << row.op << ": " << row.name;
    tried.insert(row.op);
  }
  for (const Operator* op : ops::all())
    EXPECT_NE(tried.contains(op->name()), kWithoutGradient.contains(op->name())) << op->name();
}

TEST(Gradients, AnOperatorWithoutOneSaysSo) {
  Graph g;
  const ValueId x = g.parameter("x", {3}, Initializer::ones());
  (void)ops::add(g, {x, x, x, x, x, x, x, x, x, x, x});  // as many operands as any gradient may ask for
  const NodeId node{static_cast<int>(g.nodes().size()) - 1};
  const std::vector<bool> reached(static_cast<std::size_t>(g.value_count()), true);
  for (const std::string_view name : kWithoutGradient) {
    const Operator* op = ops::find(name);
    ASSERT_NE(op, nullptr) << name;
    std::vector<std::vector<ValueId>> contributions(static_cast<std::size_t>(g.value_count()));
    GradientBuilder builder(g, node, {std::nullopt}, reached, contributions);

    EXPECT_THROW(op->gradient(builder), InvalidArgument) << name;
  }
}

// The second results of rms_norm and of attention are for their gradients alone.
TEST(Gradients, AreRefusedWhereAUsedResultHasNone) {
  Graph g;
  Plan plan;
  Expression e{g, plan};
  const auto results = g.compute(ops::rms_norm_operator(), {e.operand({3, 5}), e.operand({5})}, {{"eps", 1e-2}});
  const ValueId inverse = ops::squared_error(g, results[1], e.fixed("inverses", {3}));
  const ValueId loss = ops::add(g, {e.against_target(results[0]), inverse});

  EXPECT_THROW((void)differentiate(g, loss), InvalidArgument);
}

TEST(Gradients, ATargetHasNone) {
  Graph g;
  Plan plan;
  Expression e{g, plan};
  const ValueId loss = ops::squared_error(g, e.operand({3}), e.operand({3}));

  EXPECT_THROW((void)differentiate(g, loss), InvalidArgument);
}

TEST(Gradients, ALossMustBeAScalar) {
  Graph g;
  Plan plan;
  Expression e{g, plan};
  const ValueId x = e.operand({3});
  EXPECT_THROW((void)differentiate(g, x), InvalidArgument);
}

}  // namespace
}  // namespace hspmd
