// What moves cost: bytes over every link, and the predicted finish time.
//
// A transfer inside a node loads the sender's and the receiver's link; between nodes the sending node's NIC (out) and
// the receiving node's (in), which all devices of the node share. A stage finishes when its most loaded resource has,
// plus the latency of the longest chain of messages. Collectives are priced as rings over their participants.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "hspmd/comm/comm_plan.h"

namespace hspmd::comm {

// Loads of all resources in seconds; a resource is a device's link or a node's NIC, in one direction.
class Loads {
 public:
  explicit Loads(const Cluster& cluster) : cluster_(cluster) {}

  // The two resources that a transfer passes, and the seconds it takes on each.
  struct Path {
    int out = 0;
    int in = 0;
    double out_s_per_byte = 0;
    double in_s_per_byte = 0;
  };
  [[nodiscard]] Path path(Device from, Device to) const;

  void add(const Path& path, double bytes);
  [[nodiscard]] double at(int resource) const;
  [[nodiscard]] double greatest() const;
  [[nodiscard]] const std::unordered_map<int, double>& all() const { return seconds_; }

 private:
  const Cluster& cluster_;
  std::unordered_map<int, double> seconds_;
};

// Calls visit(from, to, bytes) for each transfer of a group, rings for collectives; returns the length of its chain.
int for_each_transfer(const CommGroup& group, int element_bytes, const std::function<void(Device, Device, double)>& visit);

// Fills bytes, send_bytes and finish_s of a plan from its stages.
void price(CommPlan& plan, const Cluster& cluster, int element_bytes);

}  // namespace hspmd::comm
