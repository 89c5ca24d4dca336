#include "hspmd/annotation/annotation.h"

#include <algorithm>
#include <numeric>

namespace hspmd {
namespace {

__extension__ using Wide = __int128;  // sizes times weights

constexpr std::int64_t kMaxWeight = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDevices = std::int64_t{1} << 24;

Weights canonical(Weights weights) {
  if (weights.empty()) return weights;
  if (std::all_of(weights.begin(), weights.end(), [&](std::int64_t w) { return w == weights.front(); })) return {};
  const std::int64_t divisor =
      std::accumulate(weights.begin(), weights.end(), std::int64_t{0}, std::gcd<std::int64_t, std::int64_t>);
  for (std::int64_t& w : weights) w /= divisor;
  return weights;
}

std::vector<Axis> canonical(std::vector<Axis> axes) {
  std::vector<Axis> result;
  for (Axis& axis : axes) {
    if (axis.degree == 1) continue;
    axis.weights = canonical(std::move(axis.weights));
    if (!result.empty() && !is_split(axis.placement) && result.back().placement == axis.placement) {
      result.back().degree *= axis.degree;
    } else {
      result.push_back(std::move(axis));
    }
  }
  return result;
}

std::optional<std::string> why_invalid_weights(const Placement& placement, std::size_t parts, const Weights& weights) {
  if (weights.empty()) return std::nullopt;
  if (!is_split(placement)) return "weights stand only after a Split (S)";
  if (weights.size() != parts)
    return fmt::format("a Split in {} must have {} weights, has {}", parts, parts, weights.size());
  for (const std::int64_t w : weights) {
    if (w < 0 || w > kMaxWeight) return fmt::format("a weight must be from 0 to 2^40, is {}", w);
  }
  if (std::all_of(weights.begin(), weights.end(), [](std::int64_t w) { return w == 0; }))
    return "weights must not all be 0";
  return std::nullopt;
}

std::optional<std::string> why_invalid_dim(const Placement& placement) {
  const auto* split = std::get_if<Split>(&placement);
  if (split == nullptr || (split->dim >= 0 && split->dim < static_cast<int>(kMaxRank))) return std::nullopt;
  return fmt::format("a Split dim must be from 0 to {}, is {}", kMaxRank - 1, split->dim);
}

// A repeated device, if any.
std::optional<Device> repeated(std::vector<Device> devices) {
  std::sort(devices.begin(), devices.end());
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  if (twice == devices.end()) return std::nullopt;
  return *twice;
}

std::string devices_text(const std::vector<Device>& devices) {
  std::string text;
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t last = i;
    while (last + 1 < devices.size() && devices[last + 1] == devices[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::format("{}", devices[i]) : fmt::format("{}-{}", devices[i], devices[last]);
    i = last + 1;
  }
  return text;
}

std::string weights_text(const Weights& weights) {
  return weights.empty() ? "" : fmt::format("w{}", fmt::join(weights, ":"));
}

}  // namespace

Interval cut(std::int64_t n, int index, int parts, const Weights& weights) {
  if (weights.empty()) {
    const auto at = [&](std::int64_t i) { return static_cast<std::int64_t>(static_cast<Wide>(n) * i / parts); };
    return {at(index), at(index + 1)};
  }
  Wide before = 0;
  Wide total = 0;
  for (int i = 0; i < parts; ++i) {
    if (i < index) before += weights[static_cast<std::size_t>(i)];
    total += weights[static_cast<std::size_t>(i)];
  }
  check_internal(total > 0, "weights are not all 0");
  const Wide after = before + weights[static_cast<std::size_t>(index)];
  return {static_cast<std::int64_t>(n * before / total), static_cast<std::int64_t>(n * after / total)};
}

std::optional<std::string> why_invalid(const std::vector<Device>& devices, const std::vector<Axis>& axes) {
  if (devices.empty()) return "a subgroup must have a device";
  for (const Device d : devices) {
    if (d < 0 || d >= kMaxDevices) return fmt::format("a device must be from 0 to 2^24 - 1, is {}", d);
  }
  if (const auto twice = repeated(devices)) return fmt::format("a device must stand once, {} stands twice", *twice);
  std::int64_t product = 1;
  std::optional<Partial> partial;
  for (const Axis& axis : axes) {
    if (axis.degree < 1 || axis.degree > kMaxDevices)
      return fmt::format("a degree must be from 1 to 2^24, is {}", axis.degree);
    product = std::min(product * axis.degree, kMaxDevices * 2);
    if (auto why = why_invalid_dim(axis.placement)) return why;
    if (auto why = why_invalid_weights(axis.placement, static_cast<std::size_t>(axis.degree), axis.weights)) return why;
    if (const auto* p = std::get_if<Partial>(&axis.placement)) {
      if (partial && *partial != *p) return "P and Pmax never mix in one annotation";
      partial = *p;
    }
  }
  if (product != static_cast<std::int64_t>(devices.size())) {
    return fmt::format("the axes must multiply to the {} devices of {{{}: ...}}", devices.size(),
                       devices_text(devices));
  }
  return std::nullopt;
}

std::optional<std::string> why_invalid(const std::vector<Subgroup>& subgroups, const std::optional<Top>& top) {
  if (subgroups.empty()) return "an annotation must have a subgroup";
  if (subgroups.size() > 1 && !top)
    return fmt::format("{} subgroups must have a top placement, such as top D", subgroups.size());
  std::vector<Device> all;
  std::optional<Partial> partial;
  const auto mixes = [&](const Placement& placement) {
    const auto* p = std::get_if<Partial>(&placement);
    if (p == nullptr) return false;
    const bool differs = partial && *partial != *p;
    partial = *p;
    return differs;
  };
  for (const Subgroup& subgroup : subgroups) {
    all.insert(all.end(), subgroup.devices().begin(), subgroup.devices().end());
    for (const Axis& axis : subgroup.axes()) {
      if (mixes(axis.placement)) return "P and Pmax never mix in one annotation";
    }
  }
  if (top && mixes(top->placement)) return "P and Pmax never mix in one annotation";
  if (const auto twice = repeated(std::move(all)))
    return fmt::format("subgroups must be disjoint, device {} stands in two", *twice);
  if (!top) return std::nullopt;
  if (auto why = why_invalid_dim(top->placement)) return why;
  return why_invalid_weights(top->placement, subgroups.size(), top->weights);
}

Subgroup::Subgroup(std::vector<Device> devices, std::vector<Axis> axes) : devices_(std::move(devices)) {
  if (const auto why = why_invalid(devices_, axes)) invalid("[annotation] {}", *why);
  axes_ = canonical(std::move(axes));
}

int Subgroup::addends() const {
  int count = 1;
  for (const Axis& axis : axes_) {
    if (is_partial(axis.placement)) count *= axis.degree;
  }
  return count;
}

Annotation::Annotation(Subgroup only) : subgroups_{std::move(only)} {}

Annotation::Annotation(std::vector<Subgroup> subgroups, std::optional<Top> top) : subgroups_(std::move(subgroups)) {
  if (const auto why = why_invalid(subgroups_, top)) invalid("[annotation] {}", *why);
  if (subgroups_.size() == 1) return;
  top_ = std::move(top);
  top_->weights = canonical(std::move(top_->weights));
}

Shard shard_at(const Annotation& annotation, int subgroup, int position, const Shape& shape) {
  Shard shard{whole(shape), subgroup, 0};
  const auto narrow = [&](int dim, int index, int parts, const Weights& weights) {
    if (dim >= static_cast<int>(shape.size())) {
      invalid("[annotation] {} splits dim {}, which a tensor of shape {} lacks", to_string(annotation), dim,
              to_string(shape));
    }
    Interval& interval = shard.box[static_cast<std::size_t>(dim)];
    const Interval part = cut(interval.size(), index, parts, weights);
    interval = {interval.begin + part.begin, interval.begin + part.end};
  };
  if (annotation.top()) {
    if (const auto* split = std::get_if<Split>(&annotation.top()->placement)) {
      narrow(split->dim, subgroup, static_cast<int>(annotation.subgroups().size()), annotation.top()->weights);
    }
  }
  const Subgroup& group = annotation.subgroups()[static_cast<std::size_t>(subgroup)];
  int stride = static_cast<int>(group.devices().size());
  for (const Axis& axis : group.axes()) {
    stride /= axis.degree;
    const int coordinate = position / stride % axis.degree;
    if (const auto* split = std::get_if<Split>(&axis.placement))
      narrow(split->dim, coordinate, axis.degree, axis.weights);
    if (is_partial(axis.placement)) shard.addend = shard.addend * axis.degree + coordinate;
  }
  return shard;
}

std::optional<Shard> owned(const Annotation& annotation, Device device, const Shape& shape) {
  for (std::size_t k = 0; k < annotation.subgroups().size(); ++k) {
    const auto& devices = annotation.subgroups()[k].devices();
    const auto found = std::find(devices.begin(), devices.end(), device);
    if (found != devices.end())
      return shard_at(annotation, static_cast<int>(k), static_cast<int>(found - devices.begin()), shape);
  }
  return std::nullopt;
}

std::vector<Device> devices_of(const Annotation& annotation) {
  std::vector<Device> devices;
  for (const Subgroup& subgroup : annotation.subgroups()) {
    devices.insert(devices.end(), subgroup.devices().begin(), subgroup.devices().end());
  }
  return devices;
}

std::optional<int> subgroup_of(const Annotation& annotation, Device device) {
  for (std::size_t k = 0; k < annotation.subgroups().size(); ++k) {
    const auto& devices = annotation.subgroups()[k].devices();
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) return static_cast<int>(k);
  }
  return std::nullopt;
}

bool holds(const Annotation& annotation, Device device) {
  return subgroup_of(annotation, device).has_value();
}

std::optional<Reduction> reduction_of(const Annotation& annotation) {
  if (annotation.top()) {
    if (const auto* p = std::get_if<Partial>(&annotation.top()->placement)) return p->op;
  }
  for (const Subgroup& subgroup : annotation.subgroups()) {
    for (const Axis& axis : subgroup.axes()) {
      if (const auto* p = std::get_if<Partial>(&axis.placement)) return p->op;
    }
  }
  return std::nullopt;
}

bool same_layout(const Annotation& a, const Annotation& b, const Shape& shape) {
  if (a == b) return true;
  const bool a_top_partial = a.top() && is_partial(a.top()->placement);
  const bool b_top_partial = b.top() && is_partial(b.top()->placement);
  if (a_top_partial != b_top_partial || reduction_of(a) != reduction_of(b)) return false;
  const std::vector<Device> devices = devices_of(a);
  if (devices.size() != devices_of(b).size()) return false;
  const bool partial = reduction_of(a).has_value();
  return std::all_of(devices.begin(), devices.end(), [&](Device d) {
    const auto x = owned(a, d, shape);
    const auto y = owned(b, d, shape);
    if (!y || x->box != y->box) return false;
    return !partial || (x->subgroup == y->subgroup && x->addend == y->addend);
  });
}

int least_rank(const Annotation& annotation) {
  int rank = 0;
  const auto see = [&](const Placement& placement) {
    if (const auto* split = std::get_if<Split>(&placement)) rank = std::max(rank, split->dim + 1);
  };
  if (annotation.top()) see(annotation.top()->placement);
  for (const Subgroup& subgroup : annotation.subgroups()) {
    for (const Axis& axis : subgroup.axes()) see(axis.placement);
  }
  return rank;
}

Annotation project(const Annotation& annotation, int subgroup) {
  check_internal(subgroup >= 0 && subgroup < static_cast<int>(annotation.subgroups().size()),
                 "a projected subgroup exists");
  return Annotation(annotation.subgroups()[static_cast<std::size_t>(subgroup)]);
}

std::string to_string(const Placement& placement) {
  if (const auto* split = std::get_if<Split>(&placement)) return fmt::format("S{}", split->dim);
  if (const auto* partial = std::get_if<Partial>(&placement)) return partial->op == Reduction::kSum ? "P" : "Pmax";
  return "D";
}

std::string to_string(const Axis& axis) {
  return fmt::format("{}x{}{}", to_string(axis.placement), axis.degree, weights_text(axis.weights));
}

std::string to_string(const Subgroup& subgroup) {
  std::string text = devices_text(subgroup.devices()) + ":";
  for (const Axis& axis : subgroup.axes()) text += " " + to_string(axis);
  return text;
}

std::string to_string(const Annotation& annotation) {
  std::string text;
  if (annotation.top()) {
    text = fmt::format("top {} ", to_string(annotation.top()->placement));
    if (!annotation.top()->weights.empty()) text += weights_text(annotation.top()->weights) + " ";
  }
  text += "{";
  for (std::size_t k = 0; k < annotation.subgroups().size(); ++k) {
    if (k > 0) text += " | ";
    text += to_string(annotation.subgroups()[k]);
  }
  return text + "}";
}

}  // namespace hspmd
