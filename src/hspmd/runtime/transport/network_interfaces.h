// The interfaces of this host over which messages can travel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hspmd {

// Network devices that are up and have an address ("eth0", "lo") where the transports hold TCP, ports of RDMA devices
// ("mlx5_0:1") where they hold RDMA; sorted. `transports` is a list such as "tcp,self" or "rc,ud,self".
[[nodiscard]] std::vector<std::string> network_interfaces(std::string_view transports);

}  // namespace hspmd
