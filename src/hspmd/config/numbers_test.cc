#include "hspmd/config/numbers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace hspmd {
namespace {

TEST(Numbers, EveryDoubleReadsBackUnderEveryShift) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;

    EXPECT_EQ(read_number(number_text(value)), value) << number_text(value);

    for (const int shift : {-12, -9, 6, 9}) {
      const std::string text = number_text(value, shift);
      EXPECT_EQ(read_number(text, -shift), value) << text;
    }
  }
}

TEST(Numbers, AreShort) {
  struct Row {
    double value;
    int shift;
    const char* text;
  };
  const Row rows[] = {
      {0.1, 0, "0.1"},
      {-0.0, 0, "-0"},
      {3e-4, 0, "0.0003"},
      {1e300, 0, "1e300"},
      {5e-324, 0, "5e-324"},
      {123456.5, 0, "123456.5"},
      {2e-6, 6, "2"},
      {990e12, -12, "990"},
      {400e9, -9, "400"},
      {1.5e-9, 6, "0.0015"},
      {1e15, 0, "1000000000000000"},
      {1.25e20, 0, "1.25e20"},
  };
  for (const Row& row : rows) EXPECT_EQ(number_text(row.value, row.shift), row.text);
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Numbers, ReadOnlyWholeDecimalNumbers) {
  for (const char* text : {"", "+", "-", ".", "e5", "1e", "1e+", "0x10", "1 ", " 1", "1_000", "nan", "inf", "1e999",
                           "1e99999999999", "+-1", "--1"}) {
    EXPECT_EQ(read_number(text), std::nullopt) << text;
    EXPECT_EQ(read_number(text, 9), std::nullopt) << text;
  }
  EXPECT_EQ(read_number("+1.5"), 1.5);
  EXPECT_EQ(read_number("1E+3"), 1000.0);
  EXPECT_EQ(read_number("-2e-3", 3), -2.0);
}

}  // namespace
}  // namespace hspmd
