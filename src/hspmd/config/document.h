// Document: a YAML (or JSON) file, and ConfigNode: a place in it that is read with checks.
//
//   1  format: hspmd-train/1
//   2  optimizer: {lr: 1.0e-3, bta: [0.9, 0.95]}
//
//   const Document document = Document::load("run.yaml");
//   const ConfigNode root = document.root();
//   require_format(root, "hspmd-train/1");
//   const ConfigNode optimizer = root.at("optimizer");
//   optimizer.required<double>("lr", positive())                          0.001
//   optimizer.optional<std::vector<double>>("betas")                      nullopt
//   root.reject_unknown();
//     [config] run.yaml:2: optimizer.bta is not known; did you mean betas? Known here: lr, betas. Received [0.9, 0.95].
//
// Every fault is an InvalidArgument that names file, line, key, what must hold and what came. A key that was asked for is
// known; reject_unknown refuses the others. A null counts as absent. Text that reads as a number, a truth value or null
// must be quoted to be text, except in a flag.
// Bounds: 64 MiB a file, 64 levels, 2^20 values and 64 MiB of text after aliases are expanded. Keys are texts, once each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hspmd/config/range.h"

namespace hspmd {

struct Tree;  // what a Document owns
class Document;

template <typename T>
struct Choice {
  std::string_view word;
  T value;
};

// A handle: the Document must outlive it.
class ConfigNode {
 public:
  [[nodiscard]] std::string file() const;
  [[nodiscard]] int line() const;           // from 1; 0 for a flag
  [[nodiscard]] std::string key() const;    // "pipelines[0].stages[1].tp"; empty for the root
  [[nodiscard]] std::string where() const;  // "run.yaml:7: optimizer.lr", or "--optimizer.lr"
  [[nodiscard]] std::string text() const;   // as YAML in a line, shortened

  [[nodiscard]] bool is_scalar() const;
  [[nodiscard]] bool is_list() const;
  [[nodiscard]] bool is_map() const;

  // A map's value.
  [[nodiscard]] std::optional<ConfigNode> find(std::string_view key) const;
  [[nodiscard]] ConfigNode at(std::string_view key) const;
  // All of a map whose keys are free, in the file's order.
  [[nodiscard]] std::vector<std::pair<std::string, ConfigNode>> entries() const;
  [[nodiscard]] std::vector<ConfigNode> items() const;

  // T is bool, int, std::int64_t, std::uint64_t, double, std::string, or a vector of one of them, whose every item is
  // in the range.
  template <typename T>
  [[nodiscard]] T as() const;
  template <typename T>
  [[nodiscard]] T as(const RangeOf<T>& range) const;

  template <typename T, typename... Range>
  [[nodiscard]] T required(std::string_view key, const Range&... range) const {
    return at(key).template as<T>(range...);
  }
  template <typename T, typename... Range>
  [[nodiscard]] std::optional<T> optional(std::string_view key, const Range&... range) const {
    const auto node = find(key);
    if (!node) return std::nullopt;
    return node->template as<T>(range...);
  }
  template <typename T, typename... Range>
  [[nodiscard]] T value_or(std::string_view key, T otherwise, const Range&... range) const {
    return this->template optional<T>(key, range...).value_or(std::move(otherwise));
  }

  // One of several words. `unbuilt` are words of the format that no code stands behind yet: they are refused by name.
  template <typename T>
  [[nodiscard]] T one_of(const std::vector<Choice<T>>& choices, const std::vector<std::string>& unbuilt = {}) const {
    std::vector<std::string> words;
    for (const auto& choice : choices) words.emplace_back(choice.word);
    return choices[choose(words, unbuilt)].value;
  }

  // A number in a unit of 10^shift: `gb_per_s: 400` is 400 with the shift 9. The range is in the file's unit.
  [[nodiscard]] double scaled(int shift, const Range<double>& range) const;

  // Keys of the format that no code stands behind yet: reject_unknown refuses them by name.
  void not_built(const std::vector<std::string>& keys) const;
  // Refuses, here and below, every key that was not asked for. Maps that nobody looked into are left alone.
  void reject_unknown() const;

  // "[config] WHERE must MUST. Received TEXT."
  [[noreturn]] void refuse(std::string_view must) const;

 private:
  friend class Document;
  ConfigNode(Tree* tree, int index) : tree_(tree), index_(index) {}

  [[nodiscard]] std::size_t choose(const std::vector<std::string>& words, const std::vector<std::string>& unbuilt) const;
  [[noreturn]] void refuse_missing(std::string_view key) const;
  void find_unknown(std::vector<std::string>& found) const;

  Tree* tree_;
  int index_;
};

class Document {
 public:
  [[nodiscard]] static Document load(const std::string& path);
  [[nodiscard]] static Document parse(std::string_view text, const std::string& file_name);

  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();

  [[nodiscard]] ConfigNode root() const;

  // Puts a value at a dotted path ("optimizer.lr", "pipelines.0.micro_batches"), as the flag --PATH=VALUE does. A value
  // that begins with [, { or a quote is YAML, any other is one word. Maps on the way are made; nodes read before are void.
  void set(std::string_view path, std::string_view value);

  // YAML that reads back to the same document.
  [[nodiscard]] std::string to_yaml() const;

 private:
  explicit Document(std::unique_ptr<Tree> tree);

  std::unique_ptr<Tree> tree_;
};

// Throws unless the root is a map whose `format` is this.
void require_format(const ConfigNode& root, std::string_view format);

// The text as a scalar of a YAML or JSON document: bare where that is safe, else in double quotes.
[[nodiscard]] std::string quoted_if_needed(std::string_view text);

}  // namespace hspmd
