// Cross entropy over a vocabulary that may be split:
//   max -> [PREFIX.max] -> sum of exp -> [PREFIX.sum], target's logit -> [PREFIX.target] -> negative log likelihood
// The whole has one fused gradient, exp(logit - max) / sum - [target], so that the logits are read once backward.
#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class NegativeLogLikelihood final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "nll"; }
  // max, sum, the target's logit, targets
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    return {{"bs", "bs", "bs", "bs"}, {""}};
  }

  void gradient(GradientBuilder& builder) const override {
    const auto logits = ValueId{static_cast<int>(builder.attributes().integer("logits"))};
    builder.contribute(logits,
                       builder.graph()
                           .compute(cross_entropy_grad_operator(), {logits, builder.operand(0), builder.operand(1),
                                                                    builder.operand(3), builder.result_gradient(0)})
                           .front());
  }
};

class CrossEntropyGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "cross_entropy_grad"; }

  // logits, max, sum, targets, gradient of the loss
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    ShardingRule rule{{"bsv", "bs", "bs", "bs", ""}, {"bsv"}};
    rule.linear = {4};
    return rule;
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

}  // namespace

const Operator& nll_operator() {
  static const NegativeLogLikelihood op;
  return op;
}

const Operator& cross_entropy_grad_operator() {
  static const CrossEntropyGrad op;
  return op;
}

ValueId cross_entropy(Graph& graph, const std::string& prefix, ValueId logits, ValueId targets) {
  const ValueId max = graph.reshard(prefix + ".max", graph.compute(vocab_max_operator(), {logits}).front());
  const ValueId sum = graph.compute(sum_exp_operator(), {logits, max}).front();
  const ValueId picked = graph.compute(pick_operator(), {logits, targets}).front();
  const ValueId whole_sum = graph.reshard(prefix + ".sum", sum);
  const ValueId whole_picked = graph.reshard(prefix + ".target", picked);
  return graph
      .compute(nll_operator(), {max, whole_sum, whole_picked, targets}, {{"logits", std::int64_t{index(logits)}}})
      .front();
}

}  // namespace hspmd::ops
