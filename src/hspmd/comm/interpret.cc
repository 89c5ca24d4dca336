#include "hspmd/comm/interpret.h"

#include <algorithm>
#include <optional>
#include <set>

namespace hspmd::comm {
namespace {

// The index of a global element inside a box, if it is there.
std::optional<std::size_t> local_index(const Box& box, std::size_t global, const Shape& shape) {
  std::size_t index = 0;
  std::size_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto at = static_cast<std::int64_t>(global % static_cast<std::size_t>(shape[d]));
    global /= static_cast<std::size_t>(shape[d]);
    if (at < box[d].begin || at >= box[d].end) return std::nullopt;
    index += static_cast<std::size_t>(at - box[d].begin) * stride;
    stride *= static_cast<std::size_t>(box[d].size());
  }
  return index;
}

std::int64_t held(const Holdings& holdings, Device device, std::size_t global, const Shape& shape) {
  const auto found = holdings.find(device);
  if (found != holdings.end()) {
    for (const Piece& piece : found->second) {
      if (const auto i = local_index(piece.box, global, shape)) return piece.data[*i];
    }
  }
  throw InternalError(
      fmt::format("[interpret] a source must hold what it sends; device {} lacks element {}", device, global));
}

std::int64_t combined(const Move& move, const Holdings& before, std::size_t global, const Shape& shape,
                      Reduction reduction) {
  std::int64_t value = reduction == Reduction::kSum ? 0 : kMinusInfinity;
  for (const Device s : move.sources) {
    const std::int64_t part = held(before, s, global, shape);
    value = reduction == Reduction::kSum ? value + part : std::max(value, part);
  }
  return value;
}

// Every device of `to` holds exactly its shard, in pieces that do not overlap, as one piece afterwards.
Holdings assembled(const Annotation& to, const Holdings& pieces, const Shape& shape) {
  Holdings whole;
  const std::vector<Device> devices = devices_of(to);
  for (const auto& [device, list] : pieces) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end() && !list.empty()) {
      throw InternalError(fmt::format("[interpret] device {} must receive nothing", device));
    }
  }
  for (const Device device : devices) {
    const Box box = owned(to, device, shape)->box;
    Piece piece{box, {}};
    const auto found = pieces.find(device);
    std::int64_t elements = 0;
    if (found != pieces.end()) {
      for (const Piece& part : found->second) {
        if (!contains(box, part.box))
          throw InternalError(fmt::format("[interpret] device {} must receive only its shard", device));
        elements += volume(part.box);
      }
    }
    if (elements != volume(box))
      throw InternalError(fmt::format("[interpret] device {} must receive its shard once", device));
    for (std::size_t i = 0; i < static_cast<std::size_t>(volume(box)); ++i) {
      piece.data.push_back(held(pieces, device, element_at(box, i, shape), shape));
    }
    whole[device].push_back(std::move(piece));
  }
  return whole;
}

}  // namespace

Holdings interpret(const CommPlan& plan, const Holdings& before, const Shape& shape) {
  Holdings now = before;
  for (const CommStage& stage : plan.stages) {
    Holdings next;
    for (const CommGroup& group : stage.groups) {
      for (const Move& move : group.moves) {
        Piece piece{move.box, {}};
        for (std::size_t i = 0; i < static_cast<std::size_t>(volume(move.box)); ++i) {
          piece.data.push_back(combined(move, now, element_at(move.box, i, shape), shape, plan.reduction));
        }
        for (const Device d : move.destinations) next[d].push_back(piece);
      }
    }
    now = stage.to ? assembled(*stage.to, next, shape) : next;
  }
  return now;
}

std::vector<std::int64_t> meaning(const Annotation& annotation, const Holdings& holdings, const Shape& shape) {
  const bool max = reduction_of(annotation) == Reduction::kMax;
  const bool merged = annotation.top() && is_partial(annotation.top()->placement);
  const auto elements = static_cast<std::size_t>(volume(shape));
  // By alternative and addend, then combined.
  std::map<int, std::map<std::pair<int, int>, std::vector<std::optional<std::int64_t>>>> values;
  for (const Device d : devices_of(annotation)) {
    const Shard shard = *owned(annotation, d, shape);
    auto& slot = values[merged ? 0 : shard.subgroup][{shard.subgroup, shard.addend}];
    slot.resize(elements);
    for (std::size_t i = 0; i < static_cast<std::size_t>(volume(shard.box)); ++i) {
      const std::size_t global = element_at(shard.box, i, shape);
      const std::int64_t value = held(holdings, d, global, shape);
      if (slot[global] && *slot[global] != value) throw InternalError("[interpret] copies must agree");
      slot[global] = value;
    }
  }
  std::vector<std::optional<std::int64_t>> whole(elements);
  for (const auto& [alternative, addends] : values) {
    for (std::size_t e = 0; e < elements; ++e) {
      std::optional<std::int64_t> value;
      for (const auto& [key, slot] : addends) {
        if (!slot[e]) continue;
        value = !value ? *slot[e] : max ? std::max(*value, *slot[e]) : *value + *slot[e];
      }
      if (!value) continue;
      if (whole[e] && *whole[e] != *value) throw InternalError("[interpret] subgroups must agree");
      whole[e] = value;
    }
  }
  std::vector<std::int64_t> result;
  for (const auto& value : whole) {
    if (!value) throw InternalError("[interpret] every element must be held");
    result.push_back(*value);
  }
  return result;
}

}  // namespace hspmd::comm
