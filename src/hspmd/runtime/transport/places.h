// A value for each place of a team, without an allocation.
#pragma once

#include <array>
#include <span>

#include "hspmd/base/errors.h"

namespace hspmd {

inline constexpr int kMaxTeam = 256;  // ranks of one host

template <typename T>
class PerPlace {
 public:
  explicit PerPlace(int size) : size_(static_cast<std::size_t>(size)) {
    check_internal(size <= kMaxTeam, "a host has at most 256 ranks");
  }
  T& operator[](int place) { return values_[static_cast<std::size_t>(place)]; }
  [[nodiscard]] std::span<const T> span() const { return {values_.data(), size_}; }

 private:
  std::size_t size_;
  std::array<T, kMaxTeam> values_;
};

}  // namespace hspmd
