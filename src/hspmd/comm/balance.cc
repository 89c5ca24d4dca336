#include "hspmd/comm/balance.h"

#include <algorithm>
#include <numeric>

namespace hspmd::comm {
namespace {

constexpr std::int64_t kUnitBytes = 64 << 10;  // a share of a job is a number of units, none smaller
constexpr std::int64_t kMostUnits = 64;
constexpr std::size_t kMostPeers = 16;  // holders of the requirer's own node that are considered; the rest are alike
constexpr std::size_t kMostNodes = 64;  // other nodes that are considered
constexpr int kMostRounds = 60;
constexpr double kWorthwhile = 1e-3;  // eight rounds that gain less, relatively, are the last
constexpr double kHot = 0.7;          // of the greatest load: resources below need no relief yet

// One way to serve a demand.
struct Option {
  Device holder = 0;
  Links::Path path;
  std::int64_t units = 0;  // of the demand that go this way
};

// One requirer of one job: `units` to be shared out over options[first, last).
struct Demand {
  std::size_t job = 0;
  Device requirer = 0;
  std::int64_t units = 1;
  double unit_bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

// The holders of a job by node; all holders of another node are alike, as they share its NIC.
class HoldersByNode {
 public:
  HoldersByNode(const Job& job, const Links& links) {
    for (const Device h : job.holders) holders_.emplace_back(links.node(h), h);
    std::stable_sort(holders_.begin(), holders_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < holders_.size(); ++i) {
      if (i == 0 || holders_[i].first != holders_[i - 1].first) begins_.push_back(i);
    }
    begins_.push_back(holders_.size());
  }

  // `turn` spreads the demands over what is alike.
  template <typename Visit>
  void for_each_choice(int node, std::size_t turn, Visit visit) const {
    const std::size_t nodes = begins_.size() - 1;
    for (std::size_t i = 0; i < std::min(nodes, kMostNodes); ++i) {
      const std::size_t k = nodes <= kMostNodes ? i : (i + turn) % nodes;
      const std::size_t size = begins_[k + 1] - begins_[k];
      const bool own = holders_[begins_[k]].first == node;
      const std::size_t considered = own ? std::min(size, kMostPeers) : 1;
      for (std::size_t j = 0; j < considered; ++j) visit(holders_[begins_[k] + (turn + j) % size].second);
    }
    if (nodes > kMostNodes) visit_own_node(node, turn, visit);
  }

 private:
  template <typename Visit>
  void visit_own_node(int node, std::size_t turn, Visit visit) const {
    const auto found = std::lower_bound(holders_.begin(), holders_.end(), std::pair{node, Device{0}});
    if (found == holders_.end() || found->first != node) return;
    const auto end = std::find_if(found, holders_.end(), [&](const auto& h) { return h.first != node; });
    const auto size = static_cast<std::size_t>(end - found);
    for (std::size_t j = 0; j < std::min(size, kMostPeers); ++j)
      visit((found + static_cast<std::ptrdiff_t>((turn + j) % size))->second);
  }

  std::vector<std::pair<int, Device>> holders_;
  std::vector<std::size_t> begins_;
};

class Balancer {
 public:
  Balancer(const std::vector<Job>& jobs, const Links& links) : jobs_(jobs), links_(links), loads_(links) {}

  Balance run() {
    for (std::size_t j = 0; j < jobs_.size(); ++j) list_demands(j);
    choose();
    improve();
    return {moves(), std::move(loads_)};
  }

 private:
  void list_demands(std::size_t j) {
    const Job& job = jobs_[j];
    const HoldersByNode holders(job, links_);
    const std::int64_t units =
        job.holders.size() < 2 ? 1 : std::clamp<std::int64_t>(job.bytes / kUnitBytes, 1, kMostUnits);
    const auto slices = static_cast<std::int64_t>(sliced(job.box, units).size());
    for (std::size_t r = 0; r < job.requirers.size(); ++r) {
      Demand demand{
          j, job.requirers[r], slices, static_cast<double>(job.bytes) / static_cast<double>(slices), options_.size(),
          0};
      holders.for_each_choice(links_.node(demand.requirer), r, [&](Device holder) {
        options_.push_back({holder, links_.path(holder, demand.requirer), 0});
      });
      demand.last = options_.size();
      demands_.push_back(demand);
    }
  }

  // Those with the least choice first, then the largest.
  void choose() {
    std::vector<std::size_t> order(demands_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const std::size_t x = demands_[a].last - demands_[a].first;
      const std::size_t y = demands_[b].last - demands_[b].first;
      return x != y ? x < y : jobs_[demands_[a].job].bytes > jobs_[demands_[b].job].bytes;
    });
    for (const std::size_t i : order) {
      const Demand& demand = demands_[i];
      const double bytes = demand.unit_bytes * static_cast<double>(demand.units);
      Option* best = nullptr;
      double earliest = 0;
      for (std::size_t o = demand.first; o < demand.last; ++o) {
        const Links::Path& path = options_[o].path;
        const double finish =
            std::max(loads_[path.out] + bytes * path.out_s, loads_[path.in] + bytes * path.in_s) + path.latency_s;
        if (best != nullptr && finish >= earliest) continue;
        best = &options_[o];
        earliest = finish;
      }
      best->units = demand.units;
      loads_.add(best->path, bytes);
    }
  }

  void improve() {
    double before = loads_.greatest();
    for (int round = 0; round < kMostRounds; ++round) {
      const double hot = kHot * loads_.greatest();
      bool moved = false;
      for (const Demand& demand : demands_) {
        for (std::size_t o = demand.first; o < demand.last; ++o) {
          Option& option = options_[o];
          if (option.units == 0 || std::max(loads_[option.path.out], loads_[option.path.in]) < hot) continue;
          moved = relieve(demand, option) || moved;
        }
      }
      if (!moved) return;
      if (round % 8 != 7) continue;
      const double now = loads_.greatest();
      if (now > before * (1 - kWorthwhile)) return;
      before = now;
    }
  }

  // Seconds per unit that a shift from one way to another takes off a resource and puts on it.
  struct Shift {
    double from_level = 0;  // the greater load of what is left, and what a unit takes off it
    double from_unit = 0;
    double to_level = 0;
    double to_unit = 0;
  };
  [[nodiscard]] Shift shift(const Demand& demand, const Links::Path& a, const Links::Path& b) const {
    Shift s;
    const auto consider = [&](std::uint32_t resource, double seconds, double& level, double& unit) {
      if (loads_[resource] < level) return;
      level = loads_[resource];
      unit = seconds * demand.unit_bytes;
    };
    if (a.out != b.out) {
      consider(a.out, a.out_s, s.from_level, s.from_unit);
      consider(b.out, b.out_s, s.to_level, s.to_unit);
    }
    if (a.in != b.in) {
      consider(a.in, a.in_s, s.from_level, s.from_unit);
      consider(b.in, b.in_s, s.to_level, s.to_unit);
    }
    return s;
  }

  // Shifts units of one way to the other way that evens loads most.
  bool relieve(const Demand& demand, Option& from) {
    Option* best = nullptr;
    std::int64_t units = 0;
    double most = 0;
    for (std::size_t o = demand.first; o < demand.last; ++o) {
      const Shift s = shift(demand, from.path, options_[o].path);
      if (s.from_unit <= 0 || s.to_level + s.to_unit >= s.from_level * (1 - 1e-9)) continue;
      const auto even = static_cast<std::int64_t>((s.from_level - s.to_level) / (s.from_unit + s.to_unit));
      const std::int64_t n = std::clamp<std::int64_t>(even, 1, from.units);
      const double gain = s.from_level - std::max(s.from_level - static_cast<double>(n) * s.from_unit,
                                                  s.to_level + static_cast<double>(n) * s.to_unit);
      if (gain <= most) continue;
      best = &options_[o];
      units = n;
      most = gain;
    }
    if (best == nullptr) return false;
    const double bytes = demand.unit_bytes * static_cast<double>(units);
    loads_.add(from.path, -bytes);
    loads_.add(best->path, bytes);
    from.units -= units;
    best->units += units;
    return true;
  }

  std::vector<Sent> moves() const {
    std::vector<Sent> sent;
    sent.reserve(demands_.size());
    std::size_t at = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const Job& job = jobs_[j];
      for (const Device d : job.keepers) sent.push_back({job.tensor, {job.box, {d}, {d}}});
      for (; at < demands_.size() && demands_[at].job == j; ++at) share_out(job, demands_[at], sent);
    }
    return sent;
  }

  // Neighbouring slices go to the same holder.
  void share_out(const Job& job, const Demand& demand, std::vector<Sent>& sent) const {
    std::vector<Box> slices;
    if (demand.units > 1) slices = sliced(job.box, demand.units);
    std::int64_t begin = 0;
    for (std::size_t o = demand.first; o < demand.last; ++o) {
      const std::int64_t units = options_[o].units;
      if (units == 0) continue;
      Box box = job.box;
      if (units < demand.units) {
        box = slices[static_cast<std::size_t>(begin)];
        const Box& last = slices[static_cast<std::size_t>(begin + units - 1)];
        for (std::size_t d = 0; d < box.size(); ++d) box[d].end = last[d].end;
      }
      begin += units;
      sent.push_back({job.tensor, {box, {options_[o].holder}, {demand.requirer}}});
    }
  }

  const std::vector<Job>& jobs_;
  const Links& links_;
  Loads loads_;
  std::vector<Demand> demands_;
  std::vector<Option> options_;
};

}  // namespace

std::vector<Sent> paired(const std::vector<Job>& jobs) {
  std::vector<Sent> sent;
  for (const Job& job : jobs) {
    const std::size_t n = job.holders.size();
    std::vector<std::vector<Device>> to(n);
    for (std::size_t r = 0; r < job.requirers.size(); ++r) to[r % n].push_back(job.requirers[r]);
    std::vector<Device> keepers = job.keepers;
    std::sort(keepers.begin(), keepers.end());
    for (std::size_t h = 0; h < n; ++h) {
      if (std::binary_search(keepers.begin(), keepers.end(), job.holders[h])) to[h].push_back(job.holders[h]);
      if (to[h].empty()) continue;
      std::sort(to[h].begin(), to[h].end());
      sent.push_back({job.tensor, {job.box, {job.holders[h]}, std::move(to[h])}});
    }
  }
  return sent;
}

Balance balanced(const std::vector<Job>& jobs, const Links& links) {
  return Balancer(jobs, links).run();
}

}  // namespace hspmd::comm
