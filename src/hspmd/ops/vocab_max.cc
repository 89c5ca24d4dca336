#include "hspmd/ops/operators.h"

namespace hspmd::ops {
namespace {

// The largest logit of each row; a split vocabulary leaves max-Partial. Part of cross_entropy: no gradient of its own.
class VocabMax final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "vocab_max"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    ShardingRule rule{{"bsv"}, {"bs"}};
    rule.contraction = Reduction::kMax;
    return rule;
  }
};

}  // namespace

const Operator& vocab_max_operator() {
  static const VocabMax op;
  return op;
}

}  // namespace hspmd::ops
