#include "hspmd/control/limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace hspmd {
namespace {

bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:").find(c) != std::string_view::npos;
}

}  // namespace

std::optional<std::string> why_invalid_name(std::string_view name) {
  if (name.empty() || name.size() > kMostNameLength)
    return fmt::format("[control] a key must be 1 to {} characters long. Received {}.", kMostNameLength, name.size());
  if (!std::all_of(name.begin(), name.end(), in_name))
    return "[control] a key must hold letters, digits and _ - . / : only. Received something else.";
  return std::nullopt;
}

std::optional<std::string> why_invalid_value(std::string_view value) {
  if (value.size() <= kMostValueBytes) return std::nullopt;
  return fmt::format("[control] a value must have at most {} bytes. Received {}. Send large data over the transport.",
                     kMostValueBytes, value.size());
}

std::optional<std::string> why_invalid_token(std::string_view token) {
  constexpr std::size_t kMostToken = 256;
  const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; });
  if (!token.empty() && token.size() <= kMostToken && printable) return std::nullopt;
  return fmt::format(
      "[control] the token must be 1 to {} printable characters without blanks. Received {}. Set HSPMD_TOKEN to the "
      "job's token.",
      kMostToken,
      token.empty() ? "none"
      : printable   ? fmt::format("{} characters", token.size())
                    : "others");
}

bool same_token(std::string_view ours, std::string_view theirs) {
  std::size_t differs = ours.size() ^ theirs.size();
  for (std::size_t i = 0; i < theirs.size(); ++i)
    differs |= static_cast<unsigned char>(ours.empty() ? ~theirs[i] : ours[i % ours.size()] ^ theirs[i]);
  return differs == 0;
}

}  // namespace hspmd
