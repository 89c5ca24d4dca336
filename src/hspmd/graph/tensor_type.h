// TensorType: element type and shape of a graph value. A dim is an integer or a symbol (B, S) that `bind` makes
// concrete on each device.
//
//   {B, S, 128} with B = 4, S = 512  ->  4x512x128
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "hspmd/base/box.h"

namespace hspmd {

struct Symbol {
  char name = '?';
  friend auto operator<=>(const Symbol&, const Symbol&) = default;
};
inline constexpr Symbol kBatch{'B'};     // sequences in a micro-batch
inline constexpr Symbol kSequence{'S'};  // tokens in a sequence

using Dim = std::variant<std::int64_t, Symbol>;
using SymbolicShape = InlineVector<Dim, kMaxRank>;

enum class DType {
  kFloat,  // the run's precision (fp32, fp64, bf16)
  kInt32,  // ids, positions, segments
};

struct TensorType {
  SymbolicShape shape;
  DType dtype = DType::kFloat;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Sizes of symbols. Small: looked up linearly.
class Bindings {
 public:
  Bindings() = default;
  Bindings(std::initializer_list<std::pair<Symbol, std::int64_t>> sizes) : sizes_(sizes) {}
  void set(Symbol symbol, std::int64_t size);
  // Throws InvalidArgument naming the symbol that has no size.
  [[nodiscard]] std::int64_t at(Symbol symbol) const;
  friend bool operator==(const Bindings&, const Bindings&) = default;

 private:
  std::vector<std::pair<Symbol, std::int64_t>> sizes_;
};

[[nodiscard]] Shape concrete(const SymbolicShape& shape, const Bindings& sizes);
[[nodiscard]] bool is_symbolic(const SymbolicShape& shape);

[[nodiscard]] std::string to_string(const Dim& dim);
[[nodiscard]] std::string to_string(const SymbolicShape& shape);  // "BxSx128"; a scalar is "scalar"

}  // namespace hspmd
