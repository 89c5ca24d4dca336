#include "hspmd/graph/tensor_type.h"

namespace hspmd {

void Bindings::set(Symbol symbol, std::int64_t size) {
  for (auto& [known, value] : sizes_) {
    if (known == symbol) {
      value = size;
      return;
    }
  }
  sizes_.emplace_back(symbol, size);
}

std::int64_t Bindings::at(Symbol symbol) const {
  for (const auto& [known, value] : sizes_) {
    if (known == symbol) return value;
  }
  invalid("[bind] the symbol {} must have a size", symbol.name);
}

Shape concrete(const SymbolicShape& shape, const Bindings& sizes) {
  Shape bound;
  for (const Dim& dim : shape) {
    const auto* symbol = std::get_if<Symbol>(&dim);
    bound.push_back(symbol != nullptr ? sizes.at(*symbol) : std::get<std::int64_t>(dim));
  }
  return bound;
}

bool is_symbolic(const SymbolicShape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const Dim& dim) { return std::holds_alternative<Symbol>(dim); });
}

std::string to_string(const Dim& dim) {
  const auto* symbol = std::get_if<Symbol>(&dim);
  return symbol != nullptr ? std::string(1, symbol->name) : fmt::format("{}", std::get<std::int64_t>(dim));
}

std::string to_string(const SymbolicShape& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const Dim& dim : shape) text += (text.empty() ? "" : "x") + to_string(dim);
  return text;
}

}  // namespace hspmd
