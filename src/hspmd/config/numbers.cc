#include "hspmd/config/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

namespace hspmd {
namespace {

constexpr int kMostExponent = 1000;  // beyond that of any double

template <typename T>
std::optional<T> read_whole(std::string_view text) {
  if (text.starts_with('+') && text.substr(1, 1) != "-") text.remove_prefix(1);
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

std::string number_text(double value, int shift) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const int exponent = value == 0 ? 0 : read_whole<int>(text.substr(e + 1)).value() + shift;
  return (std::signbit(value) ? "-" : "") + place_point(std::move(digits), exponent);
}

std::optional<double> read_number(std::string_view text, int shift) {
  const std::size_t e = text.find_first_of("eE");
  std::string shifted(text);
  if (shift != 0) {
    const auto exponent = e == std::string_view::npos ? 0 : read_whole<int>(text.substr(e + 1));
    if (!exponent || std::abs(*exponent) > kMostExponent) return std::nullopt;
    shifted = std::string(text.substr(0, e)) + "e" + std::to_string(*exponent + shift);
  }
  const auto value = read_whole<double>(shifted);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

}  // namespace hspmd
