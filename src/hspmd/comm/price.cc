#include "hspmd/comm/price.h"

#include <algorithm>
#include <cmath>

namespace hspmd::comm {
namespace {

double bytes_of(const Move& move, int element_bytes) { return static_cast<double>(volume(move.box)) * element_bytes; }

bool local(const Move& move) {
  return move.sources.empty() || (move.sources.size() == 1 && move.destinations.size() == 1 && move.sources == move.destinations);
}

using Visit = std::function<void(Device, Device, double)>;

// Edge i -> i+1 of the ring carries all but what ends its way (or has begun it) at the next participant.
int ring(const CommGroup& group, int element_bytes, bool gather, const Visit& visit) {
  const std::size_t n = group.participants.size();
  std::map<Device, double> own;  // bytes that start (gather) or end (scatter) at a participant
  double all = 0;
  for (const Move& move : group.moves) {
    if (local(move)) continue;
    own[gather ? move.sources.front() : move.destinations.front()] += bytes_of(move, element_bytes);
    all += bytes_of(move, element_bytes);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Device from = group.participants[i];
    const Device to = group.participants[(i + 1) % n];
    const Device skipped = gather ? to : from;
    const auto found = own.find(skipped);
    visit(from, to, all - (found == own.end() ? 0 : found->second));
  }
  return static_cast<int>(n) - 1;
}

int all_reduce(const CommGroup& group, int element_bytes, const Visit& visit) {
  const std::size_t n = group.participants.size();
  double all = 0;
  for (const Move& move : group.moves) all += bytes_of(move, element_bytes);
  for (std::size_t i = 0; i < n; ++i) {
    visit(group.participants[i], group.participants[(i + 1) % n], 2 * all * static_cast<double>(n - 1) / static_cast<double>(n));
  }
  return 2 * (static_cast<int>(n) - 1);
}

int broadcast(const CommGroup& group, int element_bytes, const Visit& visit) {
  for (const Move& move : group.moves) {
    Device from = move.sources.front();
    for (const Device d : group.participants) {
      if (d == move.sources.front()) continue;
      visit(from, d, bytes_of(move, element_bytes));
      from = d;
    }
  }
  return static_cast<int>(group.participants.size()) - 1;
}

int direct(const CommGroup& group, int element_bytes, const Visit& visit) {
  int chain = 0;
  for (const Move& move : group.moves) {
    for (const Device to : move.destinations) {
      for (const Device from : move.sources) {
        if (from == to) continue;
        visit(from, to, bytes_of(move, element_bytes));
        chain = 1;
      }
    }
  }
  return chain;
}

}  // namespace

Loads::Path Loads::path(Device from, Device to) const {
  const int a = cluster_.node_of(from);
  const int b = cluster_.node_of(to);
  if (a == b) {
    const double s = 1 / cluster_.nodes()[static_cast<std::size_t>(a)].link.bytes_per_s;
    return {from * 4, to * 4 + 1, s, s};
  }
  return {a * 4 + 2, b * 4 + 3, 1 / cluster_.nodes()[static_cast<std::size_t>(a)].nic.bytes_per_s,
          1 / cluster_.nodes()[static_cast<std::size_t>(b)].nic.bytes_per_s};
}

void Loads::add(const Path& path, double bytes) {
  seconds_[path.out] += bytes * path.out_s_per_byte;
  seconds_[path.in] += bytes * path.in_s_per_byte;
}

double Loads::at(int resource) const {
  const auto found = seconds_.find(resource);
  return found == seconds_.end() ? 0 : found->second;
}

double Loads::greatest() const {
  double most = 0;
  for (const auto& [resource, seconds] : seconds_) most = std::max(most, seconds);
  return most;
}

int for_each_transfer(const CommGroup& group, int element_bytes, const Visit& visit) {
  switch (group.kind) {
    case CommKind::kIdentity:
    case CommKind::kLocalSlice:
      return 0;
    case CommKind::kAllReduce:
    case CommKind::kSplitAllReduce:
      return all_reduce(group, element_bytes, visit);
    case CommKind::kReduceScatter:
    case CommKind::kSplitReduceScatter:
      return ring(group, element_bytes, false, visit);
    case CommKind::kAllGather:
    case CommKind::kSplitAllGather:
      return ring(group, element_bytes, true, visit);
    case CommKind::kBroadcast:
      return broadcast(group, element_bytes, visit);
    case CommKind::kSendReceive:
    case CommKind::kAllToAll:
    case CommKind::kBatchedSendReceive:
      return direct(group, element_bytes, visit);
  }
  return 0;
}

void price(CommPlan& plan, const Cluster& cluster, int element_bytes) {
  double bytes = 0;
  std::map<Device, double> sent;
  plan.finish_s = 0;
  for (const CommStage& stage : plan.stages) {
    Loads loads(cluster);
    double latency = 0;
    for (const CommGroup& group : stage.groups) {
      double slowest = 0;
      const int chain = for_each_transfer(group, element_bytes, [&](Device from, Device to, double n) {
        if (n <= 0) return;
        loads.add(loads.path(from, to), n);
        slowest = std::max(slowest, cluster.between(from, to).latency_s);
        sent[from] += n;
        bytes += n;
      });
      latency = std::max(latency, chain * slowest);
    }
    plan.finish_s += loads.greatest() + latency;
  }
  plan.bytes = std::llround(bytes);
  plan.send_bytes.clear();
  for (const auto& [device, n] : sent) plan.send_bytes[device] = std::llround(n);
}

}  // namespace hspmd::comm
