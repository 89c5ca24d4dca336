// Operator: what the graph knows of a computation. One file in ops/ defines one operator; its kernels are files in
// runtime/kernels.
//
// The sharding rule names the factors of every dim as einsum does. One engine (deduce.h) reads all else from it:
//
//   dot          {"bsk", "kn"} -> {"bsn"}     split b or s: passes; split n of W: n of Y; split k of both: Y Partial
//   rms_norm     {"bsh", "h"} -> {"bsh"}      unsplittable "h"; Partial passes through the weight alone
//   add          {"bsh", "bsh"} -> {"bsh"}    Partial only if all operands are Partial: a Duplicate addend would
//                                             count once a device
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hspmd/annotation/annotation.h"
#include "hspmd/graph/tensor_type.h"

namespace hspmd {

enum class ValueId : int {};
enum class NodeId : int {};
[[nodiscard]] constexpr int index(ValueId id) {
  return static_cast<int>(id);
}
[[nodiscard]] constexpr int index(NodeId id) {
  return static_cast<int>(id);
}

// Named constants of one node: eps, theta, the factors of a dot, ...
class Attributes {
 public:
  using Value = std::variant<std::int64_t, double, std::string>;
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Value>> values) : values_(values) {}

  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }
  // Throw InternalError when absent or of another type: attributes are set by our builders alone.
  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, Value>& all() const { return values_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::map<std::string, Value> values_;
};

struct ShardingRule {
  std::vector<std::string> operands;  // a letter for each dim of each operand
  std::vector<std::string> results;
  std::string unsplittable = {};            // factors that may not be split
  std::vector<int> linear = {};             // operands through which, each alone, Partial may pass
  std::vector<int> aside = {};              // results that do not depend on the linear operands: Partial passes them by
  bool jointly_linear = false;              // Partial passes if every operand is Partial
  Reduction contraction = Reduction::kSum;  // what a split factor that no result has leaves behind
};

// The rule of the gradient for the operands `wanted`: operands are the forward operands and one gradient for each
// forward result in `given`; results have the factors of the wanted operands; the same factors stay whole; it is
// linear in the given gradients alone.
[[nodiscard]] ShardingRule transposed(const ShardingRule& forward, std::span<const int> wanted,
                                      std::span<const int> given);

struct Cost {
  double flops = 0;
  double bytes = 0;  // read and written
};

class GradientBuilder;  // autodiff.h

class Operator {
 public:
  virtual ~Operator() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // `operands` are the types of the operands: the rule of an element-wise operator depends on their rank.
  [[nodiscard]] virtual ShardingRule rule(const Attributes& attributes, std::span<const TensorType> operands) const = 0;
  // The types of the results. By default: floats, every factor as long as in the operands that have it.
  // Throws InvalidArgument when operands disagree.
  [[nodiscard]] virtual std::vector<TensorType> infer(const Attributes& attributes,
                                                      std::span<const TensorType> operands) const;
  // Adds the gradient to the graph. By default throws: the operator has none.
  virtual void gradient(GradientBuilder& builder) const;
  // Of one device's part, local shapes. By default: as many flops as the largest tensor has elements, all tensors
  // read or written once.
  [[nodiscard]] virtual Cost cost(const Attributes& attributes, std::span<const Shape> operands,
                                  std::span<const Shape> results) const;
  // The operand that result `i` may overwrite, -1 if none: the kernel reads each element before it writes it.
  [[nodiscard]] virtual int overwrites(int result) const;
  // Can its kernel add into its (one) result instead of setting it?
  [[nodiscard]] virtual bool can_add() const { return false; }
  // Does the result live on from micro-batch to micro-batch, summed, until the step ends?
  [[nodiscard]] virtual bool accumulates() const { return false; }
};

// Shapes of operands by factor: throws InvalidArgument naming the operator when a factor has two lengths.
[[nodiscard]] std::map<char, Dim> factor_sizes(std::string_view op, const ShardingRule& rule,
                                               std::span<const TensorType> operands);

// "abc..." of a length: the factors of an element-wise operator.
[[nodiscard]] std::string letters(std::size_t rank);

}  // namespace hspmd
