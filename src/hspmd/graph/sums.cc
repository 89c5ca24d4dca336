#include "hspmd/graph/sums.h"

#include "hspmd/graph/autodiff.h"

namespace hspmd {
namespace {

class Add final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "add"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.empty() ? 0 : operands.front().shape.size());
    ShardingRule rule{std::vector<std::string>(operands.size(), factors), {factors}};
    rule.jointly_linear = true;
    return rule;
  }

  void gradient(GradientBuilder& builder) const override {
    for (int i = 0; i < builder.operand_count(); ++i)
      builder.contribute(builder.operand(i), builder.result_gradient(0));
  }

  [[nodiscard]] int overwrites(int) const override { return 0; }
};

class Accumulate final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "accumulate"; }

  [[nodiscard]] ShardingRule rule(const Attributes&, std::span<const TensorType> operands) const override {
    const std::string factors = letters(operands.front().shape.size());
    ShardingRule rule{{factors}, {factors}};
    rule.linear = {0};
    return rule;
  }

  [[nodiscard]] bool can_add() const override { return true; }
  [[nodiscard]] bool accumulates() const override { return true; }
};

}  // namespace

const Operator& add_operator() {
  static const Add add;
  return add;
}

const Operator& accumulate_operator() {
  static const Accumulate accumulate;
  return accumulate;
}

}  // namespace hspmd
