// Resolution: candidates on one overlay compete by predicted finish time; ties go to collectives.
//
//   paired     senders pair with requirers by index, as collectives need
//   balanced   BSR, its senders chosen to finish first
//   aligned    first the bottom tiers, then the top tier (or the other way round), where both differ
#include <algorithm>

#include "hspmd/comm/assign.h"
#include "hspmd/comm/classify.h"
#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/price.h"
#include "hspmd/comm/senders.h"

namespace hspmd {
namespace {

using comm::Assignment;
using comm::Sent;

bool same_devices(const Annotation& a, const Annotation& b) {
  if (a.subgroups().size() != b.subgroups().size()) return false;
  for (std::size_t k = 0; k < a.subgroups().size(); ++k) {
    if (a.subgroups()[k].devices() != b.subgroups()[k].devices()) return false;
  }
  return true;
}

comm::Tier tier_of(const Annotation& from, const Annotation& to) {
  const bool top = from.top() && from.subgroups() == to.subgroups() && from.top() != to.top();
  return top ? comm::Tier::kTop : comm::Tier::kBottom;
}

void check_reductions(const Annotation& from, const Annotation& to) {
  const auto a = reduction_of(from);
  const auto b = reduction_of(to);
  if (a && b && *a != *b) {
    invalid("[resolve] a sum-Partial and a max-Partial layout must not meet. Received {} and {}.", to_string(from), to_string(to));
  }
}

void check_shape(const Annotation& annotation, const Shape& shape) {
  if (least_rank(annotation) > static_cast<int>(shape.size())) {
    invalid("[resolve] the shape {} must have every dim that {} splits", to_string(shape), to_string(annotation));
  }
}

std::vector<Move> with_senders(std::vector<Move> moves, const std::vector<Sent>& sent) {
  for (const Sent& s : sent) moves.push_back({s.copy.box, {s.sender}, {s.copy.requirer}});
  return moves;
}

CommPlan build(const Annotation& from, const Annotation& to, const Assignment& assignment, const std::vector<Sent>& sent) {
  CommPlan plan;
  plan.reduction = reduction_of(from).value_or(reduction_of(to).value_or(Reduction::kSum));
  const comm::Tier tier = tier_of(from, to);
  if (assignment.reduces_first) {
    plan.stages.push_back({from, std::nullopt, comm::classify(comm::merged(assignment.first), tier)});
  }
  CommStage last{std::nullopt, to, comm::classify(comm::merged(with_senders(assignment.last, sent)), tier)};
  if (!assignment.reduces_first) last.from = from;
  plan.stages.push_back(std::move(last));
  return plan;
}

CommPlan identity(const Annotation& from, const Annotation& to, const Shape& shape) {
  CommPlan plan;
  CommGroup group{CommKind::kIdentity, devices_of(from), {}};
  for (std::size_t k = 0; k < from.subgroups().size(); ++k) {
    const auto& devices = from.subgroups()[k].devices();
    for (std::size_t p = 0; p < devices.size(); ++p) {
      const Box box = shard_at(from, static_cast<int>(k), static_cast<int>(p), shape).box;
      if (volume(box) > 0) group.moves.push_back({box, {devices[p]}, {devices[p]}});
    }
  }
  plan.reduction = reduction_of(from).value_or(Reduction::kSum);
  plan.stages.push_back({from, to, {std::move(group)}});
  return plan;
}

void keep_faster(CommPlan& best, CommPlan candidate) {
  if (candidate.finish_s < best.finish_s * (1 - 1e-9)) best = std::move(candidate);
}

CommPlan direct(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster, int element_bytes) {
  const Assignment assignment = comm::assign(comm::overlay(from, to, shape), element_bytes);
  CommPlan best = build(from, to, assignment, comm::paired(assignment.copies));
  comm::price(best, cluster, element_bytes);
  const bool choice = std::any_of(assignment.copies.begin(), assignment.copies.end(), [](const comm::Copy& c) { return c.holders.size() > 1; });
  if (choice) {
    CommPlan batched = build(from, to, assignment, comm::balanced(assignment.copies, cluster));
    comm::price(batched, cluster, element_bytes);
    keep_faster(best, std::move(batched));
  }
  return best;
}

CommPlan through(const Annotation& from, const Annotation& middle, const Annotation& to, const Shape& shape, const Cluster& cluster, int element_bytes) {
  CommPlan plan = direct(from, middle, shape, cluster, element_bytes);
  CommPlan rest = direct(middle, to, shape, cluster, element_bytes);
  for (CommStage& stage : rest.stages) plan.stages.push_back(std::move(stage));
  comm::price(plan, cluster, element_bytes);
  return plan;
}

// Annotations between the two: the bottom tiers of one under the top of the other.
std::vector<Annotation> middles(const Annotation& from, const Annotation& to) {
  std::vector<Annotation> found;
  if (!from.top() || !to.top() || !same_devices(from, to) || from.top() == to.top() || from.subgroups() == to.subgroups()) return found;
  if (!reduction_of(from)) return found;  // without a sum every cell is best copied at once
  const auto try_mix = [&](const std::vector<Subgroup>& subgroups, const std::optional<Top>& top) {
    if (!why_invalid(subgroups, top)) found.emplace_back(subgroups, top);
  };
  try_mix(to.subgroups(), from.top());
  try_mix(from.subgroups(), to.top());
  return found;
}

// A Partial middle of one reduction between sides of the other would be a contradiction; there is none by construction.
CommPlan resolve_checked(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster, int element_bytes) {
  check_shape(from, shape);
  check_shape(to, shape);
  check_reductions(from, to);
  if (from == to || same_layout(from, to, shape)) return identity(from, to, shape);
  CommPlan best = direct(from, to, shape, cluster, element_bytes);
  for (const Annotation& middle : middles(from, to)) keep_faster(best, through(from, middle, to, shape, cluster, element_bytes));
  return best;
}

std::int64_t byte_bound(const std::vector<comm::Cell>& cells, int element_bytes) {
  std::int64_t bound = 0;
  for (const comm::Cell& cell : cells) {
    std::size_t fewest = cell.source.front().size();
    std::vector<Device> holders;
    for (const auto& alternative : cell.source) {
      fewest = std::min(fewest, alternative.size());
      for (const auto& addend : alternative) holders.insert(holders.end(), addend.begin(), addend.end());
    }
    std::vector<Device> whole_holders;
    for (const auto& alternative : cell.source) {
      if (alternative.size() == 1) whole_holders.insert(whole_holders.end(), alternative[0].begin(), alternative[0].end());
    }
    std::sort(holders.begin(), holders.end());
    std::sort(whole_holders.begin(), whole_holders.end());
    std::int64_t required = 0;
    std::int64_t lacking = 0;
    bool meet = false;
    for (const auto& alternative : cell.destination) {
      if (alternative.size() > 1) continue;  // any decomposition will do
      for (const Device d : alternative[0]) {
        ++required;
        lacking += std::binary_search(whole_holders.begin(), whole_holders.end(), d) ? 0 : 1;
        meet = meet || std::binary_search(holders.begin(), holders.end(), d);
      }
    }
    if (required == 0) continue;
    const std::int64_t copies = fewest == 1 ? lacking : static_cast<std::int64_t>(fewest) - 1 + required - (meet ? 1 : 0);
    bound += copies * volume(cell.box) * element_bytes;
  }
  return bound;
}

void add_bounds(CommPlan& plan, const Relayout& r, const Cluster& cluster) {
  const auto cells = comm::overlay(*r.from, *r.to, r.shape);
  plan.lower_bound_bytes = byte_bound(cells, r.element_bytes);
  if (plan.bytes == 0) return;
  const Assignment assignment = comm::assign(cells, r.element_bytes);
  const bool sums = std::any_of(cells.begin(), cells.end(), [](const comm::Cell& c) {
    return std::all_of(c.source.begin(), c.source.end(), [](const auto& a) { return a.size() > 1; });
  });
  if (!sums && !reduction_of(*r.to)) {
    plan.finish_bound_s = comm::finish_bound(assignment.copies, cluster);
    return;
  }
  // Of the bytes alone: all links of all devices at once.
  double fastest = 0;
  for (const ClusterNode& node : cluster.nodes()) fastest = std::max({fastest, node.link.bytes_per_s, node.nic.bytes_per_s});
  std::vector<Device> all = devices_of(*r.from);
  const std::vector<Device> more = devices_of(*r.to);
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  const auto count = static_cast<double>(std::unique(all.begin(), all.end()) - all.begin());
  plan.finish_bound_s = static_cast<double>(plan.lower_bound_bytes) / (fastest * count);
}

}  // namespace

CommPlan resolve_plan(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster, int element_bytes) {
  return resolve_checked(from, to, shape, cluster, element_bytes);
}

CommPlan resolve(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster, int element_bytes) {
  CommPlan plan = resolve_checked(from, to, shape, cluster, element_bytes);
  add_bounds(plan, {&from, &to, shape, element_bytes}, cluster);
  return plan;
}

std::vector<CommPlan> resolve_fused(std::span<const Relayout> tensors, const Cluster& cluster) {
  std::vector<Assignment> assignments;
  std::vector<comm::Copy> copies;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Relayout& r = tensors[t];
    check_shape(*r.from, r.shape);
    check_shape(*r.to, r.shape);
    check_reductions(*r.from, *r.to);
    assignments.push_back(comm::assign(comm::overlay(*r.from, *r.to, r.shape), r.element_bytes));
    for (comm::Copy& copy : assignments.back().copies) {
      copy.tensor = t;
      copies.push_back(std::move(copy));
    }
  }
  std::vector<std::vector<Sent>> sent(tensors.size());
  comm::Loads loads(cluster);
  double latency = 0;
  for (Sent& s : comm::balanced(copies, cluster)) {
    loads.add(loads.path(s.sender, s.copy.requirer), static_cast<double>(s.copy.bytes));
    latency = std::max(latency, cluster.between(s.sender, s.copy.requirer).latency_s);
    sent[s.copy.tensor].push_back(std::move(s));
  }
  const double bound = comm::finish_bound(copies, cluster);
  std::vector<CommPlan> plans;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Relayout& r = tensors[t];
    plans.push_back(build(*r.from, *r.to, assignments[t], sent[t]));
    comm::price(plans.back(), cluster, r.element_bytes);
    plans.back().lower_bound_bytes = byte_bound(comm::overlay(*r.from, *r.to, r.shape), r.element_bytes);
    plans.back().finish_s = loads.greatest() + latency;
    plans.back().finish_bound_s = bound;
  }
  return plans;
}

const char* to_string(CommKind kind) {
  static constexpr const char* kNames[kCommKinds] = {"Identity",      "LocalSlice", "SendReceive", "Broadcast",
                                                     "AllReduce",     "ReduceScatter", "AllGather", "AllToAll",
                                                     "SplitAllReduce", "SplitReduceScatter", "SplitAllGather", "BatchedSendReceive"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const CommPlan& plan) {
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    text += fmt::format("stage {}\n", s);
    for (const CommGroup& group : plan.stages[s].groups) {
      text += fmt::format("  {} of {}\n", to_string(group.kind), fmt::join(group.participants, ","));
      for (const Move& move : group.moves) {
        text += fmt::format("    {} from {} to {}\n", to_string(move.box), move.sources.empty() ? "nobody" : fmt::format("{}", fmt::join(move.sources, ",")),
                            fmt::join(move.destinations, ","));
      }
    }
  }
  return text;
}

}  // namespace hspmd
