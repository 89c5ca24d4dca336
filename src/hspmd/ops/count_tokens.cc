#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

class CountTokens final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "count_tokens"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    return {{"bs"}, {""}};
  }
};

}  // namespace

const Operator& count_tokens_operator() {
  static const CountTokens op;
  return op;
}

ValueId count_tokens(Graph& graph, ValueId targets) {
  return graph.compute(count_tokens_operator(), {targets}).front();
}

}  // namespace hspmd::ops
