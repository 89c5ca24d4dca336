#include "hspmd/config/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace hspmd {
namespace {

constexpr int kMaxShift = 400;  // beyond any exponent of a double

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.starts_with("+") && !text.starts_with("+-")) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Decimal digits d1 d2 ... that mean d1.d2... x 10^exponent.
std::string place_point(std::string digits, int exponent) {
  constexpr int kLeastFixed = -5;
  constexpr int kMostFixed = 15;
  if (exponent < kLeastFixed || exponent > kMostFixed) {
    if (digits.size() > 1) digits.insert(1, ".");
    return digits + "e" + std::to_string(exponent);
  }
  if (exponent < 0) return "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return digits + std::string(whole - digits.size(), '0');
  return digits.insert(whole, ".");
}

}  // namespace

std::string shortest(double value, int shift) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value), std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const int exponent = value == 0 ? 0 : static_cast<int>(*parse_whole<int>(text.substr(e + 1))) + shift;
  return (std::signbit(value) ? "-" : "") + place_point(digits, exponent);
}

std::optional<double> parse_double(std::string_view text, int shift) {
  std::optional<double> value;
  const std::size_t e = text.find_first_of("eE");
  if (shift == 0) {
    value = parse_whole<double>(text);
  } else if (e == std::string_view::npos) {
    value = parse_whole<double>(std::string(text) + "e" + std::to_string(shift));
  } else if (const auto exponent = parse_whole<int>(text.substr(e + 1)); exponent && std::abs(*exponent) <= kMaxShift) {
    value = parse_whole<double>(std::string(text.substr(0, e)) + "e" + std::to_string(*exponent + shift));
  }
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse_whole<std::int64_t>(text); }

std::optional<std::uint64_t> parse_unsigned(std::string_view text) { return parse_whole<std::uint64_t>(text); }

}  // namespace hspmd
