#include "hspmd/graph/layouts.h"

#include <algorithm>

namespace hspmd {
namespace {

Annotation copies_beside(const Annotation& tensor) {
  std::vector<Subgroup> subgroups;
  for (const Subgroup& subgroup : tensor.subgroups()) {
    subgroups.emplace_back(subgroup.devices(),
                           std::vector<Axis>{{Duplicate{}, static_cast<int>(subgroup.devices().size())}});
  }
  return {std::move(subgroups), Top{Duplicate{}}};
}

}  // namespace

Layouts::Layouts(const Graph& graph, const Plan& plan)
    : graph_(graph),
      plan_(plan),
      known_(static_cast<std::size_t>(graph.value_count()), nullptr),
      anchor_(static_cast<std::size_t>(graph.value_count()), nullptr) {}

const Annotation& Layouts::keep(ValueId value, Annotation annotation) {
  // Neighbouring values mostly lie alike; over thousands of devices one copy of a layout is much.
  constexpr std::size_t kRecent = 16;
  const auto recent = static_cast<std::ptrdiff_t>(std::min(deduced_.size(), kRecent));
  const auto found = std::find(deduced_.end() - recent, deduced_.end(), annotation);
  if (found != deduced_.end()) return *(known_[static_cast<std::size_t>(value)] = &*found);
  deduced_.push_back(std::move(annotation));
  known_[static_cast<std::size_t>(value)] = &deduced_.back();
  return deduced_.back();
}

const Annotation* Layouts::from_plan(const Node& node) const {
  if (const auto* leaf = std::get_if<Leaf>(&node.what)) {
    if (leaf->like) return nullptr;
    const Annotation* found = plan_.leaf(leaf->name);
    if (found == nullptr) invalid("[plan] tensors must name the leaf {}", leaf->name);
    return found;
  }
  const auto* reshard = std::get_if<Reshard>(&node.what);
  if (reshard == nullptr) return nullptr;
  if (std::holds_alternative<IfNamed>(reshard->target)) return plan_.reshard(reshard->name);
  if (!std::holds_alternative<ByName>(reshard->target)) return nullptr;
  const Annotation* found = plan_.reshard(reshard->name);
  if (found == nullptr) invalid("[plan] reshards must name {}", reshard->name);
  return found;
}

const Annotation& Layouts::anchor(ValueId value) {
  const Annotation*& known = anchor_[static_cast<std::size_t>(value)];
  if (known != nullptr) return *known;
  const Node& node = graph_.producer(value);
  if (const Annotation* found = from_plan(node)) return *(known = found);
  if (const auto* leaf = std::get_if<Leaf>(&node.what)) return *(known = &anchor(*leaf->like));
  if (const auto* reshard = std::get_if<Reshard>(&node.what)) {
    if (const auto* back = std::get_if<BackTo>(&reshard->target)) return *(known = &anchor(back->tensor));
    if (const auto* beside = std::get_if<Beside>(&reshard->target)) return *(known = &anchor(beside->tensor));
    if (std::holds_alternative<IfNamed>(reshard->target)) return *(known = &anchor(node.inputs.front()));
    // Uses that disagree in devices go to the tensor, or to the first use; if they agree, all are alike.
    const auto& agreed = std::get<Agreed>(reshard->target);
    return *(known = &anchor(agreed.tensor.value_or(agreed.uses.front())));
  }
  return *(known = &anchor(node.inputs.front()));
}

const Annotation& Layouts::of(ValueId value) {
  const Annotation*& known = known_[static_cast<std::size_t>(value)];
  if (known != nullptr) return *known;
  const Node& node = graph_.producer(value);
  if (const Annotation* found = from_plan(node)) {
    const std::size_t rank = graph_.value(value).type.shape.size();
    if (least_rank(*found) > static_cast<int>(rank)) {
      invalid("[plan] {} has {} dims, too few for the annotation {}", graph_.label(value), rank, to_string(*found));
    }
    return *(known = found);
  }
  if (const auto* leaf = std::get_if<Leaf>(&node.what)) {
    deduce_leaf(value, *leaf);
  } else if (const auto* reshard = std::get_if<Reshard>(&node.what)) {
    deduce_reshard(value, node, *reshard);
  } else {
    deduce_compute(node, std::get<Compute>(node.what));
  }
  return *known_[static_cast<std::size_t>(value)];
}

void Layouts::deduce_leaf(ValueId value, const Leaf& leaf) {
  keep(value, dual(of(*leaf.like)));
}

void Layouts::deduce_reshard(ValueId value, const Node& node, const Reshard& reshard) {
  if (const auto* back = std::get_if<BackTo>(&reshard.target)) {
    const Annotation& tensor = of(back->tensor);
    if (!back->keep) {
      keep(value, dual(tensor));
      return;
    }
    const ValueId forward = graph_.node(*back->keep).outputs.front();
    keep(value, dual_keeping(tensor, of(forward), of(node.inputs.front())));
    return;
  }
  if (std::holds_alternative<IfNamed>(reshard.target)) {
    keep(value, of(node.inputs.front()));
    return;
  }
  if (const auto* beside = std::get_if<Beside>(&reshard.target)) {
    keep(value, copies_beside(of(beside->tensor)));
    return;
  }
  const auto& agreed = std::get<Agreed>(reshard.target);
  const Annotation& first = of(agreed.uses.front());
  const bool agree = std::all_of(agreed.uses.begin(), agreed.uses.end(), [&](ValueId use) { return of(use) == first; });
  keep(value, agree || !agreed.tensor ? first : dual(of(*agreed.tensor)));
}

void Layouts::deduce_compute(const Node& node, const Compute& compute) {
  std::vector<TensorType> types;
  std::vector<const Annotation*> operands;
  for (const ValueId input : node.inputs) {
    types.push_back(graph_.value(input).type);
    operands.push_back(&of(input));
  }
  Deduced deduced = deduce(compute.op->rule(compute.attributes, types), operands);
  if (const auto* conflict = std::get_if<Conflict>(&deduced)) fail(node, compute, *conflict);
  auto& results = std::get<0>(deduced);
  for (std::size_t r = 0; r < results.size(); ++r) keep(node.outputs[r], std::move(results[r]));
}

void Layouts::fail(const Node& node, const Compute& compute, const Conflict& conflict) {
  std::string operands;
  std::string mend;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    operands += fmt::format("{}{} {}", i == 0 ? "" : "; ", graph_.label(input), to_string(of(input)));
    if (i >= conflict.mended.size() || conflict.mended[i] == of(input)) continue;
    mend += fmt::format("{}{} to {}", mend.empty() ? " Mend it by a Reshard of " : " and of ", graph_.label(input),
                        to_string(conflict.mended[i]));
  }
  invalid("[{}] the layouts of the operands of {} must fit: {}. Received {}.{}", compute.op->name(),
          graph_.label(node.outputs.front()), conflict.reason, operands, mend.empty() ? "" : mend + ".");
}

}  // namespace hspmd
