#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class AdamW final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "adamw"; }

  // master, m, v, gradient sum; sum of squares, count; learning rate and bias corrections
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
    return {{factors, factors, factors, factors, "", "", "z"}, {factors, factors, factors}};
  }

  [[nodiscard]] int overwrites(int result) const override { return result; }
};

}  // namespace

const Operator& adamw_operator() {
  static const AdamW op;
  return op;
}

AdamWResults adamw(Graph& graph, const AdamWOperands& o, const AdamWAttributes& a) {
  const Attributes attributes{{"beta1", a.beta1},
                              {"beta2", a.beta2},
                              {"eps", a.eps},
                              {"weight_decay", a.weight_decay},
                              {"clip_norm", a.clip_norm}};
  const auto results = graph.compute(
      adamw_operator(), {o.master, o.m, o.v, o.gradient_sum, o.gradient_sumsq, o.count, o.step_inputs}, attributes);
  return {results[0], results[1], results[2]};
}

}  // namespace hspmd::ops
