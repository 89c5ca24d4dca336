#include "hspmd/comm/classify.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace hspmd::comm {
namespace {

using Devices = std::vector<Device>;

Devices sorted(Devices devices) {
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

bool stays(const Move& move) { return move.sources.empty() || (move.destinations.size() == 1 && move.sources == move.destinations); }

// Copies of one box from one sender become one move to several destinations, its own copy among them.
std::vector<Move> spread(std::vector<Move> moves) {
  std::map<std::tuple<Box, Device>, std::size_t> first;
  std::vector<Move> result;
  for (Move& move : moves) {
    if (move.sources.size() != 1) {
      result.push_back(std::move(move));
      continue;
    }
    const auto [found, fresh] = first.emplace(std::tuple{move.box, move.sources.front()}, result.size());
    if (fresh) {
      result.push_back(std::move(move));
    } else {
      Devices& to = result[found->second].destinations;
      to.insert(to.end(), move.destinations.begin(), move.destinations.end());
    }
  }
  for (Move& move : result) {
    if (move.sources.size() == 1) std::sort(move.destinations.begin(), move.destinations.end());
  }
  return result;
}

CommKind split_kind(CommKind kind, Tier tier) {
  if (tier == Tier::kBottom) return kind;
  if (kind == CommKind::kAllReduce) return CommKind::kSplitAllReduce;
  if (kind == CommKind::kReduceScatter) return CommKind::kSplitReduceScatter;
  if (kind == CommKind::kAllGather || kind == CommKind::kBroadcast) return CommKind::kSplitAllGather;
  return kind;
}

// One-to-one moves, by connected component.
void classify_pairs(std::vector<Move> pairs, std::vector<CommGroup>& groups) {
  std::map<Device, Device> parent;
  const auto root = [&](Device d) {
    parent.emplace(d, d);
    while (parent[d] != d) d = parent[d] = parent[parent[d]];
    return d;
  };
  for (const Move& move : pairs) {
    const Device a = root(move.sources.front());
    const Device b = root(move.destinations.front());
    parent[std::max(a, b)] = std::min(a, b);
  }
  std::map<Device, CommGroup> components;
  for (Move& move : pairs) {
    CommGroup& group = components[root(move.sources.front())];
    group.participants.push_back(move.sources.front());
    group.participants.push_back(move.destinations.front());
    group.moves.push_back(std::move(move));
  }
  for (auto& [first, group] : components) {
    group.participants = sorted(group.participants);
    std::set<std::pair<Device, Device>> ways;
    for (const Move& move : group.moves) ways.emplace(move.sources.front(), move.destinations.front());
    const std::size_t n = group.participants.size();
    if (ways.size() == 1) {
      group.kind = CommKind::kSendReceive;
    } else {
      group.kind = ways.size() == n * (n - 1) ? CommKind::kAllToAll : CommKind::kBatchedSendReceive;
    }
    groups.push_back(std::move(group));
  }
}

}  // namespace

std::vector<Move> merged(std::vector<Move> moves) {
  if (moves.empty()) return moves;
  for (std::size_t d = moves.front().box.size(); d-- > 0;) {
    const auto key = [&](const Move& m) {
      Box others = m.box;
      others[d] = {0, 0};
      return std::tie(m.sources, m.destinations);
    };
    const auto others = [&](const Move& m) {
      Box box = m.box;
      box[d] = {0, 0};
      return box;
    };
    std::stable_sort(moves.begin(), moves.end(), [&](const Move& a, const Move& b) {
      if (key(a) != key(b)) return key(a) < key(b);
      const Box x = others(a);
      const Box y = others(b);
      if (x != y) return x < y;
      return a.box[d] < b.box[d];
    });
    std::vector<Move> joined;
    for (Move& move : moves) {
      const bool continues = !joined.empty() && key(joined.back()) == key(move) && others(joined.back()) == others(move) &&
                             joined.back().box[d].end == move.box[d].begin;
      if (continues) {
        joined.back().box[d].end = move.box[d].end;
      } else {
        joined.push_back(std::move(move));
      }
    }
    moves = std::move(joined);
  }
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.box < b.box; });
  return moves;
}

std::vector<CommGroup> classify(std::vector<Move> moves, Tier tier) {
  std::map<std::pair<CommKind, Devices>, CommGroup> collectives;
  std::vector<Move> pairs;
  CommGroup batch{CommKind::kBatchedSendReceive, {}, {}};
  CommGroup local{CommKind::kLocalSlice, {}, {}};
  const auto join = [&](CommKind kind, const Devices& by, Move move) {
    CommGroup& group = collectives[{kind, sorted(by)}];
    group.kind = kind;
    if (group.participants.empty()) group.participants = kind == CommKind::kAllReduce ? by : sorted(by);
    group.moves.push_back(std::move(move));
  };
  for (Move& move : spread(std::move(moves))) {
    const Devices from = sorted(move.sources);
    const Devices to = sorted(move.destinations);
    if (stays(move)) {
      local.participants.push_back(to.front());
      local.moves.push_back(std::move(move));
    } else if (from.size() > 1 && from == to) {
      const Devices by = move.sources;
      join(CommKind::kAllReduce, by, std::move(move));
    } else if (from.size() > 1 && to.size() == 1 && std::binary_search(from.begin(), from.end(), to.front())) {
      join(CommKind::kReduceScatter, from, std::move(move));
    } else if (from.size() == 1 && to.size() > 1 && std::binary_search(to.begin(), to.end(), from.front())) {
      join(CommKind::kAllGather, to, std::move(move));
    } else if (from.size() == 1 && to.size() == 1) {
      pairs.push_back(std::move(move));
    } else {
      batch.participants.insert(batch.participants.end(), from.begin(), from.end());
      batch.participants.insert(batch.participants.end(), to.begin(), to.end());
      batch.moves.push_back(std::move(move));
    }
  }
  std::vector<CommGroup> groups;
  for (auto& [key, group] : collectives) {
    if (group.kind == CommKind::kAllGather) {
      std::set<Device> senders;
      for (const Move& move : group.moves) senders.insert(move.sources.front());
      if (senders.size() == 1) group.kind = CommKind::kBroadcast;
    }
    group.kind = split_kind(group.kind, tier);
    groups.push_back(std::move(group));
  }
  classify_pairs(std::move(pairs), groups);
  if (!batch.moves.empty()) groups.push_back(std::move(batch));
  if (!local.moves.empty()) groups.push_back(std::move(local));
  for (CommGroup& group : groups) {
    if (group.kind == CommKind::kBatchedSendReceive || group.kind == CommKind::kLocalSlice) group.participants = sorted(group.participants);
  }
  return groups;
}

}  // namespace hspmd::comm
