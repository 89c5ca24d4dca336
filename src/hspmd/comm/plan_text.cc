#include "hspmd/comm/comm_plan.h"

namespace hspmd {

const char* to_string(CommKind kind) {
  static constexpr const char* kNames[kCommKinds] = {
      "Identity",  "LocalSlice", "SendReceive",    "Broadcast",          "AllReduce",      "ReduceScatter",
      "AllGather", "AllToAll",   "SplitAllReduce", "SplitReduceScatter", "SplitAllGather", "BatchedSendReceive"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const CommPlan& plan) {
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    text += fmt::format("stage {}\n", s);
    for (const CommGroup& group : plan.stages[s].groups) {
      text += fmt::format("  {} of {}\n", to_string(group.kind), fmt::join(group.participants, ","));
      for (const Move& move : group.moves) {
        text += fmt::format("    {} from {} to {}\n", to_string(move.box),
                            move.sources.empty() ? "nobody" : fmt::format("{}", fmt::join(move.sources, ",")),
                            fmt::join(move.destinations, ","));
      }
    }
  }
  return text;
}

}  // namespace hspmd
