#include "hspmd/comm/assign.h"

#include <algorithm>
#include <limits>

namespace hspmd::comm {
namespace {

bool contains(const std::vector<Device>& devices, Device d) { return std::find(devices.begin(), devices.end(), d) != devices.end(); }

std::vector<Device> sorted(std::vector<Device> devices) {
  std::sort(devices.begin(), devices.end());
  return devices;
}

// The alternative with the fewest addends; of equals the first.
std::size_t fewest_addends(const Side& side) {
  std::size_t best = 0;
  for (std::size_t a = 1; a < side.size(); ++a) {
    if (side[a].size() < side[best].size()) best = a;
  }
  return best;
}

// One replica of each addend, those of one index together: Px2 Dx2 reduces in {0,2} and {1,3}.
std::vector<Device> reducing_group(const Alternative& alternative, std::size_t replica) {
  std::vector<Device> group;
  for (const Replicas& addend : alternative) group.push_back(addend[replica % addend.size()]);
  return group;
}

struct Place {
  std::size_t addend = 0;
  std::size_t replica = 0;
};

class Assigner {
 public:
  explicit Assigner(int element_bytes) : element_bytes_(element_bytes) {}

  Assignment run(const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) result_.reduces_first = result_.reduces_first || needs_two_stages(cell);
    for (const Cell& cell : cells) serve(cell);
    return std::move(result_);
  }

 private:
  // Devices that need the whole value of the cell.
  static std::vector<Device> whole_requirers(const Cell& cell) {
    std::vector<Device> requirers;
    for (const Alternative& alternative : cell.destination) {
      if (alternative.size() == 1) requirers.insert(requirers.end(), alternative[0].begin(), alternative[0].end());
    }
    return requirers;
  }

  // The replica indices whose whole reducing group requires the cell.
  static std::vector<std::size_t> all_reducing(const Alternative& source, const std::vector<Device>& requirers) {
    const std::vector<Device> wanted = sorted(requirers);
    std::vector<std::size_t> replicas;
    std::size_t count = source.front().size();
    for (const Replicas& addend : source) count = std::min(count, addend.size());
    for (std::size_t r = 0; r < count; ++r) {
      const std::vector<Device> group = reducing_group(source, r);
      const bool all = std::all_of(group.begin(), group.end(), [&](Device d) { return std::binary_search(wanted.begin(), wanted.end(), d); });
      if (all) replicas.push_back(r);
    }
    return replicas;
  }

  static bool needs_two_stages(const Cell& cell) {
    const Alternative& source = cell.source[fewest_addends(cell.source)];
    const std::vector<Device> requirers = whole_requirers(cell);
    if (source.size() == 1 || requirers.size() < 2) return false;
    return all_reducing(source, requirers).size() * source.size() != requirers.size();
  }

  void serve(const Cell& cell) {
    std::vector<Device> requirers = whole_requirers(cell);
    // Beside whole requirers in two stages a decomposition takes the reduced value in its first addend: a device
    // could not hold both an addend and the sum in between.
    const bool from_sum = result_.reduces_first && !requirers.empty();
    for (const Alternative& alternative : cell.destination) {
      if (alternative.size() == 1) continue;
      if (!from_sum) {
        serve_partial(cell, alternative);
        continue;
      }
      requirers.insert(requirers.end(), alternative[0].begin(), alternative[0].end());
      for (std::size_t b = 1; b < alternative.size(); ++b) {
        for (const Device d : alternative[b]) result_.last.push_back({cell.box, {}, {d}});
      }
    }
    if (!requirers.empty()) serve_whole(cell, requirers);
  }

  void serve_whole(const Cell& cell, const std::vector<Device>& requirers) {
    const Alternative& source = cell.source[fewest_addends(cell.source)];
    if (source.size() > 1) {
      reduce(cell, source, requirers);
      return;
    }
    std::vector<Device> holders;
    for (const Alternative& alternative : cell.source) {
      if (alternative.size() == 1) holders.insert(holders.end(), alternative[0].begin(), alternative[0].end());
    }
    copy(cell.box, holders, requirers);
    if (result_.reduces_first) {  // what is copied in the second stage must outlive the first
      for (const Device d : holders) result_.first.push_back({cell.box, {d}, {d}});
    }
  }

  void reduce(const Cell& cell, const Alternative& source, const std::vector<Device>& requirers) {
    std::vector<Move>& moves = result_.reduces_first ? result_.first : result_.last;
    std::vector<Device> reduced;
    for (const std::size_t r : all_reducing(source, requirers)) {
      const std::vector<Device> group = reducing_group(source, r);
      moves.push_back({cell.box, group, group});
      reduced.insert(reduced.end(), group.begin(), group.end());
    }
    if (reduced.empty()) {
      const Device reducer = choose_reducer(source, requirers);
      moves.push_back({cell.box, reducing_group(source, replica_of(source, reducer)), {reducer}});
      reduced = {reducer};
    }
    if (result_.reduces_first) copy(cell.box, reduced, requirers);
  }

  // Of both sides if there is one, else a lone requirer, else of the source; in turn, so that many cells share the work.
  Device choose_reducer(const Alternative& source, const std::vector<Device>& requirers) {
    if (requirers.size() == 1) return requirers.front();
    std::vector<Device> candidates;
    for (const Replicas& addend : source) {
      for (const Device d : addend) {
        if (contains(requirers, d)) candidates.push_back(d);
      }
    }
    if (candidates.empty()) {
      for (const Replicas& addend : source) candidates.insert(candidates.end(), addend.begin(), addend.end());
    }
    return candidates[turn_++ % candidates.size()];
  }

  static std::size_t replica_of(const Alternative& source, Device device) {
    for (const Replicas& addend : source) {
      const auto found = std::find(addend.begin(), addend.end(), device);
      if (found != addend.end()) return static_cast<std::size_t>(found - addend.begin());
    }
    return 0;
  }

  void copy(const Box& box, const std::vector<Device>& holders, const std::vector<Device>& requirers) {
    const std::int64_t bytes = volume(box) * element_bytes_;
    const std::vector<Device> holding = sorted(holders);
    std::size_t pair = 0;
    for (const Device d : requirers) {
      if (std::binary_search(holding.begin(), holding.end(), d)) {
        result_.last.push_back({box, {d}, {d}});
      } else {
        result_.copies.push_back({0, box, holders, d, pair++, bytes});
      }
    }
  }

  // Each source addend to the destination addend where the fewest replicas lack it.
  static std::vector<std::size_t> place_addends(const Alternative& source, const Alternative& destination, std::size_t& moved) {
    std::vector<std::size_t> placed;
    moved = 0;
    for (std::size_t a = 0; a < source.size(); ++a) {
      std::size_t best = 0;
      std::size_t fewest = std::numeric_limits<std::size_t>::max();
      const auto try_at = [&](std::size_t b) {
        std::size_t lacking = 0;
        for (const Device d : destination[b]) lacking += contains(source[a], d) ? 0 : 1;
        if (lacking < fewest) {
          fewest = lacking;
          best = b;
        }
      };
      // The addend at its own index first: mostly it stays where it is.
      try_at(a % destination.size());
      for (std::size_t b = 0; b < destination.size() && fewest > 0; ++b) try_at(b);
      placed.push_back(best);
      moved += fewest;
    }
    return placed;
  }

  void serve_partial(const Cell& cell, const Alternative& destination) {
    std::size_t chosen = 0;
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> placed;
    for (std::size_t s = 0; s < cell.source.size() && fewest > 0; ++s) {
      std::size_t moved = 0;
      std::vector<std::size_t> candidate = place_addends(cell.source[s], destination, moved);
      if (moved >= fewest) continue;
      fewest = moved;
      chosen = s;
      placed = std::move(candidate);
    }
    const Alternative& source = cell.source[chosen];
    std::vector<std::vector<std::size_t>> addends(destination.size());  // source addends by destination addend
    for (std::size_t a = 0; a < placed.size(); ++a) addends[placed[a]].push_back(a);
    if (result_.reduces_first) carry(cell, source);
    for (std::size_t b = 0; b < destination.size(); ++b) {
      for (std::size_t r = 0; r < destination[b].size(); ++r) {
        const Device d = destination[b][r];
        Move move{cell.box, {}, {d}};
        for (const std::size_t a : addends[b]) move.sources.push_back(contains(source[a], d) ? d : source[a][r % source[a].size()]);
        result_.last.push_back(std::move(move));
      }
    }
  }

  // Beside cells that are reduced first, addends wait for the second stage where they are.
  void carry(const Cell& cell, const Alternative& source) {
    for (const Replicas& addend : source) {
      for (const Device d : addend) {
        const Move move{cell.box, {d}, {d}};
        if (std::find(result_.first.begin(), result_.first.end(), move) == result_.first.end()) result_.first.push_back(move);
      }
    }
  }

  int element_bytes_;
  std::size_t turn_ = 0;
  Assignment result_;
};

}  // namespace

Assignment assign(const std::vector<Cell>& cells, int element_bytes) { return Assigner(element_bytes).run(cells); }

}  // namespace hspmd::comm
