// What the control plane accepts. It is for strategies, addresses and small facts, not for tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hspmd {

inline constexpr std::size_t kMostValueBytes = std::size_t{16} << 20;  // of a value; of all values of one gather
inline constexpr std::size_t kMostKeys = 65536;
inline constexpr std::size_t kMostKeyBytes = std::size_t{256} << 20;  // keys and values together
inline constexpr std::size_t kMostNameLength = 200;
inline constexpr std::size_t kMostReasonBytes = 2000;  // the rest is cut off
inline constexpr std::size_t kMostWaits = 65536;       // calls that wait at one time
inline constexpr int kMostRanks = 65536;

// Keys and names of gathers hold letters, digits and _ - . / : and are 1 to 200 long.
[[nodiscard]] std::optional<std::string> why_invalid_name(std::string_view name);
[[nodiscard]] std::optional<std::string> why_invalid_value(std::string_view value);
// Tokens are printable ASCII without blanks, 1 to 256 long. The text never shows the token.
[[nodiscard]] std::optional<std::string> why_invalid_token(std::string_view token);

// Takes as long for any token of one length.
[[nodiscard]] bool same_token(std::string_view ours, std::string_view theirs);

}  // namespace hspmd
