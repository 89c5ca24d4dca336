#include "hspmd/runtime/transport/arena.h"

#include <gtest/gtest.h>

#include <thread>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using std::chrono::duration;

TEST(Arena, APeerReadsWhatWasShown) {
  Generation generation(2, 1, duration<double>(10));
  auto* memory = reinterpret_cast<std::uint64_t*>(generation.make_segment(0, 24));
  generation.make_segment(1, 0);
  memory[1] = 8;  // table: the buffer lies 8 bytes after the table's start
  memory[2] = 42;
  std::uint64_t read = 0;

  std::thread reader([&] {
    const std::uint64_t* table = generation.acquire(0, 0, 0, 1, {1, "read", "x", 8});
    read = *reinterpret_cast<const std::uint64_t*>(generation.segment(0) + table[0] + 8);
    generation.release(0, 0, 0);
  });
  generation.post(0, 0, 0, 1, 8);
  generation.wait_released(0, 0, 1, {0, "wait for readers", "x", 8});
  reader.join();

  EXPECT_EQ(read, 42U);
}

TEST(Arena, AWaitEndsByTimeOutAndSaysWhere) {
  Generation generation(2, 1, duration<double>(0.02));
  for (int rank = 0; rank < 2; ++rank) generation.make_segment(rank, 0);
  try {
    generation.acquire(1, 0, 0, 1, {0, "read head.max", "head.max", 128});
    FAIL() << "the wait must end";
  } catch (const RuntimeFailure& failure) {
    EXPECT_EQ(failure.site().rank, 0);
    EXPECT_EQ(failure.site().peer, 1);
    EXPECT_STREQ(failure.what(), "[rank 0] read head.max, peer 1, tensor head.max, 128 bytes: timed out after 0.02 s");
  }
}

TEST(Arena, AnAbortEndsEveryWaitAndAFreshGenerationWorks) {
  Generation generation(3, 1, duration<double>(60));
  for (int rank = 0; rank < 3; ++rank) generation.make_segment(rank, 0);
  int failed = 0;
  std::thread waiter([&] {
    try {
      generation.barrier({0, "barrier"});
    } catch (const RuntimeFailure&) {
      ++failed;
    }
  });
  generation.abort("rank 2 died");
  waiter.join();
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(generation.reason(), "rank 2 died");

  Generation fresh(2, 1, duration<double>(60));
  for (int rank = 0; rank < 2; ++rank) fresh.make_segment(rank, 0);
  std::thread other([&] { fresh.barrier({1, "barrier"}); });
  fresh.barrier({0, "barrier"});
  other.join();
}

TEST(Arena, ManyRanksOnFewCoresMeetAgainAndAgain) {
  constexpr int kRanks = 8;
  Generation generation(kRanks, 1, duration<double>(60));
  for (int rank = 0; rank < kRanks; ++rank) generation.make_segment(rank, 0);
  std::vector<std::thread> threads;
  std::atomic<int> total{0};
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int turn = 1; turn <= 100; ++turn) {
        ++total;
        generation.barrier({rank, "barrier"});
        EXPECT_GE(total.load(), turn * kRanks);
        generation.barrier({rank, "barrier"});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Arena, RefusesASenselessGeneration) {
  EXPECT_THROW(Generation(0, 1, duration<double>(1)), InvalidArgument);
  EXPECT_THROW(Generation(1, 1, duration<double>(0)), InvalidArgument);
}

}  // namespace
}  // namespace hspmd
