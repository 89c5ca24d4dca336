#include "hspmd/graph/deduce.h"

#include <algorithm>
#include <numeric>

namespace hspmd {
namespace {

using AxisResult = std::variant<std::vector<Axis>, std::string>;  // one axis a result, or the reason of a conflict

std::optional<char> split_factor(const ShardingRule& rule, std::size_t operand, const Axis& axis) {
  const auto* split = std::get_if<Split>(&axis.placement);
  if (split == nullptr || split->dim >= static_cast<int>(rule.operands[operand].size())) return std::nullopt;
  return rule.operands[operand][static_cast<std::size_t>(split->dim)];
}

AxisResult deduce_split(const ShardingRule& rule, std::span<const Axis> operands, char factor, const Axis& first) {
  if (rule.unsplittable.find(factor) != std::string::npos)
    return fmt::format("the factor \"{}\" may not be split", factor);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool has = rule.operands[i].find(factor) != std::string::npos;
    if (!has && is_duplicate(operands[i].placement)) continue;
    if (!has) return fmt::format("operand {} must be Duplicate where another is split on \"{}\"", i, factor);
    if (split_factor(rule, i, operands[i]) != factor)
      return fmt::format("operand {} must be split on \"{}\" like the others", i, factor);
    if (operands[i].weights != first.weights)
      return fmt::format("the operands must split \"{}\" by the same weights", factor);
  }
  std::vector<Axis> results;
  for (const std::string& result : rule.results) {
    const std::size_t dim = result.find(factor);
    if (dim == std::string::npos) {
      results.push_back({Partial{rule.contraction}, first.degree});
    } else {
      results.push_back({Split{static_cast<int>(dim)}, first.degree, first.weights});
    }
  }
  return results;
}

AxisResult deduce_unsplit(const ShardingRule& rule, std::span<const Axis> operands, int degree) {
  std::vector<int> partial;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* p = std::get_if<Partial>(&operands[i].placement);
    if (p == nullptr) continue;
    if (p->op != Reduction::kSum) return fmt::format("operand {} is max-Partial, which passes through no operator", i);
    partial.push_back(static_cast<int>(i));
  }
  if (partial.empty()) return std::vector<Axis>(rule.results.size(), {Duplicate{}, degree});
  const bool all = partial.size() == operands.size();
  const bool alone =
      partial.size() == 1 && std::find(rule.linear.begin(), rule.linear.end(), partial.front()) != rule.linear.end();
  if (!(all && rule.jointly_linear) && !alone) {
    return rule.jointly_linear
               ? "either all operands must be Partial, or none (a Duplicate term would count once a device)"
               : fmt::format("operand {} is Partial where the operator is not linear in it alone", partial.front());
  }
  std::vector<Axis> results(rule.results.size(), {Partial{Reduction::kSum}, degree});
  for (const int result : rule.aside) results[static_cast<std::size_t>(result)].placement = Duplicate{};
  return results;
}

AxisResult deduce_axis(const ShardingRule& rule, std::span<const Axis> operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* split = std::get_if<Split>(&operands[i].placement);
    if (split == nullptr) continue;
    const auto factor = split_factor(rule, i, operands[i]);
    if (!factor) return fmt::format("operand {} splits dim {}, which it lacks", i, split->dim);
    return deduce_split(rule, operands, *factor, operands[i]);
  }
  return deduce_unsplit(rule, operands, operands.front().degree);
}

// Per result the axes of one subgroup.
using SubgroupResult = std::variant<std::vector<std::vector<Axis>>, std::string>;

SubgroupResult deduce_subgroup(const ShardingRule& rule, std::span<const Subgroup* const> operands) {
  const auto refined = refine(operands);
  if (!refined) return "the operands must lie on the same devices in the same order, in grids that align";
  std::vector<std::vector<Axis>> results(rule.results.size());
  std::vector<Axis> column(operands.size());
  for (std::size_t a = 0; a < refined->front().size(); ++a) {
    for (std::size_t i = 0; i < operands.size(); ++i) column[i] = (*refined)[i][a];
    const AxisResult axis = deduce_axis(rule, column);
    if (const auto* reason = std::get_if<std::string>(&axis)) return *reason;
    for (std::size_t r = 0; r < results.size(); ++r) results[r].push_back(std::get<0>(axis)[r]);
  }
  return results;
}

// The top tier as one axis; its degree is the number of subgroups.
Axis top_axis(const Annotation& annotation) {
  return {annotation.top()->placement, static_cast<int>(annotation.subgroups().size()), annotation.top()->weights};
}

std::variant<std::vector<std::optional<Top>>, std::string> deduce_top(const ShardingRule& rule,
                                                                      std::span<const Annotation* const> operands) {
  if (operands.front()->subgroups().size() == 1) return std::vector<std::optional<Top>>(rule.results.size());
  std::vector<Axis> column;
  for (const Annotation* operand : operands) column.push_back(top_axis(*operand));
  const AxisResult axes = deduce_axis(rule, column);
  if (const auto* reason = std::get_if<std::string>(&axes)) return "across the subgroups, " + *reason;
  std::vector<std::optional<Top>> tops;
  for (const Axis& axis : std::get<0>(axes)) tops.push_back(Top{axis.placement, axis.weights});
  return tops;
}

// What an axis of an operand should be for all operands to fit: split on the first splittable factor that somebody
// splits, Duplicate without that factor, no Partial.
Axis mended_axis(const ShardingRule& rule, std::span<const Axis> column, std::size_t operand) {
  for (std::size_t i = 0; i < column.size(); ++i) {
    const auto factor = split_factor(rule, i, column[i]);
    if (!factor || rule.unsplittable.find(*factor) != std::string::npos) continue;
    const std::size_t dim = rule.operands[operand].find(*factor);
    if (dim == std::string::npos) break;
    return {Split{static_cast<int>(dim)}, column[i].degree, column[i].weights};
  }
  return {Duplicate{}, column[operand].degree};
}

std::vector<Annotation> mend(const ShardingRule& rule, std::span<const Annotation* const> operands) {
  const std::size_t count = operands.size();
  const Annotation& lead = *operands.front();
  for (const Annotation* operand : operands) {
    if (operand->subgroups().size() != lead.subgroups().size()) return {};
  }
  std::vector<std::vector<Subgroup>> subgroups(count);
  for (std::size_t k = 0; k < lead.subgroups().size(); ++k) {
    std::vector<const Subgroup*> parts;
    for (const Annotation* operand : operands) parts.push_back(&operand->subgroups()[k]);
    const auto refined = refine(parts);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Axis> axes;
      // Grids that do not align: everything whole on the first operand's devices.
      if (!refined) axes.push_back({Duplicate{}, static_cast<int>(lead.subgroups()[k].devices().size())});
      for (std::size_t a = 0; refined && a < refined->front().size(); ++a) {
        std::vector<Axis> column;
        for (const auto& row : *refined) column.push_back(row[a]);
        axes.push_back(mended_axis(rule, column, i));
      }
      subgroups[i].emplace_back(lead.subgroups()[k].devices(), std::move(axes));
    }
  }
  std::vector<Annotation> mended;
  for (std::size_t i = 0; i < count; ++i) {
    std::optional<Top> top;
    if (lead.top()) {
      std::vector<Axis> column;
      for (const Annotation* operand : operands) column.push_back(top_axis(*operand));
      const Axis axis = mended_axis(rule, column, i);
      top = Top{axis.placement, axis.weights};
    }
    mended.emplace_back(std::move(subgroups[i]), top);
  }
  return mended;
}

Placement dual(const Placement& placement) {
  return is_partial(placement) ? Placement{Duplicate{}} : placement;
}

}  // namespace

std::optional<std::vector<std::vector<Axis>>> refine(std::span<const Subgroup* const> subgroups) {
  const std::size_t count = subgroups.size();
  if (count == 0) return std::vector<std::vector<Axis>>{};
  for (const Subgroup* subgroup : subgroups) {
    if (subgroup->devices() != subgroups.front()->devices()) return std::nullopt;
  }
  std::vector<std::vector<Axis>> refined(count);
  std::vector<std::size_t> at(count, 0);  // the axis each subgroup stands at
  std::vector<int> left(count, 1);        // what is left of its degree
  auto remaining = static_cast<int>(subgroups.front()->devices().size());
  while (remaining > 1) {
    int step = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (left[i] == 1) left[i] = subgroups[i]->axes()[at[i]++].degree;
      step = std::gcd(step, left[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Axis& axis = subgroups[i]->axes()[at[i] - 1];
      if (step == 1 || (is_split(axis.placement) && step != axis.degree)) return std::nullopt;
      refined[i].push_back({axis.placement, step, axis.weights});
      left[i] /= step;
    }
    remaining /= step;
  }
  return refined;
}

Deduced deduce(const ShardingRule& rule, std::span<const Annotation* const> operands) {
  const auto conflict = [&](std::string reason) { return Conflict{std::move(reason), mend(rule, operands)}; };
  const std::size_t hsize = operands.front()->subgroups().size();
  for (const Annotation* operand : operands) {
    if (operand->subgroups().size() != hsize) return conflict("the operands must have the same number of subgroups");
  }
  const auto tops = deduce_top(rule, operands);
  if (const auto* reason = std::get_if<std::string>(&tops)) return conflict(*reason);

  std::vector<std::vector<Subgroup>> results(rule.results.size());
  std::vector<const Subgroup*> parts(operands.size());
  std::vector<std::vector<Axis>> axes;
  for (std::size_t k = 0; k < hsize; ++k) {
    // Data-parallel subgroups mostly repeat their neighbour's axes on other devices.
    bool repeats = k > 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      parts[i] = &operands[i]->subgroups()[k];
      repeats = repeats && parts[i]->axes() == operands[i]->subgroups()[k - 1].axes() &&
                parts[i]->devices() == parts[0]->devices();
    }
    if (!repeats) {
      SubgroupResult subgroup = deduce_subgroup(rule, parts);
      if (const auto* reason = std::get_if<std::string>(&subgroup)) return conflict(*reason);
      axes = std::move(std::get<0>(subgroup));
    }
    for (std::size_t r = 0; r < results.size(); ++r) results[r].emplace_back(parts[0]->devices(), axes[r]);
  }
  std::vector<Annotation> annotations;
  for (std::size_t r = 0; r < results.size(); ++r) {
    try {
      annotations.emplace_back(std::move(results[r]), std::get<0>(tops)[r]);
    } catch (const InvalidArgument& error) {  // P beside Pmax
      return conflict(error.what());
    }
  }
  return annotations;
}

Annotation dual(const Annotation& annotation) {
  if (!reduction_of(annotation)) return annotation;
  std::vector<Subgroup> subgroups;
  for (const Subgroup& subgroup : annotation.subgroups()) {
    std::vector<Axis> axes = subgroup.axes();
    for (Axis& axis : axes) axis.placement = dual(axis.placement);
    subgroups.emplace_back(subgroup.devices(), std::move(axes));
  }
  std::optional<Top> top = annotation.top();
  if (top) top->placement = dual(top->placement);
  return {std::move(subgroups), std::move(top)};
}

Annotation dual_keeping(const Annotation& from, const Annotation& to, const Annotation& gradient) {
  Annotation plain = dual(from);
  const std::size_t hsize = plain.subgroups().size();
  if (to.subgroups().size() != hsize || gradient.subgroups().size() != hsize) return plain;
  std::vector<Subgroup> subgroups;
  for (std::size_t k = 0; k < hsize; ++k) {
    const Subgroup* parts[] = {&plain.subgroups()[k], &to.subgroups()[k], &gradient.subgroups()[k]};
    const auto refined = refine(parts);
    if (!refined) {
      subgroups.push_back(plain.subgroups()[k]);
      continue;
    }
    std::vector<Axis> axes = (*refined)[0];
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const bool stays = is_duplicate(axes[a].placement) && is_duplicate((*refined)[1][a].placement);
      if (stays && is_partial((*refined)[2][a].placement)) axes[a].placement = (*refined)[2][a].placement;
    }
    subgroups.emplace_back(parts[0]->devices(), std::move(axes));
  }
  return {std::move(subgroups), plain.top()};
}

}  // namespace hspmd
