#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class Rope final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "rope"; }

  // [b,s,...,d]: the dims between are heads; d stays whole, since element i turns with element i + d/2.
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::size_t rank = operands.empty() ? 0 : operands.front().shape.size();
    if (rank < 3 || rank > 6) invalid("[rope] the operand must have from 3 to 6 dims. Received {}.", rank);
    const std::string factors = "bs" + std::string("kgmn").substr(0, rank - 3) + "d";
    ShardingRule rule{{factors, "bs"}, {factors}};
    rule.unsplittable = "d";
    rule.linear = {0};
    return rule;
  }

  // A rotation's transpose turns back.
  void gradient(GradientBuilder& builder) const override {
    Attributes attributes = builder.attributes();
    attributes.set("inverse", std::int64_t{1 - attributes.integer("inverse")});
    builder.contribute(
        builder.operand(0),
        builder.graph().compute(*this, {builder.result_gradient(0), builder.operand(1)}, attributes).front());
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

}  // namespace

const Operator& rope_operator() {
  static const Rope op;
  return op;
}

ValueId rope(Graph& graph, ValueId x, ValueId positions, double theta, const RopeScaling& scaling) {
  const Attributes attributes{{"theta", theta},
                              {"inverse", std::int64_t{0}},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_freq_factor},
                              {"high_freq_factor", scaling.high_freq_factor},
                              {"original_max_position", scaling.original_max_position}};
  return graph.compute(rope_operator(), {x, positions}, attributes).front();
}

}  // namespace hspmd::ops
