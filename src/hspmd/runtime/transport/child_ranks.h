// For tests and benches: ranks as real processes. They are forked before any UCX context is made, share a board on
// which each publishes what the others need, and report by their exit code and a text.
//
//   const auto outcomes = run_ranks(3, [](ChildRank& self) { self.publish(0, "hello"); require(self.fetch(0, 2) ==
//   "hello", "..."); }); EXPECT_EQ(failures_of(outcomes), "");
#pragma once

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/messages.h"

namespace hspmd {

inline constexpr int kBoardRanks = 8;
inline constexpr int kBoardKeys = 8;

// Shared memory; a note is written once.
struct BoardNote {
  std::atomic<std::size_t> bytes{0};  // 0: not there yet
  char text[4096];
};
struct Board {
  BoardNote notes[kBoardKeys][kBoardRanks];
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

class ChildRank {
 public:
  ChildRank(int rank, int ranks, Board* board) : rank_(rank), ranks_(ranks), board_(board) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

  void publish(int key, const std::string& text) {
    BoardNote& note = board_->notes[key][rank_];
    require(!text.empty() && text.size() <= sizeof note.text, "a note has from 1 to 4096 bytes");
    std::memcpy(note.text, text.data(), text.size());
    note.bytes.store(text.size(), std::memory_order_release);
  }

  [[nodiscard]] bool published(int key, int rank) const {
    return board_->notes[key][rank].bytes.load(std::memory_order_acquire) != 0;
  }

  [[nodiscard]] std::string fetch(int key, int rank) const {
    const BoardNote& note = board_->notes[key][rank];
    const auto start = std::chrono::steady_clock::now();
    while (!published(key, rank)) {
      sched_yield();
      require(std::chrono::steady_clock::now() - start < std::chrono::seconds(20), "a note did not come in 20 s");
    }
    return {note.text, note.bytes.load(std::memory_order_acquire)};
  }

  // Publishes the address and connects to all others of `ranks`.
  void connect(Messages& messages, int key, const std::vector<int>& ranks) {
    publish(key, messages.address());
    for (const int peer : ranks) {
      if (peer != rank_) messages.connect(peer, fetch(key, peer));
    }
  }

 private:
  int rank_;
  int ranks_;
  Board* board_;
};

// How a child ended: by a signal, or with a text that is empty if all went well.
struct ChildOutcome {
  int rank = 0;
  int signal = 0;
  std::string text;
};

[[noreturn]] inline void be_child(int rank, int ranks, Board* board, int report, pid_t parent,
                                  const std::function<void(ChildRank&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(3);
  std::string text;
  try {
    ChildRank self(rank, ranks, board);
    body(self);
  } catch (const std::exception& error) {
    text = error.what();
    if (text.empty()) text = "an exception without a text";
  }
  text.resize(std::min<std::size_t>(text.size(), PIPE_BUF));
  const bool told = write(report, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(text.empty() && told ? 0 : 1);
}

// The children that still run after `limit` are killed, and say so.
inline std::vector<ChildOutcome> run_ranks(int ranks, const std::function<void(ChildRank&)>& body,
                                           std::chrono::seconds limit = std::chrono::seconds(30)) {
  require(ranks <= kBoardRanks, "the board has room for 8 ranks");
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "no memory for the board");
  auto* board = new (memory) Board;
  std::vector<ChildOutcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<pid_t> pids;
  std::vector<int> reports;
  const pid_t parent = getpid();
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    require(pipe(ends) == 0, "no pipe");
    const pid_t pid = fork();
    require(pid >= 0, "no fork");
    if (pid == 0) be_child(rank, ranks, board, ends[1], parent, body);
    ::close(ends[1]);
    reports.push_back(ends[0]);
    pids.push_back(pid);
  }

  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ChildOutcome& outcome = outcomes[at];
    outcome.rank = rank;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{reports[at], POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(std::max<long>(left.count(), 0))) == 0) {
      outcome.text = "did not end in time";
      kill(pids[at], SIGKILL);
    }
    char text[PIPE_BUF];
    const ssize_t bytes = read(reports[at], text, sizeof text);
    if (outcome.text.empty() && bytes > 0) outcome.text.assign(text, static_cast<std::size_t>(bytes));
    int status = 0;
    waitpid(pids[at], &status, 0);
    ::close(reports[at]);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && outcome.text.empty())
      outcome.text = fmt::format("exit code {}", WEXITSTATUS(status));
  }
  munmap(memory, sizeof(Board));
  return outcomes;
}

// One line a child that did not end well.
inline std::string failures_of(const std::vector<ChildOutcome>& outcomes) {
  std::string text;
  for (const ChildOutcome& outcome : outcomes) {
    if (outcome.signal != 0)
      text += fmt::format("rank {}: killed by signal {}. {}\n", outcome.rank, outcome.signal, outcome.text);
    else if (!outcome.text.empty())
      text += fmt::format("rank {}: {}\n", outcome.rank, outcome.text);
  }
  return text;
}

}  // namespace hspmd
