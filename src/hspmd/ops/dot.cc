#include "hspmd/graph/autodiff.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {
namespace {

struct Factors {
  std::string a, b, y;
};

Factors parse(const std::string& text) {
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) {
    invalid("[dot] factors must read like \"bsh,fh->bsf\". Received \"{}\".", text);
  }
  Factors factors{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1), text.substr(arrow + 2)};
  const auto known = [&](const std::string& dims, const std::string& other, const std::string& another) {
    for (const char f : dims) {
      const bool shared = other.find(f) != std::string::npos || another.find(f) != std::string::npos;
      if (!shared || dims.find(f) != dims.rfind(f))
        invalid("[dot] the factor \"{}\" of \"{}\" must stand once in at least two tensors", f, text);
    }
  };
  known(factors.a, factors.b, factors.y);
  known(factors.b, factors.a, factors.y);
  known(factors.y, factors.a, factors.b);
  return factors;
}

class Dot final : public Operator {
 public:
  [[nodiscard]] std::string_view name() const override { return "dot"; }

  [[nodiscard]] ShardingRule rule(const Attributes& attributes, std::span<const TensorType>) const override {
    Factors factors = parse(attributes.text("factors"));
    ShardingRule rule{{std::move(factors.a), std::move(factors.b)}, {std::move(factors.y)}};
    rule.linear = {0, 1};
    return rule;
  }

  void gradient(GradientBuilder& builder) const override {
    const auto [a, b, y] = parse(builder.attributes().text("factors"));
    const ValueId dy = builder.result_gradient(0);
    const ValueId left = builder.operand(0);
    const ValueId right = builder.operand(1);
    if (builder.wants(right)) builder.contribute(right, dot(builder.graph(), y + "," + a + "->" + b, dy, left));
    if (builder.wants(left)) builder.contribute(left, dot(builder.graph(), y + "," + b + "->" + a, dy, right));
  }

  [[nodiscard]] bool can_add() const override { return true; }

  [[nodiscard]] Cost cost(const Attributes& attributes, std::span<const Shape> operands,
                          std::span<const Shape> results) const override {
    Cost cost = Operator::cost(attributes, operands, results);
    const Factors factors = parse(attributes.text("factors"));
    cost.flops = 2 * static_cast<double>(volume(operands[0]));
    for (std::size_t d = 0; d < factors.b.size(); ++d) {
      if (factors.a.find(factors.b[d]) == std::string::npos) cost.flops *= static_cast<double>(operands[1][d]);
    }
    return cost;
  }
};

}  // namespace

const Operator& dot_operator() {
  static const Dot dot;
  return dot;
}

ValueId dot(Graph& graph, const std::string& factors, ValueId a, ValueId b) {
  return graph.compute(dot_operator(), {a, b}, {{"factors", factors}}).front();
}

}  // namespace hspmd::ops
