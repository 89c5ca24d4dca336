#include "hspmd/comm/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "hspmd/comm/balance.h"

namespace hspmd::comm {
namespace {

// Who holds and who requires a cell, as the bounds see it.
struct Census {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  std::vector<Device> holders;    // ascending; of the whole value, or of an addend where nobody has the whole
  std::vector<Device> requirers;  // of the whole value
};

Census census(const Overlay& overlay, const Cell& cell) {
  Census result;
  std::size_t merged = 0;
  for (const std::uint32_t p : overlay.sources(cell)) {
    const std::size_t addends = overlay.from.parts[p].addends.size();
    merged += addends;
    result.fewest = std::min(result.fewest, addends);
  }
  if (overlay.from.subgroups == Subgroups::kAddends) result.fewest = merged;
  for (const std::uint32_t p : overlay.sources(cell)) {
    const Part& part = overlay.from.parts[p];
    if (result.fewest == 1 && part.addends.size() > 1) continue;
    for (const Replicas& addend : part.addends)
      result.holders.insert(result.holders.end(), addend.begin(), addend.end());
  }
  const auto destinations = overlay.destinations(cell);
  const bool apart = overlay.to.subgroups == Subgroups::kAddends && destinations.size() > 1;
  for (const std::uint32_t p : destinations) {
    const Part& part = overlay.to.parts[p];
    if (apart || part.addends.size() > 1) continue;
    result.requirers.insert(result.requirers.end(), part.addends[0].begin(), part.addends[0].end());
  }
  std::sort(result.holders.begin(), result.holders.end());
  return result;
}

bool among(const std::vector<Device>& ascending, Device d) {
  return std::binary_search(ascending.begin(), ascending.end(), d);
}

std::int64_t least_copies(const Census& c) {
  if (c.requirers.empty()) return 0;
  const auto inside =
      std::count_if(c.requirers.begin(), c.requirers.end(), [&](Device d) { return among(c.holders, d); });
  const auto required = static_cast<std::int64_t>(c.requirers.size());
  if (c.fewest == 1) return required - inside;
  return static_cast<std::int64_t>(c.fewest) - 1 + required - (inside > 0 ? 1 : 0);
}

// The dual of the choice of senders. All requirers of a job on one node choose alike, but for their own link.
class Dual {
 public:
  Dual(const std::vector<Job>& jobs, const Links& links)
      : links_(links), loads_(links.count(), 0), weights_(links.count(), 0) {
    for (const Job& job : jobs) add(job);
  }

  // The bound that the weights give; `loads_` become the loads of the cheapest choices.
  double evaluate() {
    std::fill(loads_.begin(), loads_.end(), 0);
    double bound = 0;
    for (const Bundle& bundle : bundles_) {
      const Way* peer = cheapest(bundle.peers_first, bundle.peers_last);
      const Way* remote = cheapest(bundle.remote_first, bundle.remote_last);
      const double peer_price = peer == nullptr ? std::numeric_limits<double>::infinity() : price(*peer);
      const double remote_price = remote == nullptr ? std::numeric_limits<double>::infinity()
                                                    : price(*remote) + weights_[bundle.nic_in] * bundle.nic_in_s;
      for (std::size_t d = bundle.devices_first; d < bundle.devices_last; ++d) {
        const double here = peer_price + weights_[devices_[d]] * bundle.link_s;
        if (here <= remote_price) {
          take(*peer, bundle.bytes);
          loads_[devices_[d]] += bundle.bytes * bundle.link_s;
          bound += bundle.bytes * here;
        } else {
          take(*remote, bundle.bytes);
          loads_[bundle.nic_in] += bundle.bytes * bundle.nic_in_s;
          bound += bundle.bytes * remote_price;
        }
      }
    }
    return bound;
  }

  // The best of weights that follow the given loads, from slightly to steeply, and of steps from there.
  double best(const std::vector<double>& primal) {
    constexpr int kSteps = 120;
    const double greatest = *std::max_element(primal.begin(), primal.end());
    double best = 0;
    std::vector<double> logs(primal.size(), 0), start;
    for (const double steepness : {10.0, 30.0, 100.0, 300.0, 1000.0, 10000.0}) {
      for (std::size_t r = 0; r < logs.size(); ++r) logs[r] = steepness * (primal[r] / greatest - 1);
      const double bound = bound_of(logs);
      if (bound <= best) continue;
      best = bound;
      start = logs;
    }
    logs = start;
    for (int step = 0; step < kSteps && best < greatest * (1 - 1e-6); ++step) {
      best = std::max(best, bound_of(logs));
      const double rate = 4.0 / (1 + 0.1 * step) / std::max(greatest, *std::max_element(loads_.begin(), loads_.end()));
      for (std::size_t r = 0; r < logs.size(); ++r) logs[r] += rate * (loads_[r] - greatest);
    }
    return best;
  }

 private:
  struct Way {  // out of a holder's link, or of a node's NIC
    std::uint32_t out = 0;
    double out_s = 0;
  };
  struct Bundle {  // requirers of one job on one node
    double bytes = 0;
    std::size_t peers_first = 0, peers_last = 0;    // ways inside the node
    std::size_t remote_first = 0, remote_last = 0;  // ways from other nodes
    std::uint32_t nic_in = 0;
    double nic_in_s = 0;
    double link_s = 0;
    std::size_t devices_first = 0, devices_last = 0;  // links in
  };

  void add(const Job& job) {
    std::map<int, std::vector<Device>> holders, requirers;
    for (const Device d : job.holders) holders[links_.node(d)].push_back(d);
    for (const Device d : job.requirers) requirers[links_.node(d)].push_back(d);
    for (const auto& [node, there] : requirers) {
      Bundle bundle;
      bundle.bytes = static_cast<double>(job.bytes);
      bundle.peers_first = ways_.size();
      const auto peers = holders.find(node);
      if (peers != holders.end()) {
        for (const Device h : peers->second) {
          const Links::Path path = links_.path(h, there.front());
          ways_.push_back({path.out, path.out_s});
        }
      }
      bundle.peers_last = ways_.size();
      bundle.remote_first = ways_.size();
      for (const auto& [other, theirs] : holders) {
        if (other == node) continue;
        const Links::Path path = links_.path(theirs.front(), there.front());
        ways_.push_back({path.out, path.out_s});
        bundle.nic_in = path.in;
        bundle.nic_in_s = path.in_s;
      }
      bundle.remote_last = ways_.size();
      bundle.devices_first = devices_.size();
      for (const Device d : there) {
        // The link in, as a peer would use it: the device's own, whoever sends.
        const Links::Path path = links_.path(d, d);
        devices_.push_back(path.in);
        bundle.link_s = path.in_s;
      }
      bundle.devices_last = devices_.size();
      bundles_.push_back(bundle);
    }
  }

  [[nodiscard]] double price(const Way& way) const { return weights_[way.out] * way.out_s; }

  [[nodiscard]] const Way* cheapest(std::size_t first, std::size_t last) const {
    const Way* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t w = first; w < last; ++w) {
      const double p = price(ways_[w]);
      if (p >= least) continue;
      least = p;
      best = &ways_[w];
    }
    return best;
  }

  void take(const Way& way, double bytes) { loads_[way.out] += bytes * way.out_s; }

  double bound_of(const std::vector<double>& logs) {
    const double top = *std::max_element(logs.begin(), logs.end());
    double sum = 0;
    for (std::size_t r = 0; r < logs.size(); ++r) sum += weights_[r] = std::exp(logs[r] - top);
    return evaluate() / sum;
  }

  const Links& links_;
  std::vector<Way> ways_;
  std::vector<std::uint32_t> devices_;
  std::vector<Bundle> bundles_;
  std::vector<double> loads_;
  std::vector<double> weights_;
};

}  // namespace

std::int64_t least_bytes(const Overlay& overlay, int element_bytes) {
  std::int64_t bytes = 0;
  for (const Cell& cell : overlay.cells)
    bytes += least_copies(census(overlay, cell)) * volume(cell.box) * element_bytes;
  return bytes;
}

double least_direct(const std::vector<Job>& jobs, const Links& links) {
  double latency = -1;
  for (const Job& job : jobs) {
    for (const Device d : job.requirers) {
      double least = std::numeric_limits<double>::infinity();
      for (const Device h : job.holders) least = std::min(least, links.path(h, d).latency_s);
      latency = std::max(latency, least);
    }
  }
  if (latency < 0) return 0;
  return Dual(jobs, links).best(balanced(jobs, links).loads.all()) + latency;
}

double least_any(const Overlay& overlay, int element_bytes, const DeviceIndex& devices, const Cluster& cluster) {
  const auto& nodes = cluster.nodes();
  std::vector<int> members(nodes.size(), 0);
  for (std::size_t i = 0; i < devices.size(); ++i)
    ++members[static_cast<std::size_t>(cluster.node_of(devices.device(i)))];
  const bool crosses = std::count_if(members.begin(), members.end(), [](int n) { return n > 0; }) > 1;
  const auto nic = [&](std::size_t node) { return crosses ? nodes[node].nic.bytes_per_s : 0; };
  const auto link = [&](std::size_t node) { return members[node] > 1 ? nodes[node].link.bytes_per_s : 0; };
  double capacity = 0;
  double latency = std::numeric_limits<double>::infinity();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (members[n] == 0) continue;
    capacity += nic(n) + members[n] * link(n);
    if (crosses) latency = std::min(latency, nodes[n].nic.latency_s);
    if (members[n] > 1) latency = std::min(latency, nodes[n].link.latency_s);
  }
  std::vector<double> into(devices.size(), 0);
  double all = 0;
  for (const Cell& cell : overlay.cells) {
    const Census c = census(overlay, cell);
    const double bytes = static_cast<double>(volume(cell.box)) * element_bytes;
    all += static_cast<double>(least_copies(c)) * bytes;
    for (const Device d : c.requirers) {
      if (c.fewest > 1 || !among(c.holders, d)) into[devices.at(d)] += bytes;
    }
  }
  if (all <= 0) return 0;
  double bound = all / capacity;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const auto node = static_cast<std::size_t>(cluster.node_of(devices.device(i)));
    if (into[i] > 0) bound = std::max(bound, into[i] / (nic(node) + link(node)));
  }
  return bound + latency;
}

}  // namespace hspmd::comm
