#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

ShardingRule forward_rule(std::span<const TensorType> operands) {
  const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
  return {{factors, factors}, {""}};
}

class SquaredError final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "squared_error"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    return forward_rule(operands);
  }

  void gradient(GradientBuilder& builder) const override {
    if (builder.wants(builder.operand(1)))
      invalid("[squared_error] has no gradient for its target; let no parameter reach it");
    const ValueId prediction = builder.operand(0);
    builder.contribute(prediction, builder.graph()
                                       .compute(squared_error_grad_operator(),
                                                {prediction, builder.operand(1), builder.result_gradient(0)})
                                       .front());
  }
};

class SquaredErrorGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "squared_error_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const int wanted[] = {0};
    const int given[] = {0};
    return transposed(forward_rule(operands), wanted, given);
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

}  // namespace

const Operator& squared_error_operator() {
  static const SquaredError op;
  return op;
}

const Operator& squared_error_grad_operator() {
  static const SquaredErrorGrad op;
  return op;
}

ValueId squared_error(Graph& graph, ValueId prediction, ValueId target) {
  return graph.compute(squared_error_operator(), {prediction, target}).front();
}

}  // namespace hspmd::ops
