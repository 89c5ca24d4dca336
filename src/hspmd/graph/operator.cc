#include "hspmd/graph/operator.h"

#include <algorithm>

namespace hspmd {
namespace {

template <typename T>
const T& typed(const std::map<std::string, Attributes::Value>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) throw InternalError(fmt::format("[graph] the attribute {} must be set", name));
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) throw InternalError(fmt::format("[graph] the attribute {} has another type", name));
  return *value;
}

}  // namespace

std::int64_t Attributes::integer(const std::string& name) const {
  return typed<std::int64_t>(values_, name);
}
double Attributes::number(const std::string& name) const {
  return typed<double>(values_, name);
}
const std::string& Attributes::text(const std::string& name) const {
  return typed<std::string>(values_, name);
}

ShardingRule transposed(const ShardingRule& forward, std::span<const int> wanted, std::span<const int> given) {
  ShardingRule rule;
  rule.operands = forward.operands;
  rule.unsplittable = forward.unsplittable;
  for (const int result : given) {
    rule.linear.push_back(static_cast<int>(rule.operands.size()));
    rule.operands.push_back(forward.results[static_cast<std::size_t>(result)]);
  }
  for (const int operand : wanted) rule.results.push_back(forward.operands[static_cast<std::size_t>(operand)]);
  return rule;
}

std::map<char, Dim> factor_sizes(std::string_view op, const ShardingRule& rule, std::span<const TensorType> operands) {
  if (operands.size() != rule.operands.size()) {
    invalid("[{}] must have {} operands. Received {}.", op, rule.operands.size(), operands.size());
  }
  std::map<char, Dim> sizes;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const SymbolicShape& shape = operands[i].shape;
    if (shape.size() != rule.operands[i].size()) {
      invalid("[{}] operand {} must have the dims \"{}\". Received the shape {}.", op, i, rule.operands[i],
              to_string(shape));
    }
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const auto [known, fresh] = sizes.emplace(rule.operands[i][d], shape[d]);
      if (!fresh && known->second != shape[d]) {
        invalid("[{}] the operands must agree on the length of \"{}\". Received {} and {} (dim {} of operand {}).", op,
                rule.operands[i][d], to_string(known->second), to_string(shape[d]), d, i);
      }
    }
  }
  return sizes;
}

std::vector<TensorType> Operator::infer(const Attributes& attributes, std::span<const TensorType> operands) const {
  const ShardingRule factors = rule(attributes, operands);
  const auto sizes = factor_sizes(name(), factors, operands);
  std::vector<TensorType> results;
  for (const std::string& result : factors.results) {
    TensorType type;
    for (const char factor : result) type.shape.push_back(sizes.at(factor));
    results.push_back(type);
  }
  return results;
}

void Operator::gradient(GradientBuilder&) const {
  invalid("[{}] has no gradient; let no parameter reach the loss through it", name());
}

Cost Operator::cost(const Attributes&, std::span<const Shape> operands, std::span<const Shape> results) const {
  constexpr double kElementBytes = 4;
  Cost cost;
  const auto see = [&](const Shape& shape) {
    const auto elements = static_cast<double>(volume(shape));
    cost.flops = std::max(cost.flops, elements);
    cost.bytes += elements * kElementBytes;
  };
  for (const Shape& shape : operands) see(shape);
  for (const Shape& shape : results) see(shape);
  return cost;
}

int Operator::overwrites(int) const {
  return -1;
}

std::string letters(std::size_t rank) {
  std::string text;
  for (std::size_t i = 0; i < rank; ++i) text += static_cast<char>('a' + i);
  return text;
}

}  // namespace hspmd
