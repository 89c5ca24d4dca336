// Group: an ordered list of ranks on one or several hosts. Collectives inside a host are direct; over several hosts
// they go in two levels: the ranks of a host are a team, and the i-th ranks of all hosts exchange messages.
//
//   ranks 0 1 2 3 | 4 5 6      hosts of 4 and 3        teams {0,1,2,3} and {4,5,6}
//                              exchanging              {0,4}  {1,5}  {2,6}, as far as every host has an i-th rank
//
// Where a collective has no two-level form (ranks of a host that do not stand together, or unlike numbers of them, for
// those that cut data by rank) it goes in one level, by messages among all.
//
//   Group group({generation, &messages, hosts}, {0, 1, 2, 3}, /*block=*/0, /*tag=*/5);
//   all_reduce<float>(group, data, Reduction::kSum);     all four call the same, in order
//
// Data must lie in the rank's segment. Failures as of team.h and message_group.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hspmd/annotation/annotation.h"
#include "hspmd/runtime/transport/message_group.h"
#include "hspmd/runtime/transport/team.h"

namespace hspmd {

struct GroupPlace {
  Generation& generation;
  Messages* messages = nullptr;      // connected to all ranks of the group; null where all are near
  std::vector<std::uint64_t> hosts;  // by rank of the generation
  int rank = 0;
};

class Group {
 public:
  // Throws InvalidArgument as Team and MessageGroup do. Tags [tag, tag + 2) are the group's.
  Group(const GroupPlace& place, const std::vector<int>& ranks, std::size_t block, std::uint32_t tag);

  [[nodiscard]] int size() const { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] int me() const { return me_; }  // place in the list

  // ---- for the collectives ----

  [[nodiscard]] bool one_host() const { return !across_ && !flat_; }
  [[nodiscard]] Team& team() { return *team_; }
  [[nodiscard]] int hosts() const { return hosts_; }
  [[nodiscard]] int host() const { return host_of_[static_cast<std::size_t>(me_)]; }  // in order of appearance
  [[nodiscard]] int host_of(int place) const { return host_of_[static_cast<std::size_t>(place)]; }
  [[nodiscard]] int local(int place) const { return local_[static_cast<std::size_t>(place)]; }  // place in its team
  // How many ranks every host has at least; those with less than so many before them exchange.
  [[nodiscard]] int owners() const { return owners_; }
  [[nodiscard]] MessageGroup* across() { return across_ ? &*across_ : nullptr; }
  [[nodiscard]] MessageGroup& flat() { return *flat_; }
  // Ranks of a host stand together, and all hosts have equally many.
  [[nodiscard]] bool regular() const { return regular_; }

 private:
  int me_ = 0;
  int hosts_ = 0;
  int owners_ = 0;
  bool regular_ = false;
  std::vector<int> host_of_;  // by place
  std::vector<int> local_;    // by place
  std::optional<Team> team_;
  std::optional<MessageGroup> across_;
  std::optional<MessageGroup> flat_;
};

}  // namespace hspmd
