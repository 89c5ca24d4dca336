#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class Tanh final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "tanh"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
    return {{factors}, {factors}};
  }

  void gradient(GradientBuilder& builder) const override {
    builder.contribute(
        builder.operand(0),
        builder.graph().compute(tanh_grad_operator(), {builder.result(0), builder.result_gradient(0)}).front());
  }
};

// dx = dy * (1 - y^2): reads the result, not the operand, so that the operand can be forgotten.
class TanhGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "tanh_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
    ShardingRule rule{{factors, factors}, {factors}};
    rule.linear = {1};
    return rule;
  }

  [[nodiscard]] int overwrites(int) const override { return 1; }
};

}  // namespace

const Operator& tanh_operator() {
  static const Tanh op;
  return op;
}

const Operator& tanh_grad_operator() {
  static const TanhGrad op;
  return op;
}

ValueId tanh(Graph& graph, ValueId x) {
  return graph.compute(tanh_operator(), {x}).front();
}

}  // namespace hspmd::ops
