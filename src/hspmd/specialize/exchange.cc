#include "hspmd/specialize/exchange.h"

#include <algorithm>
#include <map>
#include <set>

namespace hspmd {
namespace {

constexpr std::int64_t kTwoPhaseElements = 2048;  // below, every participant of an all-reduce sums everything

std::optional<Box> part_of(const Box& box, std::size_t index, std::size_t parts) {
  if (box.empty()) return std::nullopt;
  std::size_t longest = 0;
  for (std::size_t d = 1; d < box.size(); ++d) {
    if (box[d].size() > box[longest].size()) longest = d;
  }
  // The slowest dim that is long enough keeps the parts contiguous.
  for (std::size_t d = 0; d < box.size(); ++d) {
    if (box[d].size() >= static_cast<std::int64_t>(8 * parts)) {
      longest = d;
      break;
    }
  }
  if (box[longest].size() < static_cast<std::int64_t>(parts)) return std::nullopt;
  Box part = box;
  const Interval cut_part = cut(box[longest].size(), static_cast<int>(index), static_cast<int>(parts), {});
  part[longest] = {box[longest].begin + cut_part.begin, box[longest].begin + cut_part.end};
  return part;
}

class Localiser {
 public:
  Localiser(const CommPlan& plan, const Annotation& from, const Annotation& to, const Shape& shape, Device device,
            const Hosts& hosts)
      : plan_(plan),
        from_(from),
        to_(to),
        shape_(shape),
        device_(device),
        hosts_(hosts),
        phases_(hosts.empty() ? 2 : 4) {}

  LocalExchange run() {
    result_.reduction = plan_.reduction;
    result_.states = static_cast<int>(plan_.stages.size()) + 1;
    result_.rounds.resize(phases_ * plan_.stages.size());
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      for (std::size_t phase = 0; phase < phases_; ++phase) {
        Round& round = result_.rounds[phases_ * s + phase];
        round.reads = static_cast<int>(phase == 0 ? s : s + 1);
        round.fills = static_cast<int>(s) + 1;
      }
      for (const CommGroup& group : plan_.stages[s].groups) {
        for (const Move& move : group.moves) add(s, move);
      }
    }
    result_.in_place = one_place_ && plan_.stages.size() == 1 && pieces_of(device_, 0) == pieces_of(device_, 1);
    for (int state = 1; state + 1 < result_.states; ++state) result_.elements.push_back(elements_of(state));
    for (auto& [round, devices] : readers_) {
      result_.rounds[round].readers.assign(devices.begin(), devices.end());
    }
    return std::move(result_);
  }

 private:
  static std::ptrdiff_t position(const std::vector<Device>& devices, Device d) {
    return std::find(devices.begin(), devices.end(), d) - devices.begin();
  }
  static bool has(const std::vector<Device>& devices, Device d) {
    return std::find(devices.begin(), devices.end(), d) != devices.end();
  }

  void add(std::size_t s, const Move& move) {
    const bool reads = has(move.destinations, device_);
    const bool shows = has(move.sources, device_);
    if (!reads && !shows) return;
    const auto state = static_cast<int>(s);
    const bool all = move.sources.size() > 1 && move.sources.size() == move.destinations.size() && plan_.stages[s].to &&
                     reads && shows &&
                     std::is_permutation(move.sources.begin(), move.sources.end(), move.destinations.begin());
    const std::size_t n = move.sources.size();
    if (all && volume(move.box) >= kTwoPhaseElements && part_of(move.box, 0, n)) {
      const std::vector<std::vector<Device>> by_host = participants_by_host(move.sources);
      if (by_host.size() == 1) {
        add_two_phase(s, move);
      } else {
        add_two_level(s, move.box, by_host);
      }
      return;
    }
    const bool own_copy = move.sources.size() == 1 && move.sources.front() == device_ && reads;
    if (!own_copy) one_place_ = false;
    if (reads) pull(phases_ * s, state, move.box, move.sources);
    if (shows) show(phases_ * s, state, move.destinations, move.box);
  }

  void add_two_phase(std::size_t s, const Move& move) {
    const auto state = static_cast<int>(s);
    const std::size_t n = move.sources.size();
    for (std::size_t i = 0; i < n; ++i) {
      const Box part = *part_of(move.box, i, n);
      if (move.sources[i] == device_) {
        pull(phases_ * s, state, part, move.sources);
      } else {
        pull(phases_ * s + 1, state + 1, part, {move.sources[i]});
      }
    }
    const auto me = static_cast<std::size_t>(position(move.sources, device_));
    for (std::size_t i = 0; i < n; ++i) show(phases_ * s, state, {move.sources[i]}, *part_of(move.box, i, n));
    show(phases_ * s + 1, state + 1, move.sources, *part_of(move.box, me, n));
  }

  // In the order in which hosts and participants first appear.
  [[nodiscard]] std::vector<std::vector<Device>> participants_by_host(const std::vector<Device>& participants) const {
    if (hosts_.empty()) return {participants};
    std::vector<std::uint64_t> seen;
    std::vector<std::vector<Device>> lists;
    for (const Device d : participants) {
      const std::uint64_t host = hosts_[static_cast<std::size_t>(d)];
      const auto known = std::find(seen.begin(), seen.end(), host);
      if (known == seen.end()) {
        seen.push_back(host);
        lists.push_back({d});
      } else {
        lists[static_cast<std::size_t>(known - seen.begin())].push_back(d);
      }
    }
    return lists;
  }

  void add_two_level(std::size_t s, const Box& box, const std::vector<std::vector<Device>>& by_host) {
    const auto state = static_cast<int>(s);
    const std::size_t round = phases_ * s;
    const auto here =
        std::find_if(by_host.begin(), by_host.end(), [&](const auto& list) { return has(list, device_); });
    const auto fewest = std::min_element(by_host.begin(), by_host.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    for (std::size_t i = 0; i < fewest->size(); ++i) {
      const Box part = *part_of(box, i, fewest->size());
      const Device owner = (*here)[i];
      if (owner != device_) {
        show(round, state, {owner}, part);
        pull(round + 3, state + 1, part, {owner});
        continue;
      }
      pull(round, state, part, *here);
      std::vector<Device> owners;
      for (const auto& list : by_host) owners.push_back(list[i]);
      sum_between_hosts(round, state + 1, part, owners);
      show(round + 3, state + 1, *here, part);
    }
  }

  void sum_between_hosts(std::size_t round, int state, const Box& part, const std::vector<Device>& owners) {
    const bool slices = part_of(part, 0, owners.size()).has_value();
    if (!slices) {  // too small: every owner sums it all
      show(round + 1, state, owners, part);
      pull(round + 1, state, part, owners);
      return;
    }
    for (std::size_t h = 0; h < owners.size(); ++h) {
      const Box slice = *part_of(part, h, owners.size());
      show(round + 1, state, {owners[h]}, slice);
      if (owners[h] == device_) {
        show(round + 2, state, owners, slice);
        pull(round + 1, state, slice, owners);
      } else {
        pull(round + 2, state, slice, {owners[h]});
      }
    }
  }

  void show(std::size_t round, int state, const std::vector<Device>& readers, const Box& box) {
    for (const Device d : readers) {
      if (d == device_) continue;
      readers_[round].insert(d);
      result_.rounds[round].shows = state;
      result_.rounds[round].shown.push_back({d, box});
    }
  }

  // Splits the box where it spans pieces of a source or of mine.
  void pull(std::size_t round, int state, const Box& box, const std::vector<Device>& sources) {
    std::vector<Pull> parts = {{box, {}, {}}};
    const auto refine = [&](const Pieces& pieces, auto attach) {
      std::vector<Pull> finer;
      for (const Pull& part : parts) {
        for (const Piece& piece : pieces) {
          const auto common = intersect(part.box, piece.box);
          if (!common) continue;
          Pull next = part;
          next.box = *common;
          attach(next, piece);
          finer.push_back(std::move(next));
        }
      }
      parts = std::move(finer);
    };
    refine(pieces_of(device_, result_.rounds[round].fills), [](Pull& p, const Piece& piece) { p.into = piece; });
    for (const Device d : sources) {
      refine(pieces_of(d, state), [d](Pull& p, const Piece& piece) { p.sources.push_back({d, piece}); });
    }
    auto& pulls = result_.rounds[round].pulls;
    pulls.insert(pulls.end(), parts.begin(), parts.end());
  }

  const Pieces& pieces_of(Device device, int state) {
    const auto [found, fresh] = pieces_.try_emplace({state, device});
    if (!fresh) return found->second;
    Pieces pieces;
    const Annotation* annotation = annotation_of(state);
    if (annotation != nullptr) {
      if (const auto shard = owned(*annotation, device, shape_)) pieces.push_back({shard->box, 0});
    } else {
      std::int64_t offset = 0;
      for (const CommGroup& group : plan_.stages[static_cast<std::size_t>(state) - 1].groups) {
        for (const Move& move : group.moves) {
          if (!has(move.destinations, device)) continue;
          pieces.push_back({move.box, offset});
          offset += volume(move.box);
        }
      }
    }
    return found->second = std::move(pieces);
  }

  const Annotation* annotation_of(int state) const {
    if (state == 0) return &from_;
    if (state + 1 == result_.states) return &to_;
    const CommStage& made = plan_.stages[static_cast<std::size_t>(state) - 1];
    return made.to ? &*made.to : nullptr;
  }

  std::int64_t elements_of(int state) {
    std::int64_t elements = 0;
    for (const Piece& piece : pieces_of(device_, state)) elements += volume(piece.box);
    return elements;
  }

  const CommPlan& plan_;
  const Annotation& from_;
  const Annotation& to_;
  const Shape& shape_;
  Device device_;
  const Hosts& hosts_;
  std::size_t phases_;  // rounds of a stage
  LocalExchange result_;
  bool one_place_ = true;  // so far
  std::map<std::pair<int, Device>, Pieces> pieces_;
  std::map<std::size_t, std::set<Device>> readers_;
};

}  // namespace

LocalExchange local_exchange(const CommPlan& plan, const Annotation& from, const Annotation& to, const Shape& shape,
                             Device device, const Hosts& hosts) {
  return Localiser(plan, from, to, shape, device, hosts).run();
}

}  // namespace hspmd
