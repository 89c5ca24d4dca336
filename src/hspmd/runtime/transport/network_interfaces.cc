#include "hspmd/runtime/transport/network_interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <filesystem>
#include <set>

namespace hspmd {
namespace {

namespace fs = std::filesystem;

bool holds_any(std::string_view transports, std::initializer_list<std::string_view> wanted) {
  while (!transports.empty()) {
    const std::string_view one = transports.substr(0, transports.find(','));
    for (const std::string_view prefix : wanted) {
      if (one.starts_with(prefix)) return true;
    }
    transports.remove_prefix(one.size() == transports.size() ? one.size() : one.size() + 1);
  }
  return false;
}

// UCX looks in /sys, which may show another network namespace's.
void add_network_devices(std::set<std::string>& names) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return;
  for (const ifaddrs* it = first; it != nullptr; it = it->ifa_next) {
    const bool up = (it->ifa_flags & IFF_UP) != 0 && (it->ifa_flags & IFF_RUNNING) != 0;
    const bool has_address = it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET;
    if (up && has_address && fs::exists(fs::path("/sys/class/net") / it->ifa_name)) names.insert(it->ifa_name);
  }
  freeifaddrs(first);
}

void add_rdma_ports(std::set<std::string>& names) {
  std::error_code none;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", none))
      names.insert(device.path().filename().string() + ":" + port.path().filename().string());
  }
}

}  // namespace

std::vector<std::string> network_interfaces(std::string_view transports) {
  std::set<std::string> names;
  if (holds_any(transports, {"tcp", "all"})) add_network_devices(names);
  if (holds_any(transports, {"rc", "ud", "dc", "ib", "all"})) add_rdma_ports(names);
  return {names.begin(), names.end()};
}

}  // namespace hspmd
