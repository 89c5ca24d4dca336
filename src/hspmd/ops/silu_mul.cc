#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

ShardingRule forward_rule(std::span<const TensorType> operands) {
  const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
  ShardingRule rule{{factors, factors}, {factors}};
  rule.linear = {1};
  return rule;
}

class SiluMul final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "silu_mul"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    return forward_rule(operands);
  }

  void gradient(GradientBuilder& builder) const override {
    const ValueId gate = builder.operand(0);
    const ValueId up = builder.operand(1);
    const auto gradients = builder.graph().compute(silu_mul_grad_operator(), {gate, up, builder.result_gradient(0)});
    builder.contribute(gate, gradients[0]);
    builder.contribute(up, gradients[1]);
  }
};

class SiluMulGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "silu_mul_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const int wanted[] = {0, 1};
    const int given[] = {0};
    return transposed(forward_rule(operands), wanted, given);
  }

  [[nodiscard]] int overwrites(int result) const override { return result; }
};

}  // namespace

const Operator& silu_mul_operator() {
  static const SiluMul op;
  return op;
}

const Operator& silu_mul_grad_operator() {
  static const SiluMulGrad op;
  return op;
}

ValueId silu_mul(Graph& graph, ValueId gate, ValueId up) {
  return graph.compute(silu_mul_operator(), {gate, up}).front();
}

}  // namespace hspmd::ops
