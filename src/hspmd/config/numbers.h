// Numbers as text, without loss: what is printed reads back to the same double.
//
//   shortest(0.1) = "0.1"      parse_double("0.1") = 0.1
//
// A unit that is a power of ten moves the decimal point of the text, so that no digit is lost to a multiplication:
//   shortest(2e-6, 6) = "2"    parse_double("2", -6) = 2e-6           seconds as microseconds
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hspmd {

// The shortest text that reads back as `value` x 10^shift; "inf", "-inf" and "nan" where it is no number.
[[nodiscard]] std::string shortest(double value, int shift = 0);

// The number `text` x 10^shift. nullopt unless the whole text is a decimal number that a double can hold.
[[nodiscard]] std::optional<double> parse_double(std::string_view text, int shift = 0);

// nullopt unless the whole text is a decimal integer that the type can hold.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_unsigned(std::string_view text);

}  // namespace hspmd
