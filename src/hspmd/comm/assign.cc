#include "hspmd/comm/assign.h"

#include <algorithm>
#include <map>

#include "hspmd/comm/device_index.h"

namespace hspmd::comm {
namespace {

constexpr std::int64_t kLeastPartBytes = 16 << 10;  // a smaller part of a sum is not worth a message of its own

using Alternative = std::vector<const Replicas*>;  // by addend

std::vector<Alternative> alternatives(const Layout& layout, std::span<const std::uint32_t> parts) {
  std::vector<Alternative> result;
  for (const std::uint32_t p : parts) {
    if (result.empty() || layout.subgroups == Subgroups::kAlternatives) result.emplace_back();
    for (const Replicas& addend : layout.parts[p].addends) result.back().push_back(&addend);
  }
  return result;
}

std::size_t fewest_addends(const std::vector<Alternative>& side) {
  const auto fewer = [](const Alternative& a, const Alternative& b) { return a.size() < b.size(); };
  return static_cast<std::size_t>(std::min_element(side.begin(), side.end(), fewer) - side.begin());
}

// One replica of each addend, those of one index together: Px2 Dx2 reduces in {0,2} and {1,3}.
std::vector<Device> reducing_group(const Alternative& alternative, std::size_t replica) {
  std::vector<Device> group;
  group.reserve(alternative.size());
  for (const Replicas* addend : alternative) group.push_back((*addend)[replica % addend->size()]);
  return group;
}

// Where a device stands in the source of the cell at hand.
struct Place {
  std::uint32_t cell = 0;  // counts from 1; a place of another cell is none
  std::uint32_t alternative = 0;
  std::uint32_t addend = 0;
  std::uint32_t replica = 0;
};

class Assigner {
 public:
  Assigner(const Overlay& overlay, int element_bytes, AssignPolicy policy)
      : overlay_(overlay),
        element_bytes_(element_bytes),
        policy_(policy),
        index_(all_devices(overlay)),
        places_(index_.size()),
        taken_(index_.size(), 0) {}

  Assignment run() {
    for (const Cell& cell : overlay_.cells) serve(cell);
    return std::move(result_);
  }

 private:
  static std::vector<Device> all_devices(const Overlay& overlay) {
    std::vector<Device> devices;
    for (const Layout* layout : {&overlay.from, &overlay.to}) {
      for (const Part& part : layout->parts) {
        for (const Replicas& addend : part.addends) devices.insert(devices.end(), addend.begin(), addend.end());
      }
    }
    return devices;
  }

  void serve(const Cell& cell) {
    ++now_;
    source_ = alternatives(overlay_.from, overlay_.sources(cell));
    const std::vector<Alternative> destination = alternatives(overlay_.to, overlay_.destinations(cell));
    mark_places();
    requirers_.clear();
    for (const Alternative& alternative : destination) {
      if (alternative.size() > 1) {
        serve_partial(cell.box, alternative);
      } else {
        requirers_.insert(requirers_.end(), alternative[0]->begin(), alternative[0]->end());
      }
    }
    if (!sums_.empty()) settle_sums();
    if (requirers_.empty()) return;
    const std::size_t fewest = fewest_addends(source_);
    if (source_[fewest].size() == 1) {
      copy(cell.box);
    } else {
      reduce(cell.box, fewest, destination);
    }
  }

  void mark_places() {
    for (std::uint32_t s = 0; s < source_.size(); ++s) {
      for (std::uint32_t a = 0; a < source_[s].size(); ++a) {
        const Replicas& replicas = *source_[s][a];
        for (std::uint32_t r = 0; r < replicas.size(); ++r) places_[index_.at(replicas[r])] = {now_, s, a, r};
      }
    }
  }

  [[nodiscard]] const Place* place(Device device) const {
    const Place& p = places_[index_.at(device)];
    return p.cell == now_ ? &p : nullptr;
  }

  void copy(const Box& box) {
    Job job;
    job.box = box;
    for (const Device d : requirers_) {
      const Place* p = place(d);
      (p != nullptr && source_[p->alternative].size() == 1 ? job.keepers : job.requirers).push_back(d);
    }
    for (const Alternative& alternative : source_) {
      if (alternative.size() == 1)
        job.holders.insert(job.holders.end(), alternative[0]->begin(), alternative[0]->end());
    }
    if (job.requirers.empty()) {
      for (const Device d : job.keepers) result_.settled.push_back({box, {d}, {d}});
      return;
    }
    job.bytes = volume(box) * element_bytes_;
    result_.jobs.push_back(std::move(job));
  }

  void reduce(const Box& box, std::size_t fewest, const std::vector<Alternative>& destination) {
    std::vector<std::vector<Device>> takers(source_.size());
    for (const Device d : requirers_) {
      const Place* p = place(d);
      const bool own = policy_.sums == AssignPolicy::Sums::kOwn && p != nullptr &&
                       source_[p->alternative].size() - 1 <= source_[fewest].size();
      takers[own ? p->alternative : fewest].push_back(d);
    }
    for (std::size_t s = 0; s < source_.size(); ++s) {
      if (!takers[s].empty()) reduce_for(box, s, takers[s], destination);
    }
  }

  void reduce_for(const Box& box, std::size_t s, const std::vector<Device>& takers,
                  const std::vector<Alternative>& destination) {
    const Alternative& source = source_[s];
    std::vector<Device> inside;  // of S and T
    for (const Device d : takers) {
      const Place* p = place(d);
      if (p != nullptr && p->alternative == s) inside.push_back(d);
    }
    if (inside.size() == takers.size() && all_reduced(box, source, takers)) return;
    if (takers.size() == 1 || (source.size() == 2 && inside.size() == takers.size())) {
      for (const Device d : takers) result_.settled.push_back({box, reducing_group(source, replica(d)), {d}});
      return;
    }
    reduce_then_copy(box, source, takers, inside.empty() ? reducers(source, takers, destination) : inside);
  }

  // Of the addends that a device sums: those that stand where it does; one from outside takes its turn.
  [[nodiscard]] std::size_t replica(Device device) {
    const Place* p = place(device);
    return p == nullptr ? turn_++ : p->replica;
  }

  // When the takers make up whole reducing groups, each of these sums.
  bool all_reduced(const Box& box, const Alternative& source, const std::vector<Device>& takers) {
    if (takers.size() < source.size() || takers.size() % source.size() != 0) return false;
    std::size_t count = source.front()->size();
    for (const Replicas* addend : source) count = std::min(count, addend->size());
    ++stamp_;
    for (const Device d : takers) taken_[index_.at(d)] = stamp_;
    std::vector<std::size_t> complete;
    for (std::size_t r = 0; r < count; ++r) {
      const bool all = std::all_of(source.begin(), source.end(),
                                   [&](const Replicas* addend) { return taken_[index_.at((*addend)[r])] == stamp_; });
      if (all) complete.push_back(r);
    }
    if (complete.size() * source.size() != takers.size()) return false;
    for (const std::size_t r : complete) {
      std::vector<Device> group = reducing_group(source, r);
      result_.settled.push_back({box, group, group});
    }
    return true;
  }

  // Where S and T do not meet. A device cannot hold an addend of its own beside the sum.
  std::vector<Device> reducers(const Alternative& source, const std::vector<Device>& takers,
                               const std::vector<Alternative>& destination) {
    if (policy_.reducers == AssignPolicy::Reducers::kDestination) return takers;
    ++stamp_;
    for (const Alternative& alternative : destination) {
      if (alternative.size() == 1) continue;
      for (const Replicas* addend : alternative) {
        for (const Device d : *addend) taken_[index_.at(d)] = stamp_;
      }
    }
    // The other takers' reducers may hold the cell too.
    for (const Device d : requirers_) taken_[index_.at(d)] = stamp_;
    std::vector<Device> free;
    for (const Replicas* addend : source) {
      for (const Device d : *addend) {
        if (taken_[index_.at(d)] != stamp_) free.push_back(d);
      }
    }
    return free.empty() ? takers : free;
  }

  void reduce_then_copy(const Box& box, const Alternative& source, const std::vector<Device>& takers,
                        const std::vector<Device>& reducers) {
    const auto count = static_cast<std::int64_t>(reducers.size());
    const std::int64_t worth = std::max<std::int64_t>(volume(box) * element_bytes_ / kLeastPartBytes, 1);
    const std::vector<Box> parts = sliced(box, std::min(count, worth));
    for (const Box& part : parts) {
      // In turn, so that many small cells share the work.
      const Device reducer = reducers[turn_++ % reducers.size()];
      result_.sums.push_back({part, reducing_group(source, replica(reducer)), {reducer}});
      result_.copies.push_back({part, {reducer}, takers});
    }
  }

  // The destination addend of each source addend of an alternative, and how many replicas lack theirs.
  struct Placement {
    std::vector<std::size_t> at;
    std::size_t moved = 0;
  };
  [[nodiscard]] Placement place_addends(std::uint32_t s, const Alternative& destination) const {
    const std::size_t count = source_[s].size();
    Placement result;
    std::vector<std::size_t> lacking;
    for (std::size_t a = 0; a < count; ++a) {
      result.at.push_back(a % destination.size());
      lacking.push_back(destination[a % destination.size()]->size());
    }
    std::vector<std::uint32_t> held;
    for (std::size_t b = 0; b < destination.size(); ++b) {
      held.clear();
      for (const Device d : *destination[b]) {
        const Place* p = place(d);
        if (p != nullptr && p->alternative == s) held.push_back(p->addend);
      }
      std::sort(held.begin(), held.end());
      for (std::size_t i = 0; i < held.size();) {
        const std::uint32_t a = held[i];
        const std::size_t first = i;
        while (i < held.size() && held[i] == a) ++i;
        const std::size_t lacks = destination[b]->size() - (i - first);
        if (lacks > lacking[a] || (lacks == lacking[a] && result.at[a] <= b)) continue;
        lacking[a] = lacks;
        result.at[a] = b;
      }
    }
    for (const std::size_t n : lacking) result.moved += n;
    return result;
  }

  void serve_partial(const Box& box, const Alternative& destination) {
    std::uint32_t chosen = 0;
    Placement best = place_addends(0, destination);
    for (std::uint32_t s = 1; s < source_.size() && best.moved > 0; ++s) {
      Placement other = place_addends(s, destination);
      if (other.moved >= best.moved) continue;
      best = std::move(other);
      chosen = s;
    }
    const Alternative& source = source_[chosen];
    std::vector<std::vector<std::uint32_t>> addends(destination.size());  // of the source, by destination addend
    for (std::uint32_t a = 0; a < source.size(); ++a) addends[best.at[a]].push_back(a);
    for (std::size_t b = 0; b < destination.size(); ++b) {
      for (std::size_t r = 0; r < destination[b]->size(); ++r) {
        const Device d = (*destination[b])[r];
        const Place* p = place(d);
        Move move{box, {}, {d}};
        for (const std::uint32_t a : addends[b]) {
          const bool own = p != nullptr && p->alternative == chosen && p->addend == a;
          move.sources.push_back(own ? d : (*source[a])[r % source[a]->size()]);
        }
        (move.sources.size() > 1 ? sums_ : result_.settled).push_back(std::move(move));
      }
    }
  }

  // Addends of the cell that are added for others in turn are one all-reduce.
  void settle_sums() {
    std::map<std::vector<Device>, std::vector<Move>> by_sources;
    for (Move& move : sums_) {
      std::vector<Device> sources = move.sources;
      std::sort(sources.begin(), sources.end());
      by_sources[std::move(sources)].push_back(std::move(move));
    }
    sums_.clear();
    for (auto& [sources, moves] : by_sources) {
      std::vector<Device> destinations;
      for (const Move& move : moves) destinations.push_back(move.destinations.front());
      std::sort(destinations.begin(), destinations.end());
      if (destinations == sources) {
        result_.settled.push_back({moves.front().box, moves.front().sources, moves.front().sources});
      } else {
        std::move(moves.begin(), moves.end(), std::back_inserter(result_.settled));
      }
    }
  }

  const Overlay& overlay_;
  std::int64_t element_bytes_;
  AssignPolicy policy_;
  DeviceIndex index_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> taken_;  // by a set's stamp
  std::uint32_t stamp_ = 0;
  std::uint32_t now_ = 0;
  std::size_t turn_ = 0;
  std::vector<Alternative> source_;
  std::vector<Device> requirers_;
  std::vector<Move> sums_;  // towards Partial
  Assignment result_;
};

}  // namespace

std::vector<Box> sliced(const Box& box, std::int64_t parts) {
  if (box.empty() || parts <= 1) return {box};
  std::size_t dim = 0;
  for (std::size_t d = 1; d < box.size(); ++d) {
    if (box[d].size() > box[dim].size()) dim = d;
  }
  for (std::size_t d = 0; d < box.size(); ++d) {
    if (box[d].size() < parts * 8) continue;
    dim = d;
    break;
  }
  const auto count = static_cast<int>(std::min(parts, box[dim].size()));
  std::vector<Box> result(static_cast<std::size_t>(count), box);
  for (int i = 0; i < count; ++i) {
    const Interval part = cut(box[dim].size(), i, count, {});
    result[static_cast<std::size_t>(i)][dim] = {box[dim].begin + part.begin, box[dim].begin + part.end};
  }
  return result;
}

Assignment assign(const Overlay& overlay, int element_bytes, AssignPolicy policy) {
  return Assigner(overlay, element_bytes, policy).run();
}

std::vector<AssignPolicy> policies(const Overlay& overlay) {
  std::vector<AssignPolicy> result = {{}};
  bool sums = false;
  bool several = false;
  for (const Cell& cell : overlay.cells) {
    const std::vector<Alternative> source = alternatives(overlay.from, overlay.sources(cell));
    if (source[fewest_addends(source)].size() == 1) continue;
    sums = true;
    several = several || source.size() > 1;
  }
  if (!sums) return result;
  result.push_back({AssignPolicy::Sums::kOwn, AssignPolicy::Reducers::kDestination});
  if (several) result.push_back({AssignPolicy::Sums::kFewest, AssignPolicy::Reducers::kSource});
  return result;
}

}  // namespace hspmd::comm
