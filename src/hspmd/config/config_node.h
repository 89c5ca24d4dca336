// ConfigNode: one value of a YAML (or JSON) file, read with checks. Every complaint names file, line, key, value and
// what is allowed:
//
//   run.yaml:7: data.sequence_length must be an integer from 1 to 1048576. Received "abc".
//   run.yaml:9: data.shufle is not known; the nearest known key is "shuffle". Known here: path, tokenizer, ...
//
// A value that a flag gave is blamed on the flag:  --steps must be an integer from 0 to 1099511627776. Received "many".
// A complaint is one line: control characters are escaped, what is long is cut.
//
// Files are not trusted: at most 64 MiB (file_text.h says what may be read), 100 levels and 2^20 values (an alias
// counts as what it stands for); keys are words, once each; one document a file. A quoted number is a word.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hspmd/config/numbers.h"

namespace hspmd {

// Where a part of the tree comes from, if not from the file around it.
struct Origin {
  std::string key;   // "steps", "strategy.pipelines.0.micro_batches"
  std::string file;  // that stands in its place; empty: a flag gave the value
};

class ConfigNode {
 public:
  ConfigNode(const YAML::Node& root, std::string file)
      : ConfigNode(root, std::move(file), "", std::make_shared<std::vector<Origin>>()) {}

  // Of a map. `at` throws where the key is missing; `known` lists all keys that may stand here.
  [[nodiscard]] ConfigNode at(const std::string& key) const;
  [[nodiscard]] std::optional<ConfigNode> find(const std::string& key) const;
  void expect_keys(const std::vector<std::string_view>& known) const;
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] bool is_map() const { return node_.IsMap(); }
  [[nodiscard]] bool is_list() const { return node_.IsSequence(); }
  [[nodiscard]] bool is_null() const { return !node_.IsDefined() || node_.IsNull(); }

  [[nodiscard]] std::vector<ConfigNode> list() const;
  [[nodiscard]] std::string text() const;
  // A scalar as a path: relative ones in a file are relative to the file's folder; on a flag, in /dev/stdin and in a
  // shell's <(...) to the working folder.
  [[nodiscard]] std::string path() const;
  // The text of a scalar without quotes, which may be a number or a truth value; else nullopt.
  [[nodiscard]] std::optional<std::string> bare() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double number(double least, double most) const;
  // A number in a unit of 10^shift: `gb_per_s: 400` with the shift 9 is 4e11. The bounds are in the file's unit.
  [[nodiscard]] double scaled(double least, double most, int shift) const;
  [[nodiscard]] bool boolean() const;
  // One of the allowed words; a word of `later` is refused as not built yet.
  [[nodiscard]] std::string choice(const std::vector<std::string_view>& allowed,
                                   const std::vector<std::string_view>& later = {}) const;

  [[noreturn]] void fail(const std::string& must) const;
  [[nodiscard]] std::string where() const;  // "run.yaml:7: data.path", or "--data.path"
  [[nodiscard]] const std::string& file() const;
  [[nodiscard]] const YAML::Node& yaml() const { return node_; }

 private:
  friend void apply_override(ConfigNode& root, const std::string& dotted, const std::string& value);
  friend void graft(ConfigNode& root, const std::string& key, const ConfigNode& file);
  ConfigNode(const YAML::Node& node, std::string file, std::string key, std::shared_ptr<std::vector<Origin>> origins)
      : node_(node), file_(std::move(file)), key_(std::move(key)), origins_(std::move(origins)) {}

  [[nodiscard]] const Origin* origin() const;
  void say_origin(Origin origin);
  [[nodiscard]] std::string shown() const;

  YAML::Node node_;
  std::string file_;
  std::string key_;
  std::shared_ptr<std::vector<Origin>> origins_;  // one list for the whole tree
};

// Throws InvalidArgument when the file cannot be read or is no YAML.
[[nodiscard]] ConfigNode load_config(const std::string& path);
[[nodiscard]] ConfigNode parse_config(const std::string& text, const std::string& name);

// The file must begin with `format: <format>`.
void expect_format(const ConfigNode& root, const std::string& format);

// Sets a dotted key ("optimizer.lr", "pipelines.0.micro_batches") to a YAML value, making maps on the way.
void apply_override(ConfigNode& root, const std::string& dotted, const std::string& value);

// Puts another file's tree at a key of the root, so that flags can reach into it; complaints name that file.
void graft(ConfigNode& root, const std::string& key, const ConfigNode& file);

// The candidate with the fewest edits to the word; nullopt when all are far from it.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view word,
                                                      const std::vector<std::string_view>& candidates);

// The text in a complaint: control characters written as escapes, what is long cut short.
[[nodiscard]] std::string one_line(std::string_view text);

// The text as a value that reads back: bare where that is safe, else in double quotes.
[[nodiscard]] std::string word_text(std::string_view text);

}  // namespace hspmd
