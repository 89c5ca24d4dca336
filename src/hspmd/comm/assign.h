// Who sends what to whom: the moves that serve every requirer of every cell, before they are named and priced.
//
// A cell that some alternative holds whole is copied: a requirer that holds it keeps it, the others are served by a
// holder still to be chosen (a Job). Of any other cell each requirer takes its cheapest alternative, data that it holds
// first; S are that alternative's devices, T the requirers that take it:
//   T = reducing groups of S             each sums                                            AllReduce
//   T = {t}, or T in S with two addends  each of T sums                                       ReduceScatter
//   else                                 the cell is shared out over the devices of S and T (else of S, or of T),
//                                        each sums its part, and in a second stage copies it to T
// In none of these does more cross than k - 1 + |T| - [S and T meet] times the cell (k addends).
// A destination with several addends takes one alternative whole; each source addend goes to exactly one
// destination addend, where the fewest bytes move; the others are zeros.
#pragma once

#include <vector>

#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/overlay.h"

namespace hspmd::comm {

// A copy whose senders are open: each requirer may be served by any holder.
struct Job {
  std::size_t tensor = 0;  // of a fused resolution
  Box box;
  std::int64_t bytes = 0;
  std::vector<Device> holders;
  std::vector<Device> keepers;    // holders that require it
  std::vector<Device> requirers;  // those that lack it
};

struct Assignment {
  std::vector<Move> settled;  // first stage, at their destination
  std::vector<Job> jobs;      // first stage
  std::vector<Move> sums;     // first stage, read by `copies`
  std::vector<Move> copies;   // second stage; without any there is none
};

// Where the ways differ that cost the same bytes.
struct AssignPolicy {
  enum class Sums { kOwn, kFewest } sums = Sums::kOwn;  // kFewest: all from the alternative of fewest addends
  enum class Reducers { kSource, kDestination } reducers = Reducers::kSource;  // where S and T do not meet
  friend bool operator==(const AssignPolicy&, const AssignPolicy&) = default;
};

[[nodiscard]] Assignment assign(const Overlay& overlay, int element_bytes, AssignPolicy policy);

// The policies that can make a difference on this overlay; the first is the default.
[[nodiscard]] std::vector<AssignPolicy> policies(const Overlay& overlay);

// Cuts a box in `parts` along its slowest dim that is long enough, else along its longest.
[[nodiscard]] std::vector<Box> sliced(const Box& box, std::int64_t parts);

}  // namespace hspmd::comm
