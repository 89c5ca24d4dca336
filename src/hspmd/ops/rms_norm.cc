#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

// Results: y, and 1/rms of each row, which the gradient reads.
ShardingRule forward_rule(std::span<const TensorType> operands) {
  if (operands.empty() || operands.front().shape.empty()) invalid("[rms_norm] the operand must have at least one dim");
  const std::string factors = letters(operands.front().shape.size());
  const std::string last = factors.substr(factors.size() - 1);
  ShardingRule rule{{factors, last}, {factors, factors.substr(0, factors.size() - 1)}};
  rule.unsplittable = last;
  rule.linear = {1};
  rule.aside = {1};
  return rule;
}

class RmsNorm final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "rms_norm"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    return forward_rule(operands);
  }

  void gradient(GradientBuilder& builder) const override {
    const ValueId x = builder.operand(0);
    const ValueId weight = builder.operand(1);
    const auto gradients =
        builder.graph().compute(rms_norm_grad_operator(), {x, weight, builder.result(1), builder.result_gradient(0)});
    builder.contribute(weight, gradients[1]);
    builder.contribute(x, gradients[0]);
  }
};

class RmsNormGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "rms_norm_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const ShardingRule forward = forward_rule(operands);
    ShardingRule rule{{forward.operands[0], forward.operands[1], forward.results[1], forward.results[0]},
                      forward.operands};
    rule.unsplittable = forward.unsplittable;
    rule.linear = {3};
    return rule;
  }
};

}  // namespace

const Operator& rms_norm_operator() {
  static const RmsNorm op;
  return op;
}

const Operator& rms_norm_grad_operator() {
  static const RmsNormGrad op;
  return op;
}

ValueId rms_norm(Graph& graph, ValueId x, ValueId weight, double eps) {
  return graph.compute(rms_norm_operator(), {x, weight}, {{"eps", eps}}).front();
}

}  // namespace hspmd::ops
