// Gradients of every operator against central finite differences, through the graph: the slope of the loss along a
// random direction of all parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "hspmd/graph/autodiff.h"
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

  ValueId target(SymbolicShape shape) {
    plan.set_tensor("target", parse_annotation("{0:}"));
    return g.placeholder("target", {std::move(shape), DType::kFloat});
  }

  ValueId against_target(ValueId value) { return ops::squared_error(g, value, target(g.value(value).type.shape)); }
};

using Build = std::function<ValueId(Expression&)>;  // the loss

void feed(const FeedRequest& request) {
  const std::string& name = request.feed->name;
  const std::int64_t n = volume(*request.box);
  for (std::int64_t i = 0; i < n; ++i) {
    if (name.starts_with("ones.")) static_cast<double*>(request.data)[i] = 1;
    if (name == "target") static_cast<double*>(request.data)[i] = 0.3 * std::sin(static_cast<double>(i));
    if (name == "positions") static_cast<std::int32_t*>(request.data)[i] = static_cast<std::int32_t>((i * 3) % 7);
    if (name == "segments") static_cast<std::int32_t*>(request.data)[i] = i % 5 == 4 ? 1 : 0;
    if (name == "ids") static_cast<std::int32_t*>(request.data)[i] = static_cast<std::int32_t>((i * 2) % 6);
    if (name == "targets")
      static_cast<std::int32_t*>(request.data)[i] = i == 1 ? -1 : static_cast<std::int32_t>((i * 3) % 5);
  }
}

void expect_slope(const char* name, const Build& build) {
  SCOPED_TRACE(name);
  Graph g;
  Plan plan;
  Expression expression{g, plan};
  const ValueId loss = build(expression);
  g.output("loss", ops::accumulate(g, loss));
  ASSERT_FALSE(expression.made == 0);
  const auto gradients = differentiate(g, loss);
  // g.d = (|g + d|^2 - |g|^2 - |d|^2) / 2
  std::vector<ValueId> both, alone, direction;
  for (const LeafGradient& entry : gradients) {
    const std::string leaf = g.label(entry.leaf);
    const ValueId d = g.state("direction." + leaf, g.value(entry.leaf).type.shape);
    plan.set_tensor("direction." + leaf, parse_annotation("{0:}"));
    both.push_back(ops::sumsq(g, ops::add(g, {entry.gradient, d})));
    alone.push_back(ops::sumsq(g, entry.gradient));
    direction.push_back(ops::sumsq(g, d));
  }
  g.output("both", ops::add(g, both));
  g.output("alone", ops::add(g, alone));
  g.output("direction", ops::add(g, direction));
  RunOptions options;
  options.precision = Precision::kFp64;
  options.backend = Backend::kReference;
  options.sequence_length = 1;
  options.micro_batch_sizes = {{1, 1}};  // twice the same: the gradient accumulates
  const Cluster cluster = Cluster::uniform(1);
  DeviceRun run(g, plan, {0}, options, cluster);
  run.initialise();
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  auto leaves = run.executors().front()->leaves();
  std::map<std::string, std::vector<double>> directions;
  for (auto& view : leaves) {
    if (!view.leaf->name.starts_with("direction.")) continue;
    auto& d = directions[view.leaf->name.substr(10)];
    for (std::int64_t i = 0; i < volume(view.box); ++i) d.push_back(normal(random));
    std::memcpy(view.data, d.data(), d.size() * sizeof(double));
  }
  const auto loss_at = [&](double step) {
    for (auto& view : leaves) {
      const auto found = directions.find(view.leaf->name);
      if (found == directions.end()) continue;
      for (std::size_t i = 0; i < found->second.size(); ++i)
        static_cast<double*>(view.data)[i] += step * found->second[i];
    }
    run.step(feed);
    return run.output("loss");
  };
  (void)loss_at(0);
  const double slope = (run.output("both") - run.output("alone") - run.output("direction")) / 2;
  constexpr double kStep = 1e-5;
  const double ahead = loss_at(kStep);
  const double behind = loss_at(-2 * kStep);

  EXPECT_NEAR(slope, (ahead - behind) / (2 * kStep), 1e-6 * (1 + std::abs(slope)));
}

TEST(Gradients, AgreeWithFiniteDifferences) {
  const ops::RopeScaling scaled{8, 1, 4, 16};
  const std::pair<const char*, Build> rows[] = {
      {"dot",
       [](Expression& e) {
         return e.against_target(ops::dot(e.g, "ab,cb->ac", e.operand({3, 4}), e.operand({2, 4})));
       }},
      {"dot of many dims",
       [](Expression& e) {
         return e.against_target(ops::dot(e.g, "bsh,kgdh->bskgd", e.operand({1, 2, 3}), e.operand({2, 2, 2, 3})));
       }},
      {"add",
       [](Expression& e) {
         return e.against_target(ops::add(e.g, {e.operand({3}), e.operand({3}), e.operand({3})}));
       }},
      {"add to itself",
       [](Expression& e) {
         const ValueId x = e.operand({3});
         return e.against_target(ops::add(e.g, {x, x}));
       }},
      {"mul",
       [](Expression& e) {
         return e.against_target(ops::mul(e.g, e.operand({3, 2}), e.operand({3, 2})));
       }},
      {"silu_mul", [](Expression& e) { return e.against_target(ops::silu_mul(e.g, e.operand({5}), e.operand({5}))); }},
      {"tanh", [](Expression& e) { return e.against_target(ops::tanh(e.g, e.operand({5}))); }},
      {"add_bias",
       [](Expression& e) {
         return e.against_target(ops::add_bias(e.g, e.operand({3, 4}), e.operand({4})));
       }},
      {"scale", [](Expression& e) { return e.against_target(ops::scale(e.g, e.operand({5}), -2.5)); }},
      {"rms_norm",
       [](Expression& e) {
         return e.against_target(ops::rms_norm(e.g, e.operand({2, 3, 4}), e.operand({4}), 1e-5));
       }},
      {"embedding",
       [](Expression& e) {
         return e.against_target(ops::embedding(e.g, e.integers("ids", {1, 4}), e.operand({6, 3})));
       }},
      {"rope",
       [&](Expression& e) {
         return e.against_target(
             ops::rope(e.g, e.operand({1, 3, 2, 6}), e.integers("positions", {1, 3}), 10000, scaled));
       }},
      {"attention",
       [](Expression& e) {
         const ValueId p = e.integers("positions", {1, 7});
         const ValueId s = e.integers("segments", {1, 7});
         return e.against_target(ops::attention(e.g, e.operand({1, 7, 2, 3, 4}), e.operand({1, 7, 2, 4}),
                                                e.operand({1, 7, 2, 4}), {p, p, s, s}));
       }},
      {"cross_entropy",
       [](Expression& e) {
         for (const char* point : {"head.max", "head.sum", "head.target"})
           e.plan.set_reshard(point, parse_annotation("{0:}"));
         return ops::cross_entropy(e.g, "head", e.operand({1, 4, 5}), e.integers("targets", {1, 4}));
       }},
  };
  for (const auto& [name, build] : rows) expect_slope(name, build);
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
