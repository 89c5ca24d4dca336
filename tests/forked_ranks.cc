#include "forked_ranks.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/wait.h"

namespace hspmd::testing {
namespace {

constexpr int kMostRanks = 16;
constexpr int kMostGathers = 256;
constexpr std::size_t kMostBytes = 2000;

// Zero at first; every gather has a row of its own.
struct Board {
  struct Cell {
    std::atomic<std::uint32_t> written;
    char text[kMostBytes];
  };
  Cell cells[kMostGathers][kMostRanks];
  std::atomic<std::uint32_t> aborted;
  char reason[kMostBytes];
};

class BoardRendezvous final : public Rendezvous {
 public:
  BoardRendezvous(Board& board, int rank, int ranks, double timeout_s)
      : board_(board), rank_(rank), ranks_(ranks), timeout_s_(timeout_s), watcher_([this] { watch(); }) {}
  ~BoardRendezvous() override {
    stop_ = true;
    watcher_.join();
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }

  std::vector<std::string> all_gather(const std::string& name, const std::string& value) override {
    check_internal(value.size() < kMostBytes && gathers_ < kMostGathers, "the board is large enough");
    auto& row = board_.cells[gathers_++];
    std::memcpy(row[rank_].text, value.c_str(), value.size() + 1);
    row[rank_].written.store(1, std::memory_order_release);
    std::vector<std::string> values;
    for (int r = 0; r < ranks_; ++r) {
      const WaitSite site{rank_, name.c_str()};
      wait_until([&] { return row[r].written.load(std::memory_order_acquire) != 0; },
                 {&flag_, std::chrono::duration<double>(timeout_s_)}, site, r);
      values.emplace_back(row[r].text);
    }
    return values;
  }
  void abort(const std::string& reason) override {
    std::strncpy(board_.reason, reason.c_str(), kMostBytes - 1);
    board_.aborted.store(1, std::memory_order_release);
  }
  int on_abort(AbortCallback callback) override { return subscribers_.add(std::move(callback)); }
  void forget(int subscription) override { subscribers_.remove(subscription); }

 private:
  void watch() {
    while (!stop_) {
      if (board_.aborted.load(std::memory_order_acquire) != 0) {
        flag_.raise(board_.reason);
        subscribers_.tell(board_.reason);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Board& board_;
  int rank_;
  int ranks_;
  double timeout_s_;
  int gathers_ = 0;
  AbortFlag flag_;
  AbortSubscribers subscribers_;
  std::atomic<bool> stop_{false};
  std::thread watcher_;
};

[[noreturn]] void run_child(Board& board, int rank, int ranks, const RankFunction& run, double timeout_s) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = kThrew;
  try {
    BoardRendezvous rendezvous(board, rank, ranks, timeout_s);
    code = run(rendezvous);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

std::vector<int> fork_ranks(int ranks, const RankFunction& run, const ForkOptions& options) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check_internal(memory != MAP_FAILED && ranks <= kMostRanks, "the board fits");
  auto& board = *static_cast<Board*>(memory);
  std::fflush(nullptr);
  std::vector<int> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(board, rank, ranks, run, options.timeout_s);
    children.push_back(child);
  }
  if (options.meanwhile) options.meanwhile(children);
  std::vector<int> codes(children.size(), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.timeout_s);
  for (std::size_t r = 0; r < children.size(); ++r) {
    int status = 0;
    while (waitpid(children[r], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        for (std::size_t other = r; other < children.size(); ++other) kill(children[other], SIGKILL);
        waitpid(children[r], &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  munmap(memory, sizeof(Board));
  return codes;
}

}  // namespace hspmd::testing
