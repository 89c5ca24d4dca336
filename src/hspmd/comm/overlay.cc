#include "hspmd/comm/overlay.h"

#include <algorithm>

namespace hspmd::comm {
namespace {

// What a small text may ask for: an all-to-all of 1,024 devices, an all-gather of 8,192.
constexpr std::size_t kMaxMentions = std::size_t{1} << 21;        // of parts in cells
constexpr std::size_t kMaxDeviceMentions = std::size_t{1} << 26;  // of devices in cells

// The coordinates of a position over the Split axes alone: positions that share them hold the same box.
std::size_t split_coordinate(const Subgroup& subgroup, std::size_t position) {
  std::size_t coordinate = 0;
  std::size_t stride = subgroup.devices().size();
  for (const Axis& axis : subgroup.axes()) {
    const auto degree = static_cast<std::size_t>(axis.degree);
    stride /= degree;
    if (is_split(axis.placement)) coordinate = coordinate * degree + position / stride % degree;
  }
  return coordinate;
}

std::size_t split_parts(const Subgroup& subgroup) {
  std::size_t count = 1;
  for (const Axis& axis : subgroup.axes())
    count *= is_split(axis.placement) ? static_cast<std::size_t>(axis.degree) : 1;
  return count;
}

void add_parts(std::vector<Part>& parts, const Annotation& annotation, int k, const Shape& shape) {
  const Subgroup& subgroup = annotation.subgroups()[static_cast<std::size_t>(k)];
  const auto addends = static_cast<std::size_t>(subgroup.addends());
  const std::size_t first = parts.size();
  parts.resize(first + split_parts(subgroup));
  for (std::size_t p = 0; p < subgroup.devices().size(); ++p) {
    const Shard shard = shard_at(annotation, k, static_cast<int>(p), shape);
    Part& part = parts[first + split_coordinate(subgroup, p)];
    if (part.addends.empty()) {
      part.box = shard.box;
      part.addends.resize(addends);
    }
    part.addends[static_cast<std::size_t>(shard.addend)].push_back(subgroup.devices()[p]);
  }
}

Layout layout(const Annotation& annotation, const Shape& shape) {
  Layout result;
  const bool sums = annotation.top() && is_partial(annotation.top()->placement);
  result.subgroups = sums ? Subgroups::kAddends : Subgroups::kAlternatives;
  for (std::size_t k = 0; k < annotation.subgroups().size(); ++k)
    add_parts(result.parts, annotation, static_cast<int>(k), shape);
  std::erase_if(result.parts, [](const Part& part) { return volume(part.box) == 0; });
  return result;
}

// Cuts dim after dim, each time only where the parts still in play begin and end.
class Sweep {
 public:
  explicit Sweep(Overlay& overlay)
      : overlay_(overlay), sources_(static_cast<std::uint32_t>(overlay.from.parts.size())) {
    for (const Layout* layout : {&overlay.from, &overlay.to}) {
      for (const Part& part : layout->parts) {
        std::size_t devices = 0;
        for (const auto& addend : part.addends) devices += addend.size();
        devices_of_part_.push_back(devices);
      }
    }
  }

  void run(const Shape& shape) {
    box_ = whole(shape);
    std::vector<std::uint32_t> all(overlay_.from.parts.size() + overlay_.to.parts.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
    if (!all.empty()) descend(0, all);
  }

 private:
  // Parts of `from` are numbered first, then those of `to`.
  [[nodiscard]] Interval interval(std::uint32_t part, std::size_t dim) const {
    return part < sources_ ? overlay_.from.parts[part].box[dim] : overlay_.to.parts[part - sources_].box[dim];
  }

  void descend(std::size_t dim, std::span<const std::uint32_t> active) {
    if (dim == box_.size()) {
      emit(active);
      return;
    }
    std::vector<std::int64_t> edges;
    for (const std::uint32_t part : active) {
      const Interval i = interval(part, dim);
      for (const std::int64_t edge : {i.begin, i.end}) {
        if (edges.empty() || edges.back() != edge) edges.push_back(edge);
      }
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    if (edges.size() == 2) {
      box_[dim] = {edges[0], edges[1]};
      descend(dim + 1, active);
      return;
    }
    cut_at(edges, dim, active);
  }

  void cut_at(const std::vector<std::int64_t>& edges, std::size_t dim, std::span<const std::uint32_t> active) {
    const auto index_of = [&](std::int64_t edge) {
      return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), edge) - edges.begin());
    };
    std::vector<std::size_t> begin(edges.size() + 1, 0);  // of each interval's parts, one place late
    std::vector<std::pair<std::size_t, std::size_t>> spans;
    spans.reserve(active.size());
    std::size_t mentions = 0;  // each will be in a cell of its own, so this refuses nothing that emit() would take
    for (const std::uint32_t part : active) {
      const Interval i = interval(part, dim);
      spans.emplace_back(index_of(i.begin), index_of(i.end));
      mentions += spans.back().second - spans.back().first;
      if (mentions > kMaxMentions) refuse();
      for (std::size_t at = spans.back().first; at < spans.back().second; ++at) ++begin[at + 2];
    }
    for (std::size_t i = 2; i < begin.size(); ++i) begin[i] += begin[i - 1];
    std::vector<std::uint32_t> parts(begin.back());
    for (std::size_t a = 0; a < active.size(); ++a) {
      for (std::size_t at = spans[a].first; at < spans[a].second; ++at) parts[begin[at + 1]++] = active[a];
    }
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      box_[dim] = {edges[i], edges[i + 1]};
      descend(dim + 1, {parts.data() + begin[i], parts.data() + begin[i + 1]});
    }
  }

  void emit(std::span<const std::uint32_t> active) {
    Cell cell;
    cell.box = box_;
    cell.first = static_cast<std::uint32_t>(overlay_.parts.size());
    cell.middle = cell.first;
    for (const std::uint32_t part : active) {
      cell.middle += part < sources_ ? 1 : 0;
      overlay_.parts.push_back(part < sources_ ? part : part - sources_);
      devices_ += devices_of_part_[part];
    }
    if (overlay_.parts.size() > kMaxMentions || devices_ > kMaxDeviceMentions) refuse();
    cell.last = static_cast<std::uint32_t>(overlay_.parts.size());
    overlay_.cells.push_back(cell);
  }

  [[noreturn]] static void refuse() {
    invalid(
        "[resolve] the two layouts cut the tensor into more pieces than can be resolved: at most 2^21 mentions of a "
        "shard, 2^26 of a device. Fewer devices or fewer cuts would mend it.");
  }

  Overlay& overlay_;
  std::uint32_t sources_;
  std::vector<std::size_t> devices_of_part_;
  std::size_t devices_ = 0;  // of all cells so far
  Box box_;
};

}  // namespace

Overlay overlay(const Annotation& from, const Annotation& to, const Shape& shape) {
  Overlay result{layout(from, shape), layout(to, shape), {}, {}};
  Sweep(result).run(shape);
  return result;
}

}  // namespace hspmd::comm
