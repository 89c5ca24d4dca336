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
  Localiser(const CommPlan& plan, const Annotation& from, const Annotation& to, const Shape& shape, Device device)
      : plan_(plan), from_(from), to_(to), shape_(shape), device_(device) {}

  LocalExchange run() {
    result_.reduction = plan_.reduction;
    result_.states = static_cast<int>(plan_.stages.size()) + 1;
    result_.rounds.resize(2 * plan_.stages.size());
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      for (int phase = 0; phase < 2; ++phase) {
        Round& round = result_.rounds[2 * s + static_cast<std::size_t>(phase)];
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
      add_two_phase(s, move);
      return;
    }
    const bool own_copy = move.sources.size() == 1 && move.sources.front() == device_ && reads;
    if (!own_copy) one_place_ = false;
    if (reads) pull(2 * s, state, move.box, move.sources);
    if (!shows) return;
    for (const Device reader : move.destinations) show(2 * s, state, {reader, move.box});
  }

  void add_two_phase(std::size_t s, const Move& move) {
    const auto state = static_cast<int>(s);
    const std::size_t n = move.sources.size();
    for (std::size_t i = 0; i < n; ++i) {
      const Box part = *part_of(move.box, i, n);
      if (move.sources[i] == device_) {
        pull(2 * s, state, part, move.sources);
      } else {
        pull(2 * s + 1, state + 1, part, {move.sources[i]});
      }
    }
    const auto me =
        static_cast<std::size_t>(std::find(move.sources.begin(), move.sources.end(), device_) - move.sources.begin());
    const Box mine = *part_of(move.box, me, n);
    for (std::size_t i = 0; i < n; ++i) {
      show(2 * s, state, {move.sources[i], *part_of(move.box, i, n)});
      show(2 * s + 1, state + 1, {move.sources[i], mine});
    }
  }

  void show(std::size_t round, int state, Shown shown) {
    if (shown.reader == device_) return;
    readers_[round].insert(shown.reader);
    result_.rounds[round].shows = state;
    result_.rounds[round].shown.push_back(std::move(shown));
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
  LocalExchange result_;
  bool one_place_ = true;  // so far
  std::map<std::pair<int, Device>, Pieces> pieces_;
  std::map<std::size_t, std::set<Device>> readers_;
};

}  // namespace

LocalExchange local_exchange(const CommPlan& plan, const Annotation& from, const Annotation& to, const Shape& shape,
                             Device device) {
  return Localiser(plan, from, to, shape, device).run();
}

}  // namespace hspmd
