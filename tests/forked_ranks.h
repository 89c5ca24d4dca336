// Ranks as real processes for tests: forks one child a rank, with a rendezvous over memory that all inherit.
//
//   const std::vector<int> codes = fork_ranks(4, [&](Rendezvous& rendezvous) { ... return 0; });
//
// A child's exit code is what its function returns; 125 after an exception, whose text goes to standard error; -SIGNAL
// where it was killed. No child outlives the call.
#pragma once

#include <functional>
#include <vector>

#include "hspmd/runtime/transport/rendezvous.h"

namespace hspmd::testing {

using RankFunction = std::function<int(Rendezvous&)>;

inline constexpr int kThrew = 125;

struct ForkOptions {
  double timeout_s = 60;  // then all children are killed
  // Called in the parent once all children run, with their process ids.
  std::function<void(const std::vector<int>&)> meanwhile = {};
};

[[nodiscard]] std::vector<int> fork_ranks(int ranks, const RankFunction& run, const ForkOptions& options = {});

}  // namespace hspmd::testing
