#include "hspmd/cost/roofline.h"

#include <algorithm>

namespace hspmd {

double roofline_seconds(const Cost& cost, const DeviceType& type, const std::string& precision) {
  const auto peak = type.peak_flops.find(precision);
  const double arithmetic = peak == type.peak_flops.end() ? 0 : cost.flops / peak->second;
  const double memory = type.memory_bytes_per_s > 0 ? cost.bytes / type.memory_bytes_per_s : 0;
  return std::max(arithmetic, memory);
}

}  // namespace hspmd
