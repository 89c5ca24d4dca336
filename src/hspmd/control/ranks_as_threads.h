// Ranks as threads for tests: runs `run` for every rank and gives what each threw, "" where nothing.
//
//   EXPECT_THAT(run_ranks(3, [&](int rank) { ... }), testing::Each(""));
#pragma once

#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace hspmd::testing {

template <typename Run>
[[nodiscard]] std::vector<std::string> run_ranks(int ranks, Run run) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace hspmd::testing
