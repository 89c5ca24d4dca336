#include "hspmd/comm/price.h"

#include <algorithm>

#include "hspmd/comm/transfers.h"

namespace hspmd::comm {

Links::Links(const DeviceIndex& devices, const Cluster& cluster) : devices_(devices), cluster_(cluster) {
  nodes_.reserve(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) nodes_.push_back(cluster.node_of(devices.device(i)));
}

Links::Path Links::path(Device from, Device to) const {
  const std::size_t f = devices_.at(from);
  const std::size_t t = devices_.at(to);
  const auto a = static_cast<std::size_t>(nodes_[f]);
  const auto b = static_cast<std::size_t>(nodes_[t]);
  const auto resource = [](std::size_t number, std::size_t direction) {
    return static_cast<std::uint32_t>(2 * number + direction);
  };
  if (a == b) {
    const Link& link = cluster_.nodes()[a].link;
    return {resource(f, 0), resource(t, 1), 1 / link.bytes_per_s, 1 / link.bytes_per_s, link.latency_s};
  }
  const Link& out = cluster_.nodes()[a].nic;
  const Link& in = cluster_.nodes()[b].nic;
  const std::size_t devices = devices_.size();
  return {resource(devices + a, 0), resource(devices + b, 1), 1 / out.bytes_per_s, 1 / in.bytes_per_s,
          std::max(out.latency_s, in.latency_s)};
}

double Loads::greatest() const {
  return seconds_.empty() ? 0 : *std::max_element(seconds_.begin(), seconds_.end());
}

void price(std::span<CommPlan> plans, std::span<const int> element_bytes, const Links& links) {
  double finish = 0;
  std::size_t stages = 0;
  for (CommPlan& plan : plans) {
    plan.bytes = 0;
    plan.send_bytes.clear();
    stages = std::max(stages, plan.stages.size());
  }
  for (std::size_t s = 0; s < stages; ++s) {
    Loads loads(links);
    double latency = 0;
    for (std::size_t p = 0; p < plans.size(); ++p) {
      CommPlan& plan = plans[p];
      if (s >= plan.stages.size()) continue;
      for (const CommGroup& group : plan.stages[s].groups) {
        double slowest = 0;
        const int chain = for_each_transfer(group, [&](Device from, Device to, std::int64_t elements) {
          const Links::Path path = links.path(from, to);
          const std::int64_t bytes = elements * element_bytes[p];
          loads.add(path, static_cast<double>(bytes));
          slowest = std::max(slowest, path.latency_s);
          plan.send_bytes[from] += bytes;
          plan.bytes += bytes;
        });
        latency = std::max(latency, chain * slowest);
      }
    }
    finish += loads.greatest() + latency;
  }
  for (CommPlan& plan : plans) plan.finish_s = finish;
}

}  // namespace hspmd::comm
