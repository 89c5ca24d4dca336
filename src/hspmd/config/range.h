// Range: the numbers that a key allows, and the words that say so.
//
//   at_least(1)          "at least 1"
//   between(0.0, 1.0)    "from 0 to 1"
//   positive()           "above 0"
#pragma once

#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "hspmd/config/numbers.h"

namespace hspmd {

template <typename T>
struct Range {
  T least = std::numeric_limits<T>::lowest();
  T most = std::numeric_limits<T>::max();
  std::string words = {};

  [[nodiscard]] bool contains(T value) const { return value >= least && value <= most; }
};

template <typename T>
[[nodiscard]] std::string number_text(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return shortest(value);
  } else {
    return std::to_string(value);
  }
}

template <typename T>
[[nodiscard]] Range<T> at_least(T least) {
  return {least, std::numeric_limits<T>::max(), "at least " + number_text(least)};
}
template <typename T>
[[nodiscard]] Range<T> between(T least, T most) {
  return {least, most, "from " + number_text(least) + " to " + number_text(most)};
}
[[nodiscard]] inline Range<double> positive() {
  return {std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max(), "above 0"};
}

// The range of a value of type T, or of each item of a vector.
template <typename T>
struct RangeOfType {
  using Type = Range<T>;
};
template <typename T>
struct RangeOfType<std::vector<T>> {
  using Type = Range<T>;
};
template <typename T>
using RangeOf = typename RangeOfType<T>::Type;

}  // namespace hspmd
