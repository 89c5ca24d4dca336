// The single transfers that a group of moves stands for: what each device sends to which, and how long the longest
// chain of messages is that wait for each other.
//
//   collective                  a device sends to the next participant              chain
//   AllReduce                   2 V - its chunk - the next one's  (V cut in n)      2 (n - 1)
//   ReduceScatter               all but what ends at itself                         n - 1
//   AllGather                   all but what begins at the next                     n - 1
//   Broadcast                   all, along the participants from the sender on      n - 1
//   anything else: each destination reads from each source but itself              1
#pragma once

#include <algorithm>
#include <vector>

#include "hspmd/comm/classify.h"

namespace hspmd::comm {

// Elements of the moves that end (scatter) or begin (gather) at each participant, which are in ascending order.
template <typename End>
std::vector<std::int64_t> elements_at(const CommGroup& group, End end) {
  std::vector<std::int64_t> elements(group.participants.size(), 0);
  for (const Move& move : group.moves) {
    const auto at = std::lower_bound(group.participants.begin(), group.participants.end(), end(move));
    elements[static_cast<std::size_t>(at - group.participants.begin())] += volume(move.box);
  }
  return elements;
}

// Calls visit(from, to, elements) for every transfer of more than none; returns the length of the chain.
template <typename Visit>
int for_each_transfer(const CommGroup& group, Visit visit) {
  const std::vector<Device>& ring = group.participants;
  const std::size_t n = ring.size();
  const auto send = [&](Device from, Device to, std::int64_t elements) {
    if (elements > 0 && from != to) visit(from, to, elements);
  };
  std::int64_t all = 0;
  for (const Move& move : group.moves) all += volume(move.box);
  switch (group.kind) {
    case CommKind::kIdentity:
    case CommKind::kLocalSlice:
      return 0;
    case CommKind::kAllReduce:
    case CommKind::kSplitAllReduce:
      for (std::size_t i = 0; i < n; ++i) {
        const auto chunk = [&](std::size_t k) { return cut(all, static_cast<int>(k), static_cast<int>(n), {}).size(); };
        send(ring[i], ring[(i + 1) % n], 2 * all - chunk(i) - chunk((i + 1) % n));
      }
      return 2 * (static_cast<int>(n) - 1);
    case CommKind::kReduceScatter:
    case CommKind::kSplitReduceScatter: {
      const auto ends = elements_at(group, [](const Move& m) { return m.destinations.front(); });
      for (std::size_t i = 0; i < n; ++i) send(ring[i], ring[(i + 1) % n], all - ends[i]);
      return static_cast<int>(n) - 1;
    }
    case CommKind::kBroadcast:
    case CommKind::kAllGather:
    case CommKind::kSplitAllGather: {
      const auto begins = elements_at(group, [](const Move& m) { return m.sources.front(); });
      for (std::size_t i = 0; i < n; ++i) send(ring[i], ring[(i + 1) % n], all - begins[(i + 1) % n]);
      return static_cast<int>(n) - 1;
    }
    case CommKind::kSendReceive:
    case CommKind::kAllToAll:
    case CommKind::kBatchedSendReceive:
      for (const Move& move : group.moves) {
        const std::int64_t elements = volume(move.box);
        for (const Device to : move.destinations) {
          for (const Device from : move.sources) send(from, to, elements);
        }
      }
      return 1;
  }
  return 0;
}

}  // namespace hspmd::comm
