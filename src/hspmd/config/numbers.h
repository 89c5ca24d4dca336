// Numbers as text, without loss: what is printed reads back to the same double.
//
//   number_text(0.1) = "0.1"        read_number("0.1") = 0.1
//
// A unit that is a power of ten moves the decimal point of the text, so that no digit is lost to a multiplication:
//   number_text(2e-6, 6) = "2"      read_number("2", -6) = 2e-6       seconds as microseconds
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hspmd {

// The shortest text that reads back as `value` x 10^shift; "inf", "-inf" and "nan" where it is no number.
[[nodiscard]] std::string number_text(double value, int shift = 0);

// The number `text` x 10^shift. nullopt unless the whole text is a decimal number that a double can hold.
[[nodiscard]] std::optional<double> read_number(std::string_view text, int shift = 0);

}  // namespace hspmd
