#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class Scale final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "scale"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
    ShardingRule rule{{factors}, {factors}};
    rule.linear = {0};
    return rule;
  }

  void gradient(GradientBuilder& builder) const override {
    builder.contribute(builder.operand(0),
                       scale(builder.graph(), builder.result_gradient(0), builder.attributes().number("factor")));
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

}  // namespace

const Operator& scale_operator() {
  static const Scale op;
  return op;
}

ValueId scale(Graph& graph, ValueId x, double factor) {
  return graph.compute(scale_operator(), {x}, {{"factor", factor}}).front();
}

}  // namespace hspmd::ops
