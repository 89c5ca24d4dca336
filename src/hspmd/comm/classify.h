// The groups of a stage, named. With S the sources and T the destinations of a move:
//
//   S = T, several            AllReduce, cells with the same participants together
//   T = {t} inside S          ReduceScatter, grouped by S
//   {s} inside T              AllGather, grouped by T; Broadcast when only one device sends
//   {s} to {t}                connected pairs: SendReceive when one way; AllToAll when everybody sends to everybody
//   what stays where it is    LocalSlice; Identity when the whole shard stays
//   the rest                  BatchedSendReceive
#pragma once

#include "hspmd/comm/comm_plan.h"

namespace hspmd::comm {

enum class Tier { kBottom, kTop };  // kTop: the groups cross subgroups whose bottom tiers are alike: Split... kinds

[[nodiscard]] std::vector<CommGroup> classify(std::vector<Move> moves, Tier tier);

// Joins neighbouring boxes with equal sources and destinations.
[[nodiscard]] std::vector<Move> merged(std::vector<Move> moves);

}  // namespace hspmd::comm
