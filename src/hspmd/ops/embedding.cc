#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

ShardingRule forward_rule() {
  ShardingRule rule{{"bs", "vh"}, {"bsh"}};
  rule.linear = {1};
  return rule;
}

class Embedding final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "embedding"; }
  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    return forward_rule();
  }

  void gradient(GradientBuilder& builder) const override {
    const ValueId table = builder.operand(1);
    builder.contribute(table,
                       builder.graph()
                           .compute(embedding_grad_operator(), {builder.operand(0), table, builder.result_gradient(0)})
                           .front());
  }
};

class EmbeddingGrad final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "embedding_grad"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType>) const override {
    const int wanted[] = {1};
    const int given[] = {0};
    return transposed(forward_rule(), wanted, given);
  }

  [[nodiscard]] bool can_add() const override { return true; }
};

}  // namespace

const Operator& embedding_operator() {
  static const Embedding op;
  return op;
}

const Operator& embedding_grad_operator() {
  static const EmbeddingGrad op;
  return op;
}

ValueId embedding(Graph& graph, ValueId ids, ValueId table) {
  return graph.compute(embedding_operator(), {ids, table}).front();
}

}  // namespace hspmd::ops
