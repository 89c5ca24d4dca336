#include "hspmd/comm/classify.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "hspmd/comm/device_index.h"

namespace hspmd::comm {
namespace {

using Devices = std::vector<Device>;

Devices ascending(Devices devices) {
  if (!std::is_sorted(devices.begin(), devices.end())) std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

CommKind named(CommKind kind, Naming naming) {
  if (naming != Naming::kTop) return kind;
  if (kind == CommKind::kAllReduce) return CommKind::kSplitAllReduce;
  if (kind == CommKind::kReduceScatter) return CommKind::kSplitReduceScatter;
  if (kind == CommKind::kAllGather || kind == CommKind::kBroadcast) return CommKind::kSplitAllGather;
  return kind;
}

Devices participants_of(const std::vector<Move>& moves) {
  Devices devices;
  for (const Move& move : moves) {
    devices.insert(devices.end(), move.sources.begin(), move.sources.end());
    devices.insert(devices.end(), move.destinations.begin(), move.destinations.end());
  }
  return ascending(std::move(devices));
}

// Collectives whose moves share a kind and a set of participants.
class Collectives {
 public:
  void add(CommKind kind, const Devices& by, Move move) {
    if (last_ == groups_.size() || by != last_by_ || groups_[last_].kind != kind) find(kind, by);
    groups_[last_].moves.push_back(std::move(move));
  }

  std::vector<CommGroup> take() { return std::move(groups_); }

 private:
  void find(CommKind kind, const Devices& by) {
    last_by_ = by;
    const auto [found, fresh] = numbers_.emplace(std::pair{kind, ascending(by)}, groups_.size());
    last_ = found->second;
    if (fresh) groups_.push_back({kind, kind == CommKind::kAllReduce ? by : found->first.second, {}});
  }

  std::map<std::pair<CommKind, Devices>, std::size_t> numbers_;
  std::vector<CommGroup> groups_;
  Devices last_by_;  // most moves go where the one before went
  std::size_t last_ = 0;
};

// A connected component of one-to-one moves.
struct Component {
  std::vector<Move> moves;
  std::set<std::pair<Device, Device>> ways;
  bool keeps = false;  // some device holds a part of what it held
};

bool one_to_one(const Component& component) {
  std::set<Device> senders, receivers;
  for (const auto& [from, to] : component.ways) {
    senders.insert(from);
    receivers.insert(to);
  }
  return senders.size() == component.ways.size() && receivers.size() == component.ways.size();
}

void name_component(Component component, std::vector<CommGroup>& groups) {
  Devices participants = participants_of(component.moves);
  const std::size_t n = participants.size();
  const bool everybody =
      component.ways.size() == n * (n - 1) && (n > 2 || (component.keeps && component.ways.size() == 2));
  if (everybody || !one_to_one(component)) {
    const CommKind kind = everybody ? CommKind::kAllToAll : CommKind::kBatchedSendReceive;
    groups.push_back({kind, std::move(participants), std::move(component.moves)});
    return;
  }
  std::map<std::pair<Device, Device>, CommGroup> pairs;
  for (Move& move : component.moves) {
    const std::pair way{move.sources.front(), move.destinations.front()};
    CommGroup& group =
        pairs.try_emplace(way, CommGroup{CommKind::kSendReceive, {way.first, way.second}, {}}).first->second;
    group.moves.push_back(std::move(move));
  }
  for (auto& [way, group] : pairs) groups.push_back(std::move(group));
}

void name_pairs(std::vector<Move> moves, const Devices& keeping, std::vector<CommGroup>& groups) {
  if (moves.empty()) return;
  const DeviceIndex index(participants_of(moves));
  std::vector<std::size_t> parent(index.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](std::size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const Move& move : moves) {
    const std::size_t a = root(index.at(move.sources.front()));
    const std::size_t b = root(index.at(move.destinations.front()));
    parent[std::max(a, b)] = std::min(a, b);
  }
  std::map<std::size_t, Component> components;  // by their first device
  for (Move& move : moves) {
    Component& component = components[root(index.at(move.sources.front()))];
    component.ways.emplace(move.sources.front(), move.destinations.front());
    component.keeps = component.keeps || std::binary_search(keeping.begin(), keeping.end(), move.sources.front());
    component.moves.push_back(std::move(move));
  }
  for (auto& [first, component] : components) name_component(std::move(component), groups);
}

bool one_sender(const CommGroup& group) {
  return std::all_of(group.moves.begin(), group.moves.end(),
                     [&](const Move& m) { return m.sources == group.moves.front().sources; });
}

std::size_t hash_of(const Move& move) {
  std::size_t hash = move.sources.size();
  const auto mix = [&](Device d) { hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(d) + 1; };
  for (const Device d : move.sources) mix(d);
  for (const Device d : move.destinations) mix(d);
  return hash ^ (hash >> 29);
}

// Joins along every dim the moves of one bucket, which mostly have equal sources and destinations.
std::vector<Move> joined(std::vector<Move> moves) {
  for (std::size_t d = moves.front().box.size(); d-- > 0;) {
    const auto others = [d](const Move& m) {
      Box box = m.box;
      box[d] = {0, 0};
      return box;
    };
    std::stable_sort(moves.begin(), moves.end(), [&](const Move& a, const Move& b) {
      const Box x = others(a);
      const Box y = others(b);
      return x != y ? x < y : a.box[d] < b.box[d];
    });
    std::vector<Move> result;
    for (Move& move : moves) {
      const bool continues = !result.empty() && result.back().box[d].end == move.box[d].begin &&
                             others(result.back()) == others(move) && result.back().sources == move.sources &&
                             result.back().destinations == move.destinations;
      if (continues) {
        result.back().box[d].end = move.box[d].end;
      } else {
        result.push_back(std::move(move));
      }
    }
    moves = std::move(result);
  }
  return moves;
}

}  // namespace

bool stays(const Move& move) {
  return move.sources.empty() || (move.destinations.size() == 1 && move.sources == move.destinations);
}

std::vector<Move> merged(std::vector<Move> moves) {
  if (moves.size() < 2) return moves;
  std::vector<std::pair<std::size_t, std::size_t>> order;
  order.reserve(moves.size());
  for (std::size_t i = 0; i < moves.size(); ++i) order.emplace_back(hash_of(moves[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<std::vector<Move>> from(moves.size());  // what a bucket becomes, at its first move
  for (std::size_t i = 0; i < order.size();) {
    std::size_t last = i + 1;
    while (last < order.size() && order[last].first == order[i].first) ++last;
    if (last > i + 1) {
      std::vector<Move> bucket;
      for (std::size_t k = i; k < last; ++k) bucket.push_back(std::move(moves[order[k].second]));
      from[order[i].second] = joined(std::move(bucket));
    }
    i = last;
  }
  std::vector<Move> result;
  result.reserve(moves.size());
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (!moves[i].destinations.empty()) result.push_back(std::move(moves[i]));  // else it went into a bucket
    std::move(from[i].begin(), from[i].end(), std::back_inserter(result));
  }
  return result;
}

std::vector<CommGroup> classify(std::vector<Move> moves, Naming naming) {
  Collectives collectives;
  std::vector<Move> pairs;
  CommGroup batch{CommKind::kBatchedSendReceive, {}, {}};
  CommGroup local{CommKind::kLocalSlice, {}, {}};
  const auto inside = [](Device d, const Devices& devices) {
    return std::find(devices.begin(), devices.end(), d) != devices.end();
  };
  for (Move& move : moves) {
    const Devices& from = move.sources;
    const Devices& to = move.destinations;
    if (stays(move)) {
      local.participants.push_back(to.front());
      local.moves.push_back(std::move(move));
    } else if (from.size() > 1 && from.size() == to.size() && ascending(from) == ascending(to)) {
      const Devices by = from;
      collectives.add(CommKind::kAllReduce, by, std::move(move));
    } else if (from.size() > 1 && to.size() == 1 && inside(to.front(), from)) {
      const Devices by = from;
      collectives.add(CommKind::kReduceScatter, by, std::move(move));
    } else if (naming != Naming::kBatch && from.size() == 1 && to.size() > 1 && inside(from.front(), to)) {
      const Devices by = to;
      collectives.add(CommKind::kAllGather, by, std::move(move));
    } else if (naming != Naming::kBatch && from.size() == 1 && to.size() == 1) {
      pairs.push_back(std::move(move));
    } else {
      batch.moves.push_back(std::move(move));
    }
  }
  local.participants = ascending(std::move(local.participants));
  std::vector<CommGroup> groups;
  for (CommGroup& group : collectives.take()) {
    if (group.kind == CommKind::kAllGather && one_sender(group)) group.kind = CommKind::kBroadcast;
    group.kind = named(group.kind, naming);
    groups.push_back(std::move(group));
  }
  name_pairs(std::move(pairs), local.participants, groups);
  if (!batch.moves.empty()) {
    batch.participants = participants_of(batch.moves);
    groups.push_back(std::move(batch));
  }
  if (!local.moves.empty()) groups.push_back(std::move(local));
  return groups;
}

}  // namespace hspmd::comm
