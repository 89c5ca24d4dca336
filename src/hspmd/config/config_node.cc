#include "hspmd/config/config_node.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

constexpr std::uintmax_t kMaxFileBytes = 64U << 20;
constexpr std::size_t kMaxNesting = 100;

std::string joined(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// yaml-cpp recurses: what nests too deeply is refused before it is parsed.
void check_nesting(const std::string& text, const std::string& name) {
  std::size_t depth = 0;
  std::size_t dashes = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    const bool dash = (c == '-' || c == '?' || c == ':') && i + 1 < text.size() && text[i + 1] == ' ';
    if (dash) ++dashes;
    if (c == '\n') dashes = 0;
    if (depth > kMaxNesting || dashes > kMaxNesting)
      invalid("{}: a file may nest at most {} levels", name, kMaxNesting);
  }
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::string ConfigNode::where() const {
  const int line = node_.IsDefined() ? node_.Mark().line : -1;
  const std::string place = line >= 0 ? fmt::format("{}:{}", file_, line + 1) : file_;
  return key_.empty() ? place : fmt::format("{}: {}", place, key_);
}

std::string ConfigNode::shown() const {
  constexpr std::size_t kShown = 120;
  std::string text;
  if (node_.IsScalar()) {
    text = fmt::format("\"{}\"", node_.Scalar());
  } else if (node_.IsMap()) {
    text = "a map";
  } else if (node_.IsSequence()) {
    text = fmt::format("a list of {}", node_.size());
  } else {
    text = "nothing";
  }
  return text.size() > kShown ? text.substr(0, kShown) + "...\"" : text;
}

void ConfigNode::fail(const std::string& must) const {
  invalid("{} must be {}. Received {}.", where(), must, shown());
}

std::optional<ConfigNode> ConfigNode::find(const std::string& key) const {
  if (!node_.IsMap()) fail("a map of keys");
  const YAML::Node child = node_[key];
  if (!child.IsDefined()) return std::nullopt;
  return ConfigNode(child, file_, key_.empty() ? key : key_ + "." + key);
}

ConfigNode ConfigNode::at(const std::string& key) const {
  auto child = find(key);
  if (!child) invalid("{}{}the key \"{}\" is required", where(), key_.empty() ? ": " : ": ", key);
  return *child;
}

std::vector<std::string> ConfigNode::keys() const {
  if (!node_.IsMap()) fail("a map of keys");
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) fail("a map whose keys are words");
    names.push_back(entry.first.Scalar());
    if (!seen.insert(names.back()).second) {
      invalid("{}:{}: the key \"{}\" stands twice", file_, entry.first.Mark().line + 1, names.back());
    }
  }
  return names;
}

void ConfigNode::expect_keys(const std::vector<std::string_view>& known) const {
  for (const std::string& key : keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const ConfigNode child = at(key);
    const auto near = nearest(key, known);
    const std::string hint = near ? fmt::format("the nearest known key is \"{}\". ", *near) : "";
    invalid("{} is not known; {}Known here: {}.", child.where(), hint, joined(known));
  }
}

std::vector<ConfigNode> ConfigNode::list() const {
  if (!node_.IsSequence()) fail("a list");
  std::vector<ConfigNode> items;
  for (std::size_t i = 0; i < node_.size(); ++i) items.emplace_back(node_[i], file_, fmt::format("{}[{}]", key_, i));
  return items;
}

std::string ConfigNode::text() const {
  if (!node_.IsScalar()) fail("a word");
  return node_.Scalar();
}

std::int64_t ConfigNode::integer(std::int64_t least, std::int64_t most) const {
  const auto must = [&] { return fmt::format("an integer from {} to {}", least, most); };
  if (!node_.IsScalar()) fail(must());
  const std::string& digits = node_.Scalar();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < least || value > most) fail(must());
  return value;
}

double ConfigNode::number(double least, double most) const {
  const auto must = [&] { return fmt::format("a number from {} to {}", number_text(least), number_text(most)); };
  if (!node_.IsScalar()) fail(must());
  const std::string& digits = node_.Scalar();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !(value >= least && value <= most)) fail(must());
  return value;
}

bool ConfigNode::boolean() const {
  if (node_.IsScalar() && node_.Scalar() == "true") return true;
  if (node_.IsScalar() && node_.Scalar() == "false") return false;
  fail("true or false");
}

std::string ConfigNode::choice(const std::vector<std::string_view>& allowed,
                               const std::vector<std::string_view>& later) const {
  const std::string must = "one of " + joined(allowed);
  if (!node_.IsScalar()) fail(must);
  const std::string& word = node_.Scalar();
  if (std::find(allowed.begin(), allowed.end(), word) != allowed.end()) return word;
  if (std::find(later.begin(), later.end(), word) != later.end())
    invalid("{}: \"{}\" is not built yet; it must be {}.", where(), word, must);
  const auto near = nearest(word, allowed);
  if (near) invalid("{} must be {}. Received \"{}\"; the nearest is \"{}\".", where(), must, word, *near);
  fail(must);
}

ConfigNode parse_config(const std::string& text, const std::string& name) {
  if (text.size() > kMaxFileBytes) invalid("{}: a file may have at most 64 MiB", name);
  check_nesting(text, name);
  try {
    return {YAML::Load(text), name, ""};
  } catch (const YAML::Exception& error) {
    invalid("{}:{}: this must be YAML or JSON: {}", name, error.mark.line + 1, error.msg);
  }
}

ConfigNode load_config(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) invalid("{}: must be a file, is a folder", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) invalid("{}: the file must exist and be readable", path);
  std::string text;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes) invalid("{}: a file may have at most 64 MiB", path);
  }
  return parse_config(text, path);
}

void expect_format(const ConfigNode& root, const std::string& format) {
  if (!root.is_map()) root.fail(fmt::format("a map that begins with `format: {}`", format));
  const auto found = root.find("format");
  if (!found) invalid("{}: the file must begin with `format: {}`", root.file(), format);
  if (found->text() != format) found->fail(fmt::format("`{}`", format));
}

void apply_override(ConfigNode& root, const std::string& dotted, const std::string& value) {
  YAML::Node node = root.yaml();
  std::stringstream words(dotted);
  std::string word;
  std::vector<std::string> path;
  while (std::getline(words, word, '.')) path.push_back(word);
  if (path.empty() || std::find(path.begin(), path.end(), "") != path.end())
    invalid("--{}: a key must read like optimizer.lr", dotted);
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    YAML::Node next = node[path[i]];
    if (next.IsDefined() && !next.IsMap()) next = node[path[i]] = YAML::Node(YAML::NodeType::Map);
    node.reset(next);
  }
  check_nesting(value, "--" + dotted);
  try {
    node[path.back()] = YAML::Load(value);
  } catch (const YAML::Exception& error) {
    invalid("--{}: the value must be YAML: {}. Received \"{}\".", dotted, error.msg, value);
  }
}

std::optional<std::string_view> nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::optional<std::string_view> best;
  std::size_t fewest = word.size() / 2 + 2;
  if (word.size() > 100) return best;
  for (const std::string_view candidate : candidates) {
    const std::size_t n = edits(word, candidate);
    if (n >= fewest) continue;
    fewest = n;
    best = candidate;
  }
  return best;
}

std::string number_text(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

std::string resolve_path(const std::string& path, const std::string& beside_file) {
  namespace fs = std::filesystem;
  const fs::path given(path);
  if (given.is_absolute()) return path;
  const fs::path beside = fs::path(beside_file).parent_path() / given;
  std::error_code error;
  if (!fs::exists(beside, error) && fs::exists(given, error)) return path;
  return beside.string();
}

}  // namespace hspmd
