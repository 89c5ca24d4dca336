#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class Mul final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "mul"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
    ShardingRule rule{{factors, factors}, {factors}};
    rule.linear = {0, 1};
    return rule;
  }

  void gradient(GradientBuilder& builder) const override {
    const ValueId dy = builder.result_gradient(0);
    for (int i = 0; i < 2; ++i) {
      if (builder.wants(builder.operand(i)))
        builder.contribute(builder.operand(i), mul(builder.graph(), dy, builder.operand(1 - i)));
    }
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

}  // namespace

const Operator& mul_operator() {
  static const Mul mul;
  return mul;
}

ValueId mul(Graph& graph, ValueId a, ValueId b) {
  return graph.compute(mul_operator(), {a, b}).front();
}

}  // namespace hspmd::ops
