#include "hspmd/comm/one_sum.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace hspmd::comm {
namespace {

// A value by how it came about: equal numbers are equal bits.
using Origin = std::uint64_t;

Origin mix(Origin a, Origin b) {
  Origin x = a * 0x9E3779B97F4A7C15U + b + 0x7F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

using Origins = std::unordered_map<Device, Origin>;

class Tracer {
 public:
  Tracer(const CommPlan& plan, const Relayout& r) : plan_(plan), r_(r) {
    cuts_.resize(r.shape.size());
    for (const Annotation* annotation : {r.from, r.to}) {
      for (const Device d : devices_of(*annotation)) add_cuts(owned(*annotation, d, r.shape)->box);
    }
    for (const CommStage& stage : plan.stages) {
      for (const CommGroup& group : stage.groups) {
        for (const Move& move : group.moves) add_cuts(move.box);
      }
    }
  }

  // Every cell of the grid that all boxes together cut, by its first element.
  bool run() { return try_cells({}); }

 private:
  void add_cuts(const Box& box) {
    if (volume(box) == 0) return;
    for (std::size_t d = 0; d < box.size(); ++d) cuts_[d].insert(box[d].begin);
  }

  bool try_cells(const Box& cell) {
    const std::size_t d = cell.size();
    if (d == cuts_.size()) return one_at(cell);
    return std::all_of(cuts_[d].begin(), cuts_[d].end(), [&](std::int64_t begin) {
      Box longer = cell;
      longer.push_back({begin, begin + 1});
      return try_cells(longer);
    });
  }

  bool one_at(const Box& cell) const {
    Origins now = origins_before(cell);
    for (const CommStage& stage : plan_.stages) {
      Origins next;
      for (const CommGroup& group : stage.groups) {
        for (const Move& move : group.moves) {
          if (!contains(move.box, cell)) continue;
          const Origin origin = origin_of(move, now);
          for (const Device d : move.destinations) next[d] = origin;
        }
      }
      now = std::move(next);
    }
    return copies_agree(cell, now);
  }

  static Origin origin_of(const Move& move, const Origins& now) {
    if (move.sources.size() == 1) return now.at(move.sources.front());
    Origin origin = 0;
    for (const Device s : move.sources) origin = mix(origin, now.at(s));
    return origin;
  }

  static std::size_t addends(const Annotation& annotation, const Shard& shard) {
    return static_cast<std::size_t>(annotation.subgroups()[static_cast<std::size_t>(shard.subgroup)].addends());
  }
  static bool sums_at_top(const Annotation& annotation) {
    return annotation.top() && is_partial(annotation.top()->placement);
  }

  // Copies of one thing are equal; addends differ. Subgroups that are copies of each other, and cut alike into addends,
  // have equal ones.
  Origins origins_before(const Box& cell) const {
    Origins origins;
    for (const Device d : devices_of(*r_.from)) {
      const Shard shard = *owned(*r_.from, d, r_.shape);
      if (!contains(shard.box, cell)) continue;
      const Origin group = sums_at_top(*r_.from) ? static_cast<Origin>(shard.subgroup) + 1 : 0;
      origins[d] = mix(mix(group, addends(*r_.from, shard)), static_cast<Origin>(shard.addend));
    }
    return origins;
  }

  // Subgroups that are copies of each other, as unlike sums.
  [[nodiscard]] bool unlike_copies() const {
    const auto& subgroups = r_.from->subgroups();
    return !sums_at_top(*r_.from) && std::any_of(subgroups.begin(), subgroups.end(), [&](const Subgroup& s) {
      return s.addends() != subgroups.front().addends();
    });
  }

  bool copies_agree(const Box& cell, const Origins& after) const {
    const bool apart = unlike_copies();
    std::unordered_map<Origin, Origin> seen;
    for (const Device d : devices_of(*r_.to)) {
      const Shard shard = *owned(*r_.to, d, r_.shape);
      if (!contains(shard.box, cell)) continue;
      const bool by_subgroup = apart || sums_at_top(*r_.to) || addends(*r_.to, shard) > 1;
      const Origin value =
          by_subgroup ? mix(static_cast<Origin>(shard.subgroup) + 1, static_cast<Origin>(shard.addend)) : 0;
      const auto [known, fresh] = seen.try_emplace(value, after.at(d));
      if (!fresh && known->second != after.at(d)) return false;
    }
    return true;
  }

  const CommPlan& plan_;
  const Relayout& r_;
  std::vector<std::set<std::int64_t>> cuts_;  // by dim
};

}  // namespace

bool one_sum(const CommPlan& plan, const Relayout& r) {
  return !reduction_of(*r.from) || volume(r.shape) == 0 || Tracer(plan, r).run();
}

}  // namespace hspmd::comm
