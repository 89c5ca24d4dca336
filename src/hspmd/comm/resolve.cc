// Resolution: candidates on one overlay compete by predicted finish time; ties go to collectives.
//
//   aligned    first the bottom tiers, then the top tier (or the other way round), where both differ
//   paired     senders pair with requirers by index, as collectives need
//   balanced   BSR, its senders chosen to finish first
//
// Whose copies would not be one sum, bit by bit, loses whatever its time.
#include <algorithm>

#include "hspmd/comm/assign.h"
#include "hspmd/comm/balance.h"
#include "hspmd/comm/bounds.h"
#include "hspmd/comm/classify.h"
#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/one_sum.h"
#include "hspmd/comm/price.h"

namespace hspmd {
namespace {

using comm::Assignment;
using comm::DeviceIndex;
using comm::Links;
using comm::Naming;
using comm::Overlay;
using comm::Sent;

bool same_devices(const Annotation& a, const Annotation& b) {
  return std::equal(a.subgroups().begin(), a.subgroups().end(), b.subgroups().begin(), b.subgroups().end(),
                    [](const Subgroup& x, const Subgroup& y) { return x.devices() == y.devices(); });
}

Naming naming_of(const Annotation& from, const Annotation& to) {
  const bool top = from.top() && from.subgroups() == to.subgroups() && from.top() != to.top();
  return top ? Naming::kTop : Naming::kBottom;
}

void check(const Relayout& r) {
  for (const Annotation* annotation : {r.from, r.to}) {
    if (least_rank(*annotation) <= static_cast<int>(r.shape.size())) continue;
    invalid("[resolve] the shape {} must have every dim that {} splits", to_string(r.shape), to_string(*annotation));
  }
  const auto a = reduction_of(*r.from);
  const auto b = reduction_of(*r.to);
  if (!a || !b || *a == *b) return;
  invalid("[resolve] a sum-Partial and a max-Partial layout must not meet. Received {} and {}.", to_string(*r.from),
          to_string(*r.to));
}

// What a device holds after a stage and keeps in the next.
std::vector<Move> kept(const std::vector<Move>& moves) {
  std::vector<Move> result;
  for (const Move& move : moves) {
    for (const Device d : move.destinations) result.push_back({move.box, {d}, {d}});
  }
  return result;
}

// One stage, or two where sums go on as copies: what has settled in the first is kept in the second.
CommPlan staged(const Relayout& r, const Assignment& assignment, std::vector<Move> copied, Naming naming) {
  CommPlan plan;
  plan.reduction = reduction_of(*r.from).value_or(reduction_of(*r.to).value_or(Reduction::kSum));
  std::vector<Move> first = assignment.settled;
  std::move(copied.begin(), copied.end(), std::back_inserter(first));
  if (assignment.copies.empty()) {
    plan.stages.push_back({*r.from, *r.to, comm::classify(comm::merged(std::move(first)), naming)});
    return plan;
  }
  first = comm::merged(std::move(first));
  std::vector<Move> last = kept(first);
  last.insert(last.end(), assignment.copies.begin(), assignment.copies.end());
  first.insert(first.end(), assignment.sums.begin(), assignment.sums.end());
  plan.stages.push_back({*r.from, std::nullopt, comm::classify(comm::merged(std::move(first)), naming)});
  const Naming after = naming == Naming::kTop ? Naming::kTop : Naming::kBottom;
  plan.stages.push_back({std::nullopt, *r.to, comm::classify(comm::merged(std::move(last)), after)});
  return plan;
}

std::vector<Move> moves_of(std::vector<Sent> sent) {
  std::vector<Move> moves;
  moves.reserve(sent.size());
  for (Sent& s : sent) moves.push_back(std::move(s.move));
  return moves;
}

CommPlan identity(const Relayout& r) {
  CommPlan plan;
  CommGroup group{CommKind::kIdentity, devices_of(*r.from), {}};
  for (std::size_t k = 0; k < r.from->subgroups().size(); ++k) {
    const auto& devices = r.from->subgroups()[k].devices();
    for (std::size_t p = 0; p < devices.size(); ++p) {
      const Box box = shard_at(*r.from, static_cast<int>(k), static_cast<int>(p), r.shape).box;
      if (volume(box) > 0) group.moves.push_back({box, {devices[p]}, {devices[p]}});
    }
  }
  plan.reduction = reduction_of(*r.from).value_or(Reduction::kSum);
  plan.stages.push_back({*r.from, *r.to, {std::move(group)}});
  return plan;
}

// One resolution at work: what its candidates share.
class Resolver {
 public:
  Resolver(const Relayout& relayout, const Cluster& cluster)
      : r_(relayout),
        cluster_(cluster),
        devices_(comm::devices_of_both(*relayout.from, *relayout.to)),
        links_(devices_, cluster) {}

  CommPlan best() {
    std::optional<CommPlan> best;
    for (const Annotation& middle : middles()) {
      CommPlan plan = direct({r_.from, &middle, r_.shape, r_.element_bytes});
      CommPlan rest = direct({&middle, r_.to, r_.shape, r_.element_bytes});
      std::move(rest.stages.begin(), rest.stages.end(), std::back_inserter(plan.stages));
      if (comm::one_sum(plan, r_)) keep_faster(best, priced(std::move(plan)));
    }
    keep_faster(best, direct(r_));
    return std::move(*best);
  }

  void add_bounds(CommPlan& plan) const {
    const Overlay overlay = comm::overlay(*r_.from, *r_.to, r_.shape);
    plan.lower_bound_bytes = comm::least_bytes(overlay, r_.element_bytes);
    if (plan.bytes == 0) return;
    plan.finish_bound_s = direct_sends(plan)
                              ? comm::least_direct(comm::assign(overlay, r_.element_bytes, {}).jobs, links_)
                              : comm::least_any(overlay, r_.element_bytes, devices_, cluster_);
  }

 private:
  static void keep_faster(std::optional<CommPlan>& best, CommPlan candidate) {
    if (!best || candidate.finish_s < best->finish_s * (1 - 1e-9)) best = std::move(candidate);
  }

  CommPlan priced(CommPlan plan) const {
    comm::price({&plan, 1}, {&r_.element_bytes, 1}, links_);
    return plan;
  }

  CommPlan direct(const Relayout& r) const {
    const Overlay overlay = comm::overlay(*r.from, *r.to, r.shape);
    const Naming naming = naming_of(*r.from, *r.to);
    std::optional<CommPlan> best;
    std::optional<CommPlan> split_sums;  // only if there is no other
    bool one_stage = false;
    const auto compete = [&](CommPlan plan) {
      const bool better = !best || plan.finish_s < best->finish_s * (1 - 1e-9);
      if (!better) return;
      if (comm::one_sum(plan, r)) {
        best = std::move(plan);
      } else {
        keep_faster(split_sums, std::move(plan));
      }
    };
    for (const comm::AssignPolicy policy : comm::policies(overlay)) {
      // Where nothing is reduced in order to be copied, it matters not where.
      if (one_stage && policy.reducers == comm::AssignPolicy::Reducers::kDestination) continue;
      const Assignment assignment = comm::assign(overlay, r.element_bytes, policy);
      one_stage = assignment.copies.empty();
      compete(priced(staged(r, assignment, moves_of(comm::paired(assignment.jobs)), naming)));
      const bool choice = std::any_of(assignment.jobs.begin(), assignment.jobs.end(),
                                      [](const comm::Job& j) { return j.holders.size() > 1; });
      if (choice)
        compete(priced(staged(r, assignment, moves_of(comm::balanced(assignment.jobs, links_).sent), Naming::kBatch)));
    }
    return std::move(best ? *best : *split_sums);
  }

  // Annotations between the two: the bottom tiers of one under the top of the other.
  [[nodiscard]] std::vector<Annotation> middles() const {
    const Annotation& from = *r_.from;
    const Annotation& to = *r_.to;
    std::vector<Annotation> found;
    if (!reduction_of(from)) return found;  // without a sum every cell is best copied at once
    if (!from.top() || !to.top() || !same_devices(from, to) || from.top() == to.top() ||
        from.subgroups() == to.subgroups())
      return found;
    if (!why_invalid(to.subgroups(), from.top())) found.emplace_back(to.subgroups(), from.top());
    if (!why_invalid(from.subgroups(), to.top())) found.emplace_back(from.subgroups(), to.top());
    return found;
  }

  // Does every requirer receive from a holder of the beginning? Then the choice of senders is all there is.
  static bool direct_sends(const CommPlan& plan) {
    if (plan.stages.size() > 1) return false;
    return std::all_of(plan.stages[0].groups.begin(), plan.stages[0].groups.end(), [](const CommGroup& group) {
      switch (group.kind) {
        case CommKind::kIdentity:
        case CommKind::kLocalSlice:
        case CommKind::kSendReceive:
        case CommKind::kAllToAll:
          return true;
        case CommKind::kBatchedSendReceive:
          return std::all_of(group.moves.begin(), group.moves.end(),
                             [](const Move& m) { return m.sources.size() <= 1; });
        case CommKind::kBroadcast:
        case CommKind::kAllGather:
        case CommKind::kSplitAllGather:
          return group.participants.size() == 2;
        case CommKind::kAllReduce:
        case CommKind::kReduceScatter:
        case CommKind::kSplitAllReduce:
        case CommKind::kSplitReduceScatter:
          return false;
      }
      return false;
    });
  }

  Relayout r_;
  const Cluster& cluster_;
  DeviceIndex devices_;
  Links links_;
};

// Fused tensors with what they share.
class Fusion {
 public:
  Fusion(std::span<const Relayout> tensors, const Cluster& cluster)
      : tensors_(tensors), cluster_(cluster), devices_(all_devices(tensors)), links_(devices_, cluster) {
    for (std::size_t t = 0; t < tensors.size(); ++t) add(t);
  }

  std::vector<CommPlan> plans() {
    std::vector<std::vector<Move>> copied(tensors_.size());
    for (Sent& s : comm::balanced(jobs_, links_).sent) copied[s.tensor].push_back(std::move(s.move));
    std::vector<CommPlan> plans;
    std::vector<int> element_bytes;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const Relayout& r = tensors_[t];
      const bool same = *r.from == *r.to;
      plans.push_back(same ? identity(r) : staged(r, assignments_[t], std::move(copied[t]), Naming::kBatch));
      element_bytes.push_back(r.element_bytes);
    }
    comm::price(plans, element_bytes, links_);
    return plans;
  }

  // Copies alone can be relaxed together; with sums it is the slowest tensor's bytes.
  void add_bounds(std::vector<CommPlan>& plans) const {
    double bound = 0;
    bool sums = false;
    for (std::size_t t = 0; t < plans.size(); ++t) {
      const Relayout& r = tensors_[t];
      const Overlay overlay = comm::overlay(*r.from, *r.to, r.shape);
      plans[t].lower_bound_bytes = comm::least_bytes(overlay, r.element_bytes);
      const bool adds = reduction_of(*r.from) || reduction_of(*r.to);
      sums = sums || adds;
      if (adds && plans[t].bytes > 0)
        bound = std::max(bound, comm::least_any(overlay, r.element_bytes, devices_, cluster_));
    }
    if (!sums) bound = comm::least_direct(jobs_, links_);
    for (CommPlan& plan : plans) plan.finish_bound_s = bound;
  }

 private:
  static DeviceIndex all_devices(std::span<const Relayout> tensors) {
    std::vector<Device> devices;
    const Annotation* last = nullptr;
    for (const Relayout& r : tensors) {
      for (const Annotation* annotation : {r.from, r.to}) {
        if (annotation == last) continue;
        last = annotation;
        const std::vector<Device> more = devices_of(*annotation);
        devices.insert(devices.end(), more.begin(), more.end());
      }
    }
    return DeviceIndex(std::move(devices));
  }

  void add(std::size_t t) {
    const Relayout& r = tensors_[t];
    check(r);
    assignments_.emplace_back();
    if (*r.from == *r.to) return;
    assignments_.back() = comm::assign(comm::overlay(*r.from, *r.to, r.shape), r.element_bytes, {});
    for (comm::Job& job : assignments_.back().jobs) {
      job.tensor = t;
      jobs_.push_back(std::move(job));
    }
  }

  std::span<const Relayout> tensors_;
  const Cluster& cluster_;
  DeviceIndex devices_;
  Links links_;
  std::vector<Assignment> assignments_;
  std::vector<comm::Job> jobs_;
};

bool alike(const Relayout& r) {
  return *r.from == *r.to || same_layout(*r.from, *r.to, r.shape);
}

}  // namespace

CommPlan resolve_plan(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster,
                      int element_bytes) {
  const Relayout r{&from, &to, shape, element_bytes};
  check(r);
  return alike(r) ? identity(r) : Resolver(r, cluster).best();
}

CommPlan resolve(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster,
                 int element_bytes) {
  const Relayout r{&from, &to, shape, element_bytes};
  check(r);
  if (alike(r)) return identity(r);
  Resolver resolver(r, cluster);
  CommPlan plan = resolver.best();
  resolver.add_bounds(plan);
  return plan;
}

std::vector<CommPlan> resolve_fused_plans(std::span<const Relayout> tensors, const Cluster& cluster) {
  return Fusion(tensors, cluster).plans();
}

std::vector<CommPlan> resolve_fused(std::span<const Relayout> tensors, const Cluster& cluster) {
  Fusion fusion(tensors, cluster);
  std::vector<CommPlan> plans = fusion.plans();
  fusion.add_bounds(plans);
  return plans;
}

}  // namespace hspmd
