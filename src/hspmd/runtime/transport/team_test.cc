// Every direct collective against plain loops, on threads; tests/collectives_test.cc does so on processes and hosts.
#include "hspmd/runtime/transport/team.h"

#include <gtest/gtest.h>

#include <thread>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/direct_collectives.h"

namespace hspmd {
namespace {

using std::chrono::duration;

TEST(Team, RefusesSenselessLists) {
  Generation generation(3, 0, duration<double>(10));
  for (int rank = 0; rank < 3; ++rank) generation.make_segment(rank, 2 * Team::block_bytes());

  EXPECT_THROW(Team(generation, {0, 1, 1}, 0, 0), InvalidArgument);
  EXPECT_THROW(Team(generation, {1, 2}, 0, 0), InvalidArgument);
  EXPECT_THROW(Team(generation, {0, 3}, 0, 0), InvalidArgument);
  EXPECT_THROW(Team(generation, {0}, 0, 1), InvalidArgument);
}

TEST(Team, DataThatOthersCannotReachAreRefused) {
  Generation generation(1, 0, duration<double>(10));
  std::byte* memory = generation.make_segment(0, 2 * Team::block_bytes());
  Team team(generation, {0}, 0, 0);
  std::vector<float> elsewhere(100000);

  EXPECT_THROW(direct_all_reduce<float>(team, elsewhere, Reduction::kSum), InvalidArgument);
  const std::span<float> too_long(reinterpret_cast<float*>(memory + Team::block_bytes()), Team::block_bytes());
  EXPECT_THROW(direct_all_reduce<float>(team, too_long, Reduction::kSum), InvalidArgument);
}

TEST(Team, AWaitForSomebodyWhoDoesNotComeEndsAndNamesHim) {
  Generation generation(2, 0, duration<double>(0.02));
  for (int rank = 0; rank < 2; ++rank) generation.make_segment(rank, Team::block_bytes());
  Team team(generation, {0, 1}, 0, 0);
  team.set_tensor("x");
  try {
    direct_barrier(team);
    FAIL() << "the wait must end";
  } catch (const RuntimeFailure& failure) {
    EXPECT_STREQ(failure.what(), "[rank 0] direct barrier, peer 1, tensor x, 0 bytes: timed out after 0.02 s");
  }
}

}  // namespace
}  // namespace hspmd
