// How fast messages between two processes and the collectives of four are: one-way latency, bandwidth, all-reduce.
//   bench_messages [INTERFACE]        lo unless named
#include <cstdlib>

#include "bars.h"
#include "hspmd/runtime/transport/child_ranks.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::duration<double> kTimeout(60);

struct Member {
  AbortFlag abort;
  Messages messages;
  MessageGroup group;

  Member(ChildRank& self, const std::string& interface, const std::vector<int>& ranks)
      : messages({.interface = interface, .rank = self.rank(), .ranks = self.ranks()}),
        group(messages, ranks, 0, abort, kTimeout) {
    self.connect(messages, 0, ranks);
    dissemination_barrier(group);
  }
  void wait(Messages::Ticket ticket) { messages.wait(ticket, {messages.rank(), "bench"}, abort, kTimeout); }
};

// Microseconds that one call takes; the median of 9 rounds.
template <typename Call>
double microseconds(MessageGroup& group, int calls, Call call) {
  std::vector<double> rounds;
  for (int round = 0; round < 10; ++round) {
    dissemination_barrier(group);
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    if (round > 0) rounds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls);
  }
  return quantile(rounds, 0.5);
}

int calls_for(std::size_t bytes) {
  return bytes <= 65536 ? 500 : bytes <= (4U << 20) ? 20 : 2;
}

void pair(ChildRank& self, const std::string& interface) {
  std::vector<std::byte> data(std::size_t{64} << 20);
  Member member(self, interface, {0, 1});
  Messages& messages = member.messages;
  const int peer = 1 - self.rank();
  const std::string exposed = messages.expose(data.data(), data.size());
  self.publish(1, exposed);
  const auto remote = messages.import_memory(peer, self.fetch(1, peer));
  if (self.rank() == 0) fmt::print("two processes         half a round trip, us    MB/s      get, us\n");
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{4096}, std::size_t{65536}, std::size_t{1} << 20, data.size()}) {
    const double trip = microseconds(member.group, calls_for(bytes), [&] {
      if (self.rank() == 0) member.wait(messages.isend(1, 1, data.data(), bytes));
      member.wait(messages.irecv(peer, 1, data.data(), bytes));
      if (self.rank() == 1) member.wait(messages.isend(0, 1, data.data(), bytes));
    });
    const double get = microseconds(member.group, std::max(2, calls_for(bytes) / 10), [&] {
      if (self.rank() == 0) member.wait(messages.iget(remote, 0, data.data(), bytes));
      dissemination_barrier(member.group);
    });
    if (self.rank() == 0)
      fmt::print("{:>12} bytes {:>20.1f} {:>17.0f} {:>10.1f}\n", bytes, trip / 2,
                 static_cast<double>(bytes) / (trip / 2), get);
  }
}

void all(ChildRank& self, const std::string& interface) {
  std::vector<float> data(std::size_t{16} << 20);
  std::vector<int> ranks;
  for (int r = 0; r < self.ranks(); ++r) ranks.push_back(r);
  Member member(self, interface, ranks);
  if (self.rank() == 0) fmt::print("{} processes           all-reduce: ring, us    doubling, us\n", self.ranks());
  for (const std::size_t bytes :
       {std::size_t{4096}, std::size_t{65536}, std::size_t{1} << 20, std::size_t{4} << 20, data.size() * 4}) {
    const auto part = std::span(data).first(bytes / 4);
    const double ring = microseconds(member.group, std::max(2, calls_for(bytes) / 5),
                                     [&] { ring_all_reduce<float>(member.group, part, Reduction::kMax); });
    const double doubling = microseconds(member.group, std::max(2, calls_for(bytes) / 5), [&] {
      recursive_doubling_all_reduce<float>(member.group, part, Reduction::kMax);
    });
    if (self.rank() == 0) fmt::print("{:>12} bytes {:>30.0f} {:>15.0f}\n", bytes, ring, doubling);
  }
  const double barrier = microseconds(member.group, 200, [&] { dissemination_barrier(member.group); });
  if (self.rank() == 0) fmt::print("barrier {:.1f} us\n", barrier);
}

int main_of(const std::string& interface) {
  std::string failures;
  const auto run = [&](int ranks, void (*body)(ChildRank&, const std::string&)) {
    failures += failures_of(run_ranks(
        ranks,
        [&](ChildRank& self) {
          body(self, interface);
          std::fflush(stdout);
        },
        std::chrono::seconds(120)));
  };
  run(2, pair);
  run(2, all);
  run(4, all);
  std::fputs(failures.c_str(), stderr);
  return failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace hspmd::bench

int main(int argc, char** argv) {
  return hspmd::bench::main_of(argc > 1 ? argv[1] : "lo");
}
