// The groups of a stage, named. With S the sources and T the destinations of a move:
//
//   S = T, several            AllReduce, cells with the same participants together
//   T = {t} inside S          ReduceScatter, grouped by S
//   {s} inside T              AllGather, grouped by T; Broadcast when only one device sends
//   {s} to {t}                connected pairs: SendReceive where each sends to one and receives from one; AllToAll when
//                             everybody keeps a part and sends one to everybody; else BatchedSendReceive
//   what stays where it is    LocalSlice
//   the rest                  BatchedSendReceive
#pragma once

#include "hspmd/comm/comm_plan.h"

namespace hspmd::comm {

enum class Naming {
  kBottom,
  kTop,  // the groups cross subgroups whose bottom tiers are alike: SplitAllReduce, SplitReduceScatter, SplitAllGather
  kBatch,  // all copies in one BatchedSendReceive: their senders were chosen for direct sends
};

[[nodiscard]] std::vector<CommGroup> classify(std::vector<Move> moves, Naming naming);

// Joins neighbouring boxes with equal sources and destinations; keeps the order of the first of each.
[[nodiscard]] std::vector<Move> merged(std::vector<Move> moves);

// Zeros, or data that a device keeps.
[[nodiscard]] bool stays(const Move& move);

}  // namespace hspmd::comm
