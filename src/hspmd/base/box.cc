#include "hspmd/base/box.h"

#include <charconv>
#include <string_view>

namespace hspmd {
namespace {

constexpr std::int64_t kMaxVolume = std::int64_t{1} << 62;
constexpr std::int64_t kMaxDim = std::int64_t{1} << 40;

std::int64_t checked_product(std::int64_t total, std::int64_t factor) {
  if (factor != 0 && total > kMaxVolume / factor) invalid("[shape] a tensor may hold at most 2^62 elements");
  return total * factor;
}

}  // namespace

std::optional<Interval> intersect(Interval a, Interval b) {
  const Interval common{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  if (common.empty()) return std::nullopt;
  return common;
}

Box whole(const Shape& shape) {
  Box box;
  for (const std::int64_t size : shape) box.push_back({0, size});
  return box;
}

Shape extents(const Box& box) {
  Shape shape;
  for (const Interval& interval : box) shape.push_back(interval.size());
  return shape;
}

std::int64_t volume(const Box& box) {
  return volume(extents(box));
}

std::int64_t volume(const Shape& shape) {
  for (const std::int64_t size : shape) {
    if (size == 0) return 0;
  }
  std::int64_t total = 1;
  for (const std::int64_t size : shape) total = checked_product(total, size);
  return total;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  check_internal(a.size() == b.size(), "intersected boxes have one rank");
  Box common;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const auto part = intersect(a[d], b[d]);
    if (!part) return std::nullopt;
    common.push_back(*part);
  }
  return common;
}

bool contains(const Box& outer, const Box& inner) {
  check_internal(outer.size() == inner.size(), "compared boxes have one rank");
  for (std::size_t d = 0; d < outer.size(); ++d) {
    if (!outer[d].contains(inner[d])) return false;
  }
  return true;
}

std::int64_t global_index(const Box& box, std::int64_t i, const Shape& shape) {
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    index += (box[d].begin + i % box[d].size()) * stride;
    i /= box[d].size();
    stride *= shape[d];
  }
  return index;
}

std::string to_string(const Shape& shape) {
  if (shape.empty()) return "scalar";
  return fmt::format("{}", fmt::join(shape.begin(), shape.end(), "x"));
}

std::string to_string(const Box& box) {
  if (box.empty()) return "scalar";
  std::string text;
  for (const Interval& interval : box) {
    text += fmt::format("{}[{},{})", text.empty() ? "" : "x", interval.begin, interval.end);
  }
  return text;
}

Shape parse_shape(const std::string& text) {
  Shape shape;
  if (text == "scalar") return shape;
  std::string_view rest = text;
  while (true) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (error != std::errc{} || size < 0 || size > kMaxDim) {
      invalid("[shape] a shape must be dims joined by x, each from 0 to 2^40, such as 10x6. Received \"{}\".", text);
    }
    shape.push_back(size);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) return shape;
    if (rest.front() != 'x') {
      invalid("[shape] dims must be joined by x, such as 10x6. Received \"{}\".", text);
    }
    rest.remove_prefix(1);
  }
}

}  // namespace hspmd
