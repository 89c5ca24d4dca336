// CommPlan: a change of layout as a value. The runtime runs it, the simulator prices it, `explain` prints it,
// tests interpret it.
//
//   resolve({0-1: Px2}, {0-1: Dx2}, 10x6):
//     stage 0: AllReduce of 0,1: move [0,10)x[0,6) from 0,1 to 0,1
//
// Stages run in order; the groups of a stage are independent (one subgroup may reduce-scatter while its
// neighbour sends). A move says: after the stage each destination holds, on that box, the sum (max, for Pmax)
// of what its sources held before it. One source: a copy. A device that keeps its own data is its own source.
// No source: zeros (minus infinity for a max), for a Partial destination.
// The moves of a stage give every device its whole new shard and nothing else.
// A stage's from/to are absent where the state between is no annotation: there a device holds the boxes of the
// moves that it is a destination of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hspmd/annotation/annotation.h"
#include "hspmd/cluster/cluster.h"

namespace hspmd {

enum class CommKind {
  kIdentity,
  kLocalSlice,
  kSendReceive,
  kBroadcast,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kSplitAllReduce,
  kSplitReduceScatter,
  kSplitAllGather,
  kBatchedSendReceive,
};
inline constexpr int kCommKinds = 12;
[[nodiscard]] const char* to_string(CommKind kind);  // "AllReduce", ...

struct Move {
  Box box;                      // in the coordinates of the whole tensor
  std::vector<Device> sources;  // summed in this order
  std::vector<Device> destinations;
  friend bool operator==(const Move&, const Move&) = default;
};

struct CommGroup {
  CommKind kind = CommKind::kIdentity;
  std::vector<Device> participants;  // in the order of the collective
  std::vector<Move> moves;
  friend bool operator==(const CommGroup&, const CommGroup&) = default;
};

struct CommStage {
  std::optional<Annotation> from;
  std::optional<Annotation> to;
  std::vector<CommGroup> groups;
  friend bool operator==(const CommStage&, const CommStage&) = default;
};

struct CommPlan {
  std::vector<CommStage> stages;
  Reduction reduction = Reduction::kSum;      // how moves of several sources combine
  std::int64_t bytes = 0;                     // what crosses between devices (ring counts for collectives)
  std::int64_t lower_bound_bytes = 0;         // no plan moves fewer
  std::map<Device, std::int64_t> send_bytes;  // by sender
  double finish_s = 0;                        // predicted
  double finish_bound_s = 0;                  // for direct sends the best choice of senders, fractional; else by bytes
  friend bool operator==(const CommPlan&, const CommPlan&) = default;
};

// How to get a tensor of this shape from one layout to another. Every pair of valid annotations whose dims the
// shape has resolves. Deterministic: the same arguments give the same plan on every rank.
// Throws InvalidArgument when an annotation splits a dim that the shape lacks, or when one is max-Partial and
// the other sum-Partial.
[[nodiscard]] CommPlan resolve(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster,
                               int element_bytes = 4);

// The same plan with its bounds left at 0: what a run needs, without the price of the linear programme.
[[nodiscard]] CommPlan resolve_plan(const Annotation& from, const Annotation& to, const Shape& shape,
                                    const Cluster& cluster, int element_bytes = 4);

// Several tensors that move together, their copies balanced over all of them in one batch: one plan each, in their
// order, and in every one of them the finish time of the whole and its bound. resolve_fused_plans leaves the bounds 0.
struct Relayout {
  const Annotation* from = nullptr;
  const Annotation* to = nullptr;
  Shape shape;
  int element_bytes = 4;
};
[[nodiscard]] std::vector<CommPlan> resolve_fused(std::span<const Relayout> tensors, const Cluster& cluster);
[[nodiscard]] std::vector<CommPlan> resolve_fused_plans(std::span<const Relayout> tensors, const Cluster& cluster);

// "AllReduce of 0,1: [0,10)x[0,6) from 0,1 to 0,1", a line a move.
[[nodiscard]] std::string to_string(const CommPlan& plan);

}  // namespace hspmd
