#include "hspmd/cluster/cluster.h"

#include <algorithm>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

constexpr int kMaxDevices = 1 << 20;

}  // namespace

Cluster::Cluster(std::vector<DeviceType> types, std::vector<ClusterNode> nodes)
    : types_(std::move(types)), nodes_(std::move(nodes)) {
  if (nodes_.empty()) invalid("[cluster] a cluster must have a node");
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const ClusterNode& node = nodes_[n];
    if (node.type < 0 || node.type >= static_cast<int>(types_.size()))
      invalid("[cluster] the node {} must have a known device type", node.name);
    if (node.devices < 1 || device_count() + node.devices > kMaxDevices) {
      invalid("[cluster] the node {} must have at least one device, the cluster at most 2^20. Received {}.", node.name,
              node.devices);
    }
    for (const Link& link : {node.link, node.nic}) {
      if (link.bytes_per_s > 0 && link.latency_s >= 0) continue;
      invalid(
          "[cluster] the links of the node {} must have a bandwidth above 0 and a latency of at least 0. Received {} "
          "B/s, {} s.",
          node.name, link.bytes_per_s, link.latency_s);
    }
    node_of_device_.insert(node_of_device_.end(), static_cast<std::size_t>(node.devices), static_cast<int>(n));
  }
}

Cluster Cluster::uniform(int devices) {
  DeviceType type;
  type.name = "device";
  ClusterNode node;
  node.name = "node";
  node.devices = std::max(devices, 1);
  return {{type}, {node}};
}

int Cluster::node_of(int device) const {
  const auto last = node_of_device_.size() - 1;
  return node_of_device_[std::min(static_cast<std::size_t>(std::max(device, 0)), last)];
}

const DeviceType& Cluster::type_of(int device) const {
  return types_[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node_of(device))].type)];
}

Link Cluster::between(int a, int b) const {
  const ClusterNode& from = nodes_[static_cast<std::size_t>(node_of(a))];
  const ClusterNode& to = nodes_[static_cast<std::size_t>(node_of(b))];
  if (&from == &to) return from.link;
  return {std::min(from.nic.bytes_per_s, to.nic.bytes_per_s), std::max(from.nic.latency_s, to.nic.latency_s)};
}

}  // namespace hspmd
