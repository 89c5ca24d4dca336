#include "hspmd/ops/operators.h"

namespace hspmd::ops {
namespace {

// Sum over the vocabulary of exp(logit - max). Part of cross_entropy: no gradient of its own.
class SumExp final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "sum_exp"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    return {{"bsv", "bs"}, {"bs"}};
  }
};

}  // namespace

const Operator& sum_exp_operator() {
  static const SumExp op;
  return op;
}

}  // namespace hspmd::ops
