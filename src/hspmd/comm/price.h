// What moves cost: bytes over every link, and the predicted finish time.
//
// A transfer inside a node loads the sender's and the receiver's link; between nodes the sending node's NIC (out) and
// the receiving node's (in), which all devices of the node share. A stage finishes when its most loaded resource has,
// plus the latency of the longest chain of messages. Collectives are priced as rings over their participants.
#pragma once

#include <span>
#include <vector>

#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/device_index.h"

namespace hspmd::comm {

// The resources of a plan's devices: each device's link and each node's NIC, in both directions, numbered 0..count-1.
class Links {
 public:
  Links(const DeviceIndex& devices, const Cluster& cluster);

  struct Path {
    std::uint32_t out = 0;  // the two resources that a transfer passes
    std::uint32_t in = 0;
    double out_s = 0;  // seconds that a byte takes on each
    double in_s = 0;
    double latency_s = 0;
  };
  [[nodiscard]] Path path(Device from, Device to) const;
  [[nodiscard]] int node(Device device) const { return nodes_[devices_.at(device)]; }
  [[nodiscard]] std::size_t count() const { return 2 * (devices_.size() + cluster_.nodes().size()); }

 private:
  const DeviceIndex& devices_;
  const Cluster& cluster_;
  std::vector<int> nodes_;  // by device
};

// Seconds that each resource is busy.
class Loads {
 public:
  explicit Loads(const Links& links) : seconds_(links.count(), 0) {}

  void add(const Links::Path& path, double bytes) {
    seconds_[path.out] += bytes * path.out_s;
    seconds_[path.in] += bytes * path.in_s;
  }
  double& operator[](std::uint32_t resource) { return seconds_[resource]; }
  double operator[](std::uint32_t resource) const { return seconds_[resource]; }
  [[nodiscard]] double greatest() const;
  [[nodiscard]] const std::vector<double>& all() const { return seconds_; }

 private:
  std::vector<double> seconds_;
};

// Fills bytes and send_bytes of each plan from its stages, and finish_s: the time of all of them together, stage by
// stage. `element_bytes` stands beside its plan.
void price(std::span<CommPlan> plans, std::span<const int> element_bytes, const Links& links);

}  // namespace hspmd::comm
