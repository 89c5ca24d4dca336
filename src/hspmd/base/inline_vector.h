// InlineVector<T, N>: a vector of at most N trivially copyable elements, stored in place.
//
// Shapes and boxes are made by the million while layouts are resolved; none of them touches the heap.
// Pushing beyond N throws InvalidArgument: N is the greatest tensor rank that HSPMD knows.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include "hspmd/base/errors.h"

namespace hspmd {

template <typename T, std::size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) : InlineVector(values.begin(), values.end()) {}
  InlineVector(std::size_t count, const T& value) {
    for (std::size_t i = 0; i < count; ++i) push_back(value);
  }
  template <typename Iterator>
  requires(!std::is_integral_v<Iterator>) InlineVector(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }

  void push_back(const T& value) {
    if (size_ == N) invalid("[shape] a tensor may have at most {} dims", N);
    data_[size_++] = value;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_.data(); }
  T* end() { return data_.data() + size_; }
  [[nodiscard]] const T* begin() const { return data_.data(); }
  [[nodiscard]] const T* end() const { return data_.data() + size_; }
  T& back() { return data_[size_ - 1]; }
  [[nodiscard]] const T& back() const { return data_[size_ - 1]; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const InlineVector& a, const InlineVector& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<T, N> data_{};
  std::size_t size_ = 0;
};

}  // namespace hspmd
