// The reader of the annotation text form; the grammar stands in annotation.h.
#include <algorithm>
#include <cctype>

#include "hspmd/annotation/annotation.h"

namespace hspmd {
namespace {

constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDevices = std::int64_t{1} << 20;  // of one text; a range must not fill the memory

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Annotation annotation() {
    std::optional<Top> top;
    if (accept("top")) top = Top{placement(), optional_weights()};
    std::vector<Subgroup> subgroups = group_list();
    blanks();
    if (at_ < text_.size()) fail("the end");
    return {std::move(subgroups), std::move(top)};
  }

 private:
  std::vector<Subgroup> group_list() {
    expect("{");
    std::vector<Subgroup> subgroups;
    do {
      subgroups.push_back(subgroup());
    } while (accept("|"));
    expect("}");
    return subgroups;
  }

  Subgroup subgroup() {
    std::vector<Device> devices;
    do {
      range(devices);
    } while (accept(","));
    expect(":");
    std::vector<Axis> axes;
    while (next_is_placement()) axes.push_back(axis());
    return {std::move(devices), std::move(axes)};
  }

  void range(std::vector<Device>& devices) {
    const std::int64_t first = number("a device");
    std::int64_t last = first;
    if (accept("-")) {
      last = number("the last device of a range");
      if (last <= first) fail("a range that ascends");
    }
    if (last > (std::int64_t{1} << 24) || static_cast<std::int64_t>(devices.size()) + last - first >= kMaxDevices) {
      fail("devices below 2^24, at most 2^20 of them");
    }
    for (std::int64_t d = first; d <= last; ++d) devices.push_back(static_cast<Device>(d));
  }

  Axis axis() {
    Axis axis{placement()};
    expect("x");
    const std::int64_t degree = number("a degree");
    if (degree < 1 || degree > kMaxDevices) fail("a degree from 1 to 2^20");
    axis.degree = static_cast<int>(degree);
    axis.weights = optional_weights();
    return axis;
  }

  Placement placement() {
    if (accept("Pmax")) return Partial{Reduction::kMax};
    if (accept("P")) return Partial{Reduction::kSum};
    if (accept("D")) return Duplicate{};
    if (!accept("S")) fail("a placement (S0, S1, ..., D, P or Pmax)");
    const std::int64_t dim = number("a dim");
    if (dim >= static_cast<std::int64_t>(kMaxRank)) fail(fmt::format("a dim below {}", kMaxRank));
    return Split{static_cast<int>(dim)};
  }

  Weights optional_weights() {
    Weights weights;
    if (!accept("w")) return weights;
    do {
      weights.push_back(number("a weight"));
      if (static_cast<std::int64_t>(weights.size()) > kMaxDevices) fail("at most 2^20 weights");
    } while (accept(":"));
    return weights;
  }

  std::int64_t number(const char* what) {
    blanks();
    std::int64_t value = 0;
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      value = value * 10 + (text_[at_] - '0');
      if (value > kMaxNumber) fail(fmt::format("{} of at most 2^40", what));
      ++at_;
    }
    if (at_ == begin) fail(what);
    return value;
  }

  bool next_is_placement() {
    blanks();
    return at_ < text_.size() && (text_[at_] == 'S' || text_[at_] == 'D' || text_[at_] == 'P');
  }

  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  bool accept(std::string_view token) {
    blanks();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("\"{}\"", token));
  }

  [[noreturn]] void fail(std::string_view expected) {
    constexpr std::size_t kShown = 200;
    std::string shown(text_.substr(0, kShown));
    std::replace_if(
        shown.begin(), shown.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
    invalid("[annotation] column {} must be {}. Received \"{}{}\".", at_ + 1, expected, shown,
            text_.size() > kShown ? "..." : "");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Annotation parse_annotation(std::string_view text) {
  return Reader(text).annotation();
}

}  // namespace hspmd
