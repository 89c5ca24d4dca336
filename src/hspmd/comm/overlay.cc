#include "hspmd/comm/overlay.h"

#include <algorithm>

namespace hspmd::comm {
namespace {

using Cuts = std::vector<std::vector<std::int64_t>>;

// Visits the row-major indices of the grid cells inside a box.
template <typename Visit>
void for_each_cell(const Box& box, const Cuts& cuts, Visit visit) {
  const std::size_t rank = box.size();
  InlineVector<std::int64_t, kMaxRank> first, last, at;
  for (std::size_t d = 0; d < rank; ++d) {
    if (box[d].empty()) return;
    const auto index_of = [&](std::int64_t edge) { return std::lower_bound(cuts[d].begin(), cuts[d].end(), edge) - cuts[d].begin(); };
    first.push_back(index_of(box[d].begin));
    last.push_back(index_of(box[d].end));
  }
  at = first;
  while (true) {
    std::int64_t linear = 0;
    for (std::size_t d = 0; d < rank; ++d) linear = linear * static_cast<std::int64_t>(cuts[d].size() - 1) + at[d];
    visit(static_cast<std::size_t>(linear));
    std::size_t d = rank;
    while (d > 0 && ++at[d - 1] == last[d - 1]) {
      at[d - 1] = first[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

void add_side(std::vector<Cell>& cells, Side Cell::*side, const Annotation& annotation, const Shape& shape, const Cuts& cuts) {
  const bool merged = annotation.top() && is_partial(annotation.top()->placement);
  // The addends that a cell has from the subgroups before: where the merged alternative goes on.
  std::vector<std::size_t> base(merged ? cells.size() : 0, 0);
  std::vector<int> seen(cells.size(), -1);  // the last subgroup that holds the cell
  for (std::size_t k = 0; k < annotation.subgroups().size(); ++k) {
    const Subgroup& subgroup = annotation.subgroups()[k];
    const auto addends = static_cast<std::size_t>(subgroup.addends());
    for (std::size_t p = 0; p < subgroup.devices().size(); ++p) {
      const Shard shard = shard_at(annotation, static_cast<int>(k), static_cast<int>(p), shape);
      for_each_cell(shard.box, cuts, [&](std::size_t c) {
        Side& alternatives = cells[c].*side;
        if (seen[c] != static_cast<int>(k)) {
          seen[c] = static_cast<int>(k);
          if (!merged || alternatives.empty()) alternatives.emplace_back();
          if (merged) base[c] = alternatives.back().size();
          alternatives.back().resize((merged ? base[c] : 0) + addends);
        }
        alternatives.back()[(merged ? base[c] : 0) + static_cast<std::size_t>(shard.addend)].push_back(subgroup.devices()[p]);
      });
    }
  }
}

}  // namespace

Cuts boundaries(const Annotation& from, const Annotation& to, const Shape& shape) {
  Cuts cuts(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) cuts[d] = {0, shape[d]};
  for (const Annotation* annotation : {&from, &to}) {
    for (std::size_t k = 0; k < annotation->subgroups().size(); ++k) {
      const std::size_t devices = annotation->subgroups()[k].devices().size();
      for (std::size_t p = 0; p < devices; ++p) {
        const Shard shard = shard_at(*annotation, static_cast<int>(k), static_cast<int>(p), shape);
        for (std::size_t d = 0; d < shape.size(); ++d) {
          if (shard.box[d].size() == shape[d]) continue;
          cuts[d].push_back(shard.box[d].begin);
          cuts[d].push_back(shard.box[d].end);
        }
      }
    }
  }
  for (auto& edges : cuts) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  }
  return cuts;
}

std::vector<Cell> overlay(const Annotation& from, const Annotation& to, const Shape& shape) {
  const Cuts cuts = boundaries(from, to, shape);
  if (volume(shape) == 0) return {};
  std::size_t count = 1;
  for (const auto& edges : cuts) count *= edges.size() - 1;
  std::vector<Cell> cells(count);
  for (std::size_t c = 0; c < count; ++c) {
    std::size_t rest = c;
    cells[c].box = whole(shape);
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::size_t i = rest % (cuts[d].size() - 1);
      rest /= cuts[d].size() - 1;
      cells[c].box[d] = {cuts[d][i], cuts[d][i + 1]};
    }
  }
  add_side(cells, &Cell::source, from, shape, cuts);
  add_side(cells, &Cell::destination, to, shape, cuts);
  return cells;
}

}  // namespace hspmd::comm
