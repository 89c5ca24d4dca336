#include "hspmd/comm/senders.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hspmd::comm {
namespace {

constexpr std::int64_t kChunkBytes = 256 << 10;
constexpr std::int64_t kMostChunks = 16;

// Cuts a box along its longest dim.
std::vector<Box> chunks(const Box& box, std::int64_t count) {
  std::size_t longest = 0;
  for (std::size_t d = 1; d < box.size(); ++d) {
    if (box[d].size() > box[longest].size()) longest = d;
  }
  if (box.empty()) return {box};
  count = std::min(count, box[longest].size());
  std::vector<Box> parts;
  for (int i = 0; i < count; ++i) {
    const Interval part = cut(box[longest].size(), i, static_cast<int>(count), {});
    parts.push_back(box);
    parts.back()[longest] = {box[longest].begin + part.begin, box[longest].begin + part.end};
  }
  return parts;
}

std::vector<Copy> chunked(const std::vector<Copy>& copies) {
  std::vector<Copy> parts;
  for (const Copy& copy : copies) {
    const std::int64_t count = copy.holders.size() < 2 ? 1 : std::clamp<std::int64_t>(copy.bytes / kChunkBytes, 1, kMostChunks);
    for (const Box& box : chunks(copy.box, count)) {
      Copy part = copy;
      part.box = box;
      part.bytes = copy.bytes / std::max<std::int64_t>(volume(copy.box), 1) * volume(box);
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

class Balancer {
 public:
  Balancer(std::vector<Sent>& sent, const Cluster& cluster) : sent_(sent), loads_(cluster), cluster_(cluster) {}

  void run() {
    choose();
    improve();
  }

 private:
  void choose() {
    // Those with the least choice first, then the largest.
    std::vector<std::size_t> order(sent_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const Copy& x = sent_[a].copy;
      const Copy& y = sent_[b].copy;
      return x.holders.size() != y.holders.size() ? x.holders.size() < y.holders.size() : x.bytes > y.bytes;
    });
    for (const std::size_t i : order) {
      Sent& s = sent_[i];
      double best = 0;
      bool chosen = false;
      for (const Device h : s.copy.holders) {
        const double finish = finish_with(s.copy, h);
        if (chosen && finish >= best) continue;
        chosen = true;
        best = finish;
        s.sender = h;
      }
      loads_.add(loads_.path(s.sender, s.copy.requirer), static_cast<double>(s.copy.bytes));
    }
  }

  [[nodiscard]] double finish_with(const Copy& copy, Device holder) const {
    const Loads::Path path = loads_.path(holder, copy.requirer);
    const auto bytes = static_cast<double>(copy.bytes);
    const double out = loads_.at(path.out) + bytes * path.out_s_per_byte;
    const double in = loads_.at(path.in) + bytes * path.in_s_per_byte;
    return std::max(out, in) + cluster_.between(holder, copy.requirer).latency_s;
  }

  // Moves single copies off the most loaded resource while that lowers the greatest load they touch.
  void improve() {
    std::unordered_map<int, std::vector<std::size_t>> users;
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      const Loads::Path path = loads_.path(sent_[i].sender, sent_[i].copy.requirer);
      users[path.out].push_back(i);
      users[path.in].push_back(i);
    }
    const std::size_t most_steps = 4 * sent_.size() + 64;
    for (std::size_t step = 0; step < most_steps; ++step) {
      const int hottest = hottest_resource();
      if (!relieve(hottest, users)) return;
    }
  }

  [[nodiscard]] int hottest_resource() const {
    int hottest = -1;
    double most = -1;
    for (const auto& [resource, seconds] : loads_.all()) {
      if (seconds > most || (seconds == most && resource < hottest)) {
        most = seconds;
        hottest = resource;
      }
    }
    return hottest;
  }

  bool relieve(int resource, std::unordered_map<int, std::vector<std::size_t>>& users) {
    const double now = loads_.at(resource);
    double best = now;
    std::size_t chosen = sent_.size();
    Device sender = 0;
    for (const std::size_t i : users[resource]) {
      const Sent& s = sent_[i];
      const Loads::Path old = loads_.path(s.sender, s.copy.requirer);
      if (old.out != resource && old.in != resource) continue;  // moved away before
      const auto bytes = static_cast<double>(s.copy.bytes);
      for (const Device h : s.copy.holders) {
        const Loads::Path path = loads_.path(h, s.copy.requirer);
        if (path.out == resource || path.in == resource) continue;
        double out = loads_.at(path.out) + bytes * path.out_s_per_byte;
        double in = loads_.at(path.in) + bytes * path.in_s_per_byte;
        if (path.in == old.in) in -= bytes * old.in_s_per_byte;
        const double worst = std::max(out, in);
        if (worst < best * (1 - 1e-9)) {
          best = worst;
          chosen = i;
          sender = h;
        }
      }
    }
    if (chosen == sent_.size()) return false;
    Sent& s = sent_[chosen];
    loads_.add(loads_.path(s.sender, s.copy.requirer), -static_cast<double>(s.copy.bytes));
    s.sender = sender;
    const Loads::Path path = loads_.path(sender, s.copy.requirer);
    loads_.add(path, static_cast<double>(s.copy.bytes));
    users[path.out].push_back(chosen);
    users[path.in].push_back(chosen);
    return true;
  }

  std::vector<Sent>& sent_;
  Loads loads_;
  const Cluster& cluster_;
};

}  // namespace

std::vector<Sent> paired(const std::vector<Copy>& copies) {
  std::vector<Sent> sent;
  for (const Copy& copy : copies) sent.push_back({copy, copy.holders[copy.pair % copy.holders.size()]});
  return sent;
}

std::vector<Sent> balanced(const std::vector<Copy>& copies, const Cluster& cluster) {
  std::vector<Sent> sent;
  for (Copy& copy : chunked(copies)) sent.push_back({std::move(copy), 0});
  Balancer(sent, cluster).run();
  return sent;
}

double finish_bound(const std::vector<Copy>& copies, const Cluster& cluster) {
  constexpr int kRounds = 400;
  if (copies.empty()) return 0;
  const Loads geometry(cluster);
  struct Option {
    std::size_t out, in;
    double out_s, in_s;
  };
  std::unordered_map<int, std::size_t> index;
  const auto number = [&](int resource) { return index.emplace(resource, index.size()).first->second; };
  std::vector<std::vector<Option>> options;
  for (const Copy& copy : copies) {
    options.emplace_back();
    for (const Device h : copy.holders) {
      const Loads::Path path = geometry.path(h, copy.requirer);
      const auto bytes = static_cast<double>(copy.bytes);
      const Option option{number(path.out), number(path.in), bytes * path.out_s_per_byte, bytes * path.in_s_per_byte};
      const bool same = std::any_of(options.back().begin(), options.back().end(), [&](const Option& o) { return o.out == option.out && o.in == option.in; });
      if (!same) options.back().push_back(option);
    }
  }
  // Weak duality: for any weights y >= 0 that sum to 1, T >= sum over copies of the cheapest option by y.
  std::vector<double> logs(index.size(), 0), load(index.size()), weight(index.size());
  double best = 0;
  double scale = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double top = *std::max_element(logs.begin(), logs.end());
    double sum = 0;
    for (std::size_t r = 0; r < logs.size(); ++r) sum += weight[r] = std::exp(logs[r] - top);
    std::fill(load.begin(), load.end(), 0);
    double bound = 0;
    for (const auto& choices : options) {
      const Option* cheapest = nullptr;
      double least = 0;
      for (const Option& o : choices) {
        const double cost = weight[o.out] * o.out_s + weight[o.in] * o.in_s;
        if (cheapest != nullptr && cost >= least) continue;
        cheapest = &o;
        least = cost;
      }
      bound += least;
      load[cheapest->out] += cheapest->out_s;
      load[cheapest->in] += cheapest->in_s;
    }
    best = std::max(best, bound / sum);
    scale = std::max(scale, *std::max_element(load.begin(), load.end()));
    const double rate = 8.0 / std::sqrt(1.0 + round) / std::max(scale, 1e-30);
    for (std::size_t r = 0; r < logs.size(); ++r) logs[r] += rate * load[r];
  }
  return best;
}

}  // namespace hspmd::comm
