#include "hspmd/ops/operators.h"

namespace hspmd::ops {
namespace {

// The target's logit; 0 where the target is not in this part of the vocabulary. Part of cross_entropy.
class Pick final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "pick"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    ShardingRule rule{{"bsv", "bs"}, {"bs"}};
    rule.linear = {0};
    return rule;
  }
};

}  // namespace

const Operator& pick_operator() {
  static const Pick op;
  return op;
}

}  // namespace hspmd::ops
