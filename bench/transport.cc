// A worker of bench/transport: ranks as threads or as processes, which do what each line of input says.
//
//   bench_transport processes 4
//   > ready
//   < check all-reduce 4096            operation and bytes of each rank; are the values right?
//   > right
//   < time all-reduce 4096 1000        times
//   > 0.001234                         seconds of the slowest rank for all of them
//
// Between lines the ranks sleep, so that they cost the others nothing.
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <thread>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/mail.h"

namespace hspmd::bench {
namespace {

constexpr int kMostRanks = 16;
constexpr std::size_t kMostBytes = 64 << 20;
constexpr std::chrono::duration<double> kTimeout(60);

enum class Operation { kPointToPoint, kAllReduce, kReduceScatter, kAllGather };
enum class Task { kCheck, kTime, kQuit };

struct Command {
  Task task = Task::kQuit;
  Operation operation = Operation::kAllReduce;
  std::size_t bytes = 0;
  int times = 1;
};

Command parse(const std::string& line) {
  std::istringstream words(line);
  std::string task, operation;
  Command command;
  words >> task >> operation >> command.bytes;
  command.task = task == "check" ? Task::kCheck : Task::kTime;
  if (command.task == Task::kTime) words >> command.times;
  constexpr std::pair<const char*, Operation> kNames[] = {{"point-to-point", Operation::kPointToPoint},
                                                          {"all-reduce", Operation::kAllReduce},
                                                          {"reduce-scatter", Operation::kReduceScatter},
                                                          {"all-gather", Operation::kAllGather}};
  for (const auto& [name, value] : kNames) {
    if (name != operation) continue;
    command.operation = value;
    if (words && command.bytes <= kMostBytes) return command;
  }
  invalid("[bench] a line must read like: time all-reduce 4096 1000. Received \"{}\".", line);
}

// What the parent and all ranks see: memory that processes inherit.
struct Board {
  sem_t go[kMostRanks];
  sem_t done;
  Command command;
  double seconds[kMostRanks];
  bool right[kMostRanks];
  std::atomic<int> introduced;
  char introductions[kMostRanks][256];
};

// A rank's segment: the blocks of its team and mail, what it brings, and what it receives.
constexpr std::size_t kPage = 4096;
std::size_t mail_block() {
  return (Team::block_bytes() + kPage - 1) / kPage * kPage;
}
std::size_t data_block(int ranks) {
  return (mail_block() + Mail::block_bytes(ranks) + kPage - 1) / kPage * kPage;
}
std::size_t segment_bytes(int ranks) {
  return data_block(ranks) + 2 * kMostBytes;
}

std::vector<int> all_ranks(int ranks) {
  std::vector<int> list(static_cast<std::size_t>(ranks));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

class Rank {
 public:
  Rank(Generation& generation, int rank)
      : rank_(rank),
        ranks_(generation.ranks()),
        team_(generation, all_ranks(generation.ranks()), rank, 0),
        mail_(generation, rank, mail_block()),
        data_(reinterpret_cast<float*>(generation.segment(rank) + data_block(generation.ranks()))),
        into_(data_ + kMostBytes / sizeof(float)) {}

  double time(const Command& command) {
    select(command);
    std::fill_n(data_, elements_, 0.F);  // sums stay finite
    once(command.operation);
    direct_barrier(team_);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < command.times; ++i) once(command.operation);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  bool check(const Command& command) {
    select(command);
    for (std::size_t i = 0; i < elements_; ++i) data_[i] = brought(rank_, i);
    const int sum = ranks_ * (ranks_ + 1) / 2;
    once(command.operation);
    bool right = true;
    for (std::size_t i = 0; i < elements_; ++i) {
      switch (command.operation) {
        case Operation::kPointToPoint:
          right &= data_[i] == brought(rank_ ^ 1, i);
          break;
        case Operation::kAllReduce:
          right &= data_[i] == brought(sum - 1, i);
          break;
        case Operation::kAllGather:
          right &= data_[i] == brought(static_cast<int>(i / parts_[0]), i);
          break;
        case Operation::kReduceScatter: {
          const std::size_t begin = parts_[0] * static_cast<std::size_t>(rank_);
          if (i < parts_[0]) right &= into_[i] == brought(sum - 1, begin + i);
          break;
        }
      }
    }
    direct_barrier(team_);
    return right;
  }

 private:
  // Exact in sums, and another one at each rank and place.
  static float brought(int rank, std::size_t i) { return static_cast<float>(i % 31) * static_cast<float>(rank + 1); }

  void select(const Command& command) {
    elements_ = command.bytes / sizeof(float);
    parts_.assign(static_cast<std::size_t>(ranks_), elements_ / static_cast<std::size_t>(ranks_));
  }

  void once(Operation operation) {
    const std::span<float> data(data_, elements_);
    switch (operation) {
      case Operation::kPointToPoint:
        ping_pong();
        return;
      case Operation::kAllReduce:
        direct_all_reduce<float>(team_, data, Reduction::kSum);
        return;
      case Operation::kReduceScatter:
        direct_reduce_scatter<float>(team_, data, parts_, {into_, parts_[0]}, Reduction::kSum);
        return;
      case Operation::kAllGather:
        direct_all_gather<float>(team_, parts_, data);
        return;
    }
  }

  // Ranks 2i and 2i+1, all pairs at once. What came is what is sent next: nobody may keep old data in his cache.
  void ping_pong() {
    constexpr std::uint64_t kTag = 1;
    const int peer = rank_ ^ 1;
    const std::size_t bytes = elements_ * sizeof(float);
    const WaitSite site{rank_, "ping-pong", "", static_cast<std::int64_t>(bytes)};
    const auto send = [&] { return mail_.isend(peer, kTag, data_, bytes); };
    const auto receive = [&] { return mail_.irecv(peer, kTag, into_, bytes); };
    if (rank_ % 2 == 0) {
      const Mail::Ticket sent = send();
      mail_.wait(receive(), site);
      mail_.wait(sent, site);
    } else {
      mail_.wait(receive(), site);
      mail_.wait(send(), site);
    }
    std::swap(data_, into_);
  }

  int rank_;
  int ranks_;
  Team team_;
  Mail mail_;
  float* data_;
  float* into_;
  std::size_t elements_ = 0;
  std::vector<std::size_t> parts_;
};

void serve(Board& board, Generation& generation, int rank) {
  Rank self(generation, rank);
  while (true) {
    sem_post(&board.done);
    while (sem_wait(&board.go[rank]) != 0) {
    }
    const Command command = board.command;
    switch (command.task) {
      case Task::kQuit:
        return;
      case Task::kCheck:
        board.right[rank] = self.check(command);
        break;
      case Task::kTime:
        board.seconds[rank] = self.time(command);
        break;
    }
  }
}

[[noreturn]] void run_process(Board& board, int rank, int ranks) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    Generation generation({rank, std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 1)}, 0, kTimeout);
    generation.make_segment(rank, segment_bytes(ranks));
    std::snprintf(board.introductions[rank], sizeof(board.introductions[rank]), "%s",
                  generation.introduction().c_str());
    board.introduced.fetch_add(1);
    generation.wait([&] { return board.introduced.load() == ranks; }, {rank, "introduction"}, std::nullopt);
    generation.meet({board.introductions, board.introductions + ranks});
    serve(board, generation, rank);
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(2);
  }
}

void wait_for_all(Board& board, int ranks) {
  timespec end{};
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 100;
  for (int rank = 0; rank < ranks; ++rank) {
    if (sem_timedwait(&board.done, &end) != 0) throw RuntimeFailure("[bench] a rank is lost");
  }
}

// Answers lines until there are no more.
void direct(Board& board, int ranks) {
  const auto all_do = [&](const Command& command) {
    board.command = command;
    for (int rank = 0; rank < ranks; ++rank) sem_post(&board.go[rank]);
    if (command.task != Task::kQuit) wait_for_all(board, ranks);
  };
  wait_for_all(board, ranks);
  std::puts("ready");
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    const Command command = parse(line);
    all_do(command);
    if (command.task == Task::kCheck) {
      std::puts(std::all_of(board.right, board.right + ranks, [](bool right) { return right; }) ? "right" : "wrong");
    } else {
      std::printf("%.9f\n", *std::max_element(board.seconds, board.seconds + ranks));
    }
    std::fflush(stdout);
  }
  all_do({});
}

void run_threads(Board& board, int ranks) {
  Generation generation(ranks, 0, kTimeout);
  for (int rank = 0; rank < ranks; ++rank) generation.make_segment(rank, segment_bytes(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        serve(board, generation, rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        _exit(2);
      }
    });
  }
  direct(board, ranks);
  for (std::thread& thread : threads) thread.join();
}

void run_processes(Board& board, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) run_process(board, rank, ranks);
  }
  direct(board, ranks);
  while (wait(nullptr) > 0) {
  }
}

int run(const std::string& kind, const std::string& count) {
  const int ranks = std::atoi(count.c_str());
  if ((kind != "threads" && kind != "processes") || ranks < 2 || ranks > kMostRanks || ranks % 2 != 0)
    invalid("[bench] the arguments must be threads or processes, and an even number of ranks. Received {} {}.", kind,
            count);
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw RuntimeFailure("[bench] the system must have memory for the board");
  auto& board = *static_cast<Board*>(memory);
  sem_init(&board.done, 1, 0);
  for (sem_t& go : board.go) sem_init(&go, 1, 0);
  if (kind == "threads") {
    run_threads(board, ranks);
  } else {
    run_processes(board, ranks);
  }
  return 0;
}

}  // namespace
}  // namespace hspmd::bench

int main(int argc, char** argv) {
  try {
    return hspmd::bench::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
