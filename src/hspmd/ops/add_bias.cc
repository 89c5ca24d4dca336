#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class AddBias final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "add_bias"; }

  // No Partial: the bias would be added once a device.
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    if (operands.empty() || operands.front().shape.empty())
      invalid("[add_bias] the operand must have at least one dim");
    const std::string factors = letters(operands.front().shape.size());
    return {{factors, factors.substr(factors.size() - 1)}, {factors}};
  }

  void gradient(GradientBuilder& builder) const override {
    const ValueId dy = builder.result_gradient(0);
    const ValueId bias = builder.operand(1);
    if (builder.wants(bias))
      builder.contribute(bias, builder.graph().compute(bias_grad_operator(), {bias, dy}).front());
    if (builder.wants(builder.operand(0))) builder.contribute(builder.operand(0), dy);
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

class BiasGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "bias_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.size() < 2 ? 1 : operands[1].shape.size());
    const std::string last = factors.substr(factors.size() - 1);
    ShardingRule rule{{last, factors}, {last}};
    rule.linear = {1};
    return rule;
  }
};

}  // namespace

const Operator& add_bias_operator() {
  static const AddBias op;
  return op;
}

const Operator& bias_grad_operator() {
  static const BiasGrad op;
  return op;
}

ValueId add_bias(Graph& graph, ValueId x, ValueId bias) {
  return graph.compute(add_bias_operator(), {x, bias}).front();
}

}  // namespace hspmd::ops
