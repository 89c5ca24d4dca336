// The interpreter: runs a CommPlan on integer shards, one element at a time. The oracle of resolution.
#pragma once

#include <map>
#include <vector>

#include "hspmd/comm/comm_plan.h"

namespace hspmd::comm {

struct Piece {
  Box box;
  std::vector<std::int64_t> data;  // row-major over the box
};
using Holdings = std::map<Device, std::vector<Piece>>;  // what every device holds

inline constexpr std::int64_t kMinusInfinity = std::int64_t{-1} << 40;  // the neutral element of a max

// Runs all stages. Throws InternalError when a move reads what its source does not hold, or when after a stage with
// a `to` some device does not hold exactly its whole shard.
[[nodiscard]] Holdings interpret(const CommPlan& plan, const Holdings& before, const Shape& shape);

// The tensor that holdings laid out as `annotation` mean. Throws InternalError where copies differ.
[[nodiscard]] std::vector<std::int64_t> meaning(const Annotation& annotation, const Holdings& holdings,
                                                const Shape& shape);

// Shards of `tensor` laid out as `annotation`; `random` draws the addends of a Partial.
template <typename Random>
[[nodiscard]] Holdings lay_out(const Annotation& annotation, const std::vector<std::int64_t>& tensor,
                               const Shape& shape, Random random);

// Row-major index in the whole tensor of element i of a box.
[[nodiscard]] inline std::size_t element_at(const Box& box, std::size_t i, const Shape& shape) {
  return static_cast<std::size_t>(global_index(box, static_cast<std::int64_t>(i), shape));
}

template <typename Random>
Holdings lay_out(const Annotation& annotation, const std::vector<std::int64_t>& tensor, const Shape& shape,
                 Random random) {
  const bool max = reduction_of(annotation) == Reduction::kMax;
  const bool merged = annotation.top() && is_partial(annotation.top()->placement);
  // The addends that carry a value, by element: all but the last draw at random, the last makes the sum.
  std::map<std::pair<int, int>, std::vector<std::int64_t>> addends;
  Holdings holdings;
  const auto groups = static_cast<int>(annotation.subgroups().size());
  for (int first = 0; first < groups; first = merged ? groups : first + 1) {
    std::vector<std::pair<int, int>> keys;
    for (int k = first; k < (merged ? groups : first + 1); ++k) {
      for (int a = 0; a < annotation.subgroups()[static_cast<std::size_t>(k)].addends(); ++a) keys.emplace_back(k, a);
    }
    std::vector<std::int64_t> rest = tensor;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      std::vector<std::int64_t>& values = addends[keys[i]];
      values = rest;
      if (i + 1 == keys.size()) break;
      for (std::size_t e = 0; e < rest.size(); ++e) {
        const std::int64_t draw = random();
        values[e] = max ? tensor[e] - (draw < 0 ? -draw : draw) : draw;
        if (!max) rest[e] -= draw;
      }
    }
  }
  for (const Device d : devices_of(annotation)) {
    const Shard shard = *owned(annotation, d, shape);
    Piece piece{shard.box, {}};
    for (std::size_t i = 0; i < static_cast<std::size_t>(volume(shard.box)); ++i) {
      piece.data.push_back(addends[{shard.subgroup, shard.addend}][element_at(shard.box, i, shape)]);
    }
    holdings[d].push_back(std::move(piece));
  }
  return holdings;
}

}  // namespace hspmd::comm
