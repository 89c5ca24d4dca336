#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

// Results: the context, and log(sum(exp)) of each query's scores, which the gradient reads.
ShardingRule forward_rule() {
  ShardingRule rule{{"bskgd", "btkd", "btkd", "bs", "bt", "bs", "bt"}, {"bskgd", "bskg"}};
  rule.unsplittable = "td";
  rule.linear = {2};
  rule.aside = {1};
  return rule;
}

// Causal: about half of all pairs of positions.
Cost attention_cost(const Operator& op, const Attributes& attributes, std::span<const Shape> operands,
                    std::span<const Shape> results, double products) {
  Cost cost = op.Operator::cost(attributes, operands, results);
  cost.flops = products * static_cast<double>(volume(operands[0])) * static_cast<double>(operands[1][1]);
  return cost;
}

class Attention final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "attention"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    return forward_rule();
  }

  void gradient(GradientBuilder& builder) const override {
    std::vector<ValueId> operands;
    for (int i = 0; i < builder.operand_count(); ++i) operands.push_back(builder.operand(i));
    operands.insert(operands.end(), {builder.result(0), builder.result(1), builder.result_gradient(0)});
    const auto gradients = builder.graph().compute(attention_grad_operator(), std::move(operands));
    for (int i = 0; i < 3; ++i) builder.contribute(builder.operand(i), gradients[static_cast<std::size_t>(i)]);
  }

  [[nodiscard]] Cost cost(const Attributes& a, std::span<const Shape> operands,
                          std::span<const Shape> results) const override {
    return attention_cost(*this, a, operands, results, 2);  // two products, half of the pairs, 2 flops each
  }
};

class AttentionGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "attention_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    const ShardingRule forward = forward_rule();
    ShardingRule rule{forward.operands, {"bskgd", "btkd", "btkd"}};
    rule.operands.insert(rule.operands.end(), {"bskgd", "bskg", "bskgd"});  // context, log-sum-exp, gradient
    rule.unsplittable = forward.unsplittable;
    rule.linear = {9};
    return rule;
  }

  [[nodiscard]] Cost cost(const Attributes& a, std::span<const Shape> operands,
                          std::span<const Shape> results) const override {
    return attention_cost(*this, a, operands, results, 5);  // the scores again, and four products
  }
};

}  // namespace

const Operator& attention_operator() {
  static const Attention op;
  return op;
}

const Operator& attention_grad_operator() {
  static const AttentionGrad op;
  return op;
}

ValueId attention(Graph& graph, ValueId query, ValueId key, ValueId value, const Visibility& visibility) {
  return graph
      .compute(attention_operator(), {query, key, value, visibility.query_positions, visibility.key_positions,
                                      visibility.query_segments, visibility.key_segments})
      .front();
}

}  // namespace hspmd::ops
