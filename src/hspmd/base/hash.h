// FNV-1a of bytes: alike in every build and on every machine. Source: Fowler, Noll, Vo.
#pragma once

#include <cstdint>
#include <string_view>

namespace hspmd {

inline constexpr std::uint64_t kFnv1aStart = 0xCBF29CE484222325U;

[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t start = kFnv1aStart) {
  std::uint64_t hash = start;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

}  // namespace hspmd
