// The time an operator takes on a device: the longer of its arithmetic at peak and its bytes at memory bandwidth.
#pragma once

#include "hspmd/cluster/cluster.h"
#include "hspmd/graph/operator.h"

namespace hspmd {

// Seconds; 0 where the device type says nothing of its speed. `precision` is "fp32", "fp64" or "bf16".
[[nodiscard]] double roofline_seconds(const Cost& cost, const DeviceType& type, const std::string& precision);

}  // namespace hspmd
