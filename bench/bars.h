// What a bench ends with: one JSON line that names every bar it was asked to meet.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace hspmd::bench {

struct Bar {
  std::string name;
  double value = 0;
  double low = 0, high = 0;  // 95 % interval, or the extremes
  std::string must;          // "<= 1.05"
  bool met = false;
};

inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto i = static_cast<std::size_t>(at);
  const double next = i + 1 < values.size() ? values[i + 1] : values[i];
  return values[i] + (at - static_cast<double>(i)) * (next - values[i]);
}

inline void print_bars(const std::string& bench, const std::vector<Bar>& bars) {
  std::string text;
  for (const Bar& b : bars) {
    text +=
        fmt::format("{}{{\"name\":\"{}\",\"value\":{:.6g},\"interval\":[{:.6g},{:.6g}],\"must\":\"{}\",\"met\":{}}}",
                    text.empty() ? "" : ",", b.name, b.value, b.low, b.high, b.must, b.met);
  }
  std::puts(fmt::format("{{\"bench\":\"{}\",\"bars\":[{}]}}", bench, text).c_str());
}

}  // namespace hspmd::bench
