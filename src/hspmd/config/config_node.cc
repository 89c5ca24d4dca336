#include "hspmd/config/config_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>

#include "hspmd/base/errors.h"
#include "hspmd/config/file_text.h"

namespace hspmd {
namespace {

constexpr std::size_t kMaxNesting = 100;
constexpr std::size_t kMaxValues = 1U << 20;

std::string joined(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

std::string escaped(char c) {
  return c == '\n' ? "\\n" : c == '\t' ? "\\t" : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
}

[[noreturn]] void refuse_nesting(const std::string& name, int line) {
  invalid("{}:{}: a file may nest at most {} levels", name, line, kMaxNesting);
}

// YAML's parser shares what an alias names, even with a list that holds itself: walking it shows what it expands to.
void check_values(const YAML::Node& node, const std::string& name, std::size_t depth, std::size_t& values) {
  const int line = node.Mark().line + 1;
  if (depth > kMaxNesting) refuse_nesting(name, line);
  if (++values > kMaxValues) invalid("{}:{}: a file may hold at most {} values", name, line, kMaxValues);
  if (node.IsSequence()) {
    for (const auto& item : node) check_values(item, name, depth + 1, values);
  }
  if (!node.IsMap()) return;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const int at = entry.first.Mark().line + 1;
    if (!entry.first.IsScalar()) invalid("{}:{}: a key must be a word", name, at);
    const std::string& key = entry.first.Scalar();
    if (!seen.insert(key).second) invalid("{}:{}: the key \"{}\" stands twice", name, at, one_line(key));
    check_values(entry.second, name, depth + 1, values);
  }
}

// JSON writes a character beyond 16 bits as two escapes; YAML as one of eight digits.
std::string join_surrogates(const std::string& text) {
  const auto unit = [&](std::size_t i) {  // of \uXXXX, which ends within the text
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + i + 2, text.data() + i + 6, value, 16);
    const bool whole = error == std::errc{} && end == text.data() + i + 6;
    return whole && text.compare(i, 2, "\\u") == 0 ? value : 0;
  };
  std::string joined_text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t high = text[i] == '\\' && i + 12 <= text.size() ? unit(i) : 0;
    const std::uint32_t low = high >> 10 == 0x36 ? unit(i + 6) : 0;
    if (low >> 10 == 0x37) {
      joined_text += fmt::format("\\U{:08x}", 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff));
      i += 11;
      continue;
    }
    joined_text += text[i];
    if (text[i] == '\\' && i + 1 < text.size()) joined_text += text[++i];  // what it escapes is no escape
  }
  return joined_text;
}

// Listens to a parser without keeping what it says. yaml-cpp recurses: what nests too deeply is refused as it is met.
class Listener : public YAML::EventHandler {
 public:
  explicit Listener(const std::string& name) : name_(name) {}

 private:
  using Mark = YAML::Mark;
  using Style = YAML::EmitterStyle::value;
  void OnDocumentStart(const Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, YAML::anchor_t) override {}
  void OnAlias(const Mark&, YAML::anchor_t) override {}
  void OnScalar(const Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const Mark& at, const std::string&, YAML::anchor_t, Style) override { enter(at); }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const Mark& at, const std::string&, YAML::anchor_t, Style) override { enter(at); }
  void OnMapEnd() override { --depth_; }
  void enter(const Mark& at) {
    if (++depth_ > kMaxNesting) refuse_nesting(name_, at.line + 1);
  }

  const std::string& name_;
  std::size_t depth_ = 0;
};

// YAML::Load stops after the first document, and YAML::LoadAll never does where a stray comma follows.
void check_single(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Listener listener(name);
  if (parser.HandleNextDocument(listener) && parser.HandleNextDocument(listener)) {
    invalid("{}: a file must hold one document; more follows its end", name);
  }
}

YAML::Node read_document(const std::string& text, const std::string& name) {
  try {
    const std::string yaml = join_surrogates(text);
    check_single(yaml, name);
    const YAML::Node root = YAML::Load(yaml);
    std::size_t values = 0;
    check_values(root, name, 0, values);
    return root;
  } catch (const YAML::Exception& error) {
    invalid("{}:{}: this must be YAML or JSON: {}", name, std::max(error.mark.line, 0) + 1, error.msg);
  }
}

// The place for a flag's value below a map, or at an index of a list.
YAML::Node child_of(YAML::Node& node, const std::string& key, const std::string& flag) {
  if (node.IsMap()) return node[key];
  if (!node.IsSequence())
    invalid("{}: what holds {} must be a map or a list; the file has another value there", flag, one_line(key));
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  const bool whole = error == std::errc{} && end == key.data() + key.size();
  if (!whole || index >= node.size()) invalid("{}: {} must be an index below {}", flag, one_line(key), node.size());
  return node[index];
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

const Origin* ConfigNode::origin() const {
  std::string dotted;  // pipelines[0].stages as pipelines.0.stages
  for (const char c : key_) {
    if (c != ']') dotted += c == '[' ? '.' : c;
  }
  const Origin* nearest_above = nullptr;
  for (const Origin& origin : *origins_) {
    const bool above = dotted == origin.key || dotted.starts_with(origin.key + ".");
    if (above && (nearest_above == nullptr || origin.key.size() > nearest_above->key.size())) nearest_above = &origin;
  }
  return nearest_above;
}

std::string ConfigNode::where() const {
  const Origin* other = origin();
  if (other != nullptr && other->file.empty()) return "--" + one_line(key_);
  const int line = node_.IsDefined() ? node_.Mark().line : -1;
  const std::string place = line >= 0 ? fmt::format("{}:{}", file(), line + 1) : file();
  const std::string key = other == nullptr ? key_ : key_.substr(std::min(key_.size(), other->key.size() + 1));
  return key.empty() ? place : fmt::format("{}: {}", place, one_line(key));
}

const std::string& ConfigNode::file() const {
  const Origin* other = origin();
  return other == nullptr || other->file.empty() ? file_ : other->file;
}

std::string ConfigNode::path() const {
  const Origin* other = origin();
  const bool flag = other != nullptr && other->file.empty();
  const std::filesystem::path given(text());
  const std::filesystem::path folder = std::filesystem::path(file()).parent_path();
  const bool no_folder = flag || folder == "/dev" || folder == "/dev/fd";
  return no_folder || given.is_absolute() ? text() : (folder / given).string();
}

void ConfigNode::say_origin(Origin origin) {
  std::erase_if(*origins_, [&](const Origin& o) { return o.key == origin.key || o.key.starts_with(origin.key + "."); });
  origins_->push_back(std::move(origin));
}

std::string ConfigNode::shown() const {
  if (node_.IsScalar()) return fmt::format("\"{}\"", one_line(node_.Scalar()));
  if (node_.IsMap()) return "a map";
  if (node_.IsSequence()) return fmt::format("a list of {}", node_.size());
  return "nothing";
}

void ConfigNode::fail(const std::string& must) const {
  invalid("{} must be {}. Received {}.", where(), must, shown());
}

std::optional<ConfigNode> ConfigNode::find(const std::string& key) const {
  if (!node_.IsMap()) fail("a map of keys");
  const YAML::Node child = node_[key];
  if (!child.IsDefined()) return std::nullopt;
  const std::string word = key.empty() ? "\"\"" : key;
  return ConfigNode(child, file_, key_.empty() ? word : key_ + "." + word, origins_);
}

ConfigNode ConfigNode::at(const std::string& key) const {
  auto child = find(key);
  if (!child) invalid("{}: the key \"{}\" is required", where(), key);
  return *child;
}

std::vector<std::string> ConfigNode::keys() const {
  if (!node_.IsMap()) fail("a map of keys");
  std::vector<std::string> names;
  for (const auto& entry : node_) names.push_back(entry.first.Scalar());
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
  for (std::size_t i = 0; i < node_.size(); ++i)
    items.push_back({node_[i], file_, fmt::format("{}[{}]", key_, i), origins_});
  return items;
}

std::string ConfigNode::text() const {
  if (!node_.IsScalar()) fail("a word");
  return node_.Scalar();
}

std::optional<std::string> ConfigNode::bare() const {
  if (!node_.IsScalar() || node_.Tag() == "!") return std::nullopt;
  return node_.Scalar();
}

std::int64_t ConfigNode::integer(std::int64_t least, std::int64_t most) const {
  const std::string digits = bare().value_or("");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  if (!whole || value < least || value > most) fail(fmt::format("an integer from {} to {}", least, most));
  return value;
}

double ConfigNode::number(double least, double most) const {
  return scaled(least, most, 0);
}

double ConfigNode::scaled(double least, double most, int shift) const {
  const std::string digits = bare().value_or("");
  const auto value = read_number(digits);
  const bool inside = value && *value >= least && *value <= most;
  const auto in_unit = inside ? read_number(digits, shift) : std::nullopt;
  if (!in_unit) fail(fmt::format("a number from {} to {}", number_text(least), number_text(most)));
  return *in_unit;
}

bool ConfigNode::boolean() const {
  const std::string word = bare().value_or("");
  if (word != "true" && word != "false") fail("true or false");
  return word == "true";
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
  if (near) invalid("{} must be {}. Received \"{}\"; the nearest is \"{}\".", where(), must, one_line(word), *near);
  fail(must);
}

ConfigNode parse_config(const std::string& text, const std::string& name) {
  if (text.size() > kMaxFileBytes) invalid("{}: a file may have at most 64 MiB", name);
  return {read_document(text, name), name};
}

ConfigNode load_config(const std::string& path) {
  return parse_config(read_file_text(path), path);
}

void expect_format(const ConfigNode& root, const std::string& format) {
  if (!root.is_map()) root.fail(fmt::format("a map that begins with `format: {}`", format));
  const auto found = root.find("format");
  if (!found) invalid("{}: the file must begin with `format: {}`", root.file(), format);
  if (!found->yaml().IsScalar() || found->text() != format) found->fail(fmt::format("`{}`", format));
}

void apply_override(ConfigNode& root, const std::string& dotted, const std::string& value) {
  std::vector<std::string> path(1);
  for (const char c : dotted) {
    if (c == '.') {
      path.emplace_back();
    } else {
      path.back() += c;
    }
  }
  const std::string flag = "--" + one_line(dotted);
  if (std::find(path.begin(), path.end(), "") != path.end()) invalid("{}: a key must read like optimizer.lr", flag);
  YAML::Node node = root.yaml();
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    YAML::Node next = child_of(node, path[i], flag);
    if (!next.IsDefined() || next.IsNull()) next = YAML::Node(YAML::NodeType::Map);
    node.reset(next);
  }
  child_of(node, path.back(), flag) = parse_config(value, flag).yaml();
  root.say_origin({dotted, ""});
}

void graft(ConfigNode& root, const std::string& key, const ConfigNode& file) {
  YAML::Node node = root.yaml();
  node[key] = file.yaml();
  root.say_origin({key, file.file()});
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

std::string one_line(std::string_view text) {
  constexpr std::size_t kShown = 120;
  std::string result;
  for (const char c : text.substr(0, kShown)) result += is_control(c) ? escaped(c) : std::string(1, c);
  return text.size() > kShown ? result + "..." : result;
}

std::string word_text(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/'; };
  const auto safe = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ' '; };
  const bool plain =
      !text.empty() && letter(text.front()) && text.back() != ' ' && std::all_of(text.begin(), text.end(), safe);
  const bool other = text == "true" || text == "false" || text == "null" || text == "Null" || text == "NULL";
  if (plain && !other) return std::string(text);
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (is_control(c)) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace hspmd
