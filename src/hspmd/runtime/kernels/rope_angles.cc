#include "hspmd/runtime/kernels/rope_angles.h"

#include <cmath>
#include <numbers>

namespace hspmd::kernels {

std::vector<double> rope_frequencies(const Attributes& attributes, std::int64_t width) {
  const double theta = attributes.number("theta");
  const double factor = attributes.number("factor");
  const double low = attributes.number("low_freq_factor");
  const double high = attributes.number("high_freq_factor");
  const double original = attributes.number("original_max_position");
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < width / 2; ++i) {
    double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    if (factor != 1) {
      const double wavelength = 2 * std::numbers::pi / frequency;
      const double smooth = (original / wavelength - low) / (high - low);
      const double kept = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;  // 1: high frequencies stay
      frequency = (1 - kept) * frequency / factor + kept * frequency;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace hspmd::kernels
