#include "hspmd/runtime/transport/messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "hspmd/runtime/transport/child_ranks.h"
#include "hspmd/runtime/transport/envelope.h"
#include "hspmd/runtime/transport/network_interfaces.h"

namespace hspmd {
namespace {

using std::chrono::duration;

void with_ranks(int ranks, const std::function<void(ChildRank&)>& body) {
  EXPECT_EQ(failures_of(run_ranks(ranks, body)), "") << ranks << " ranks";
}

constexpr duration<double> kTimeout(20);
constexpr std::size_t kMiB = std::size_t{1} << 20;

MessagesOptions over_lo(const ChildRank& self) {
  return {.interface = "lo", .rank = self.rank(), .ranks = self.ranks()};
}

std::vector<int> all_ranks(const ChildRank& self) {
  std::vector<int> ranks(static_cast<std::size_t>(self.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>((i * 131 + static_cast<std::size_t>(seed) * 7) % 251);
  return data;
}

// The text of the Failure that the call must throw.
template <typename Failure>
std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  throw std::runtime_error("a failure must be thrown");
}

void require_text(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, fmt::format("\"{}\" must hold \"{}\"", text, part));
}

// One process's end of messages with all others; waits end by abort or after the time-out.
struct End {
  AbortFlag abort;
  Messages messages;
  duration<double> timeout = kTimeout;

  explicit End(ChildRank& self, int key = 0) : messages(over_lo(self)) { self.connect(messages, key, all_ranks(self)); }
  void wait(Messages::Ticket ticket) { messages.wait(ticket, {messages.rank(), "wait", "x", 1}, abort, timeout); }
  void send(int peer, std::uint64_t tag, const std::vector<std::byte>& data) {
    wait(messages.isend(peer, tag, data.data(), data.size()));
  }
  void receive(int peer, std::uint64_t tag, std::vector<std::byte>& data) {
    wait(messages.irecv(peer, tag, data.data(), data.size()));
  }
  // Everybody has come this far.
  void meet(std::uint64_t tag = 999) {
    std::vector<std::byte> mark(1);
    for (int peer = 0; peer < messages.ranks(); ++peer) {
      if (peer != messages.rank()) send(peer, tag, mark);
    }
    for (int peer = 0; peer < messages.ranks(); ++peer) {
      if (peer != messages.rank()) receive(peer, tag, mark);
    }
  }
};

TEST(Envelope, GivesBackWhatWasSealedAndRefusesDamage) {
  const Envelope envelope{Envelope::Kind::kMemory, 3, 77, std::string("ab\0c", 4)};
  const std::string text = seal(envelope);

  EXPECT_EQ(unseal(text, Envelope::Kind::kMemory, 3), envelope);
  EXPECT_THROW((void)unseal(text, Envelope::Kind::kAddress, 3), InvalidArgument);
  EXPECT_THROW((void)unseal(text, Envelope::Kind::kMemory, 2), InvalidArgument);
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_THROW((void)unseal(text.substr(0, length), Envelope::Kind::kMemory, 3), InvalidArgument) << length;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_THROW((void)unseal(damaged, Envelope::Kind::kMemory, 3), InvalidArgument) << at;
  }
}

TEST(NetworkInterfaces, HoldsTheLoopbackForTcpOnly) {
  const auto names = network_interfaces("tcp,self");

  EXPECT_NE(std::find(names.begin(), names.end(), "lo"), names.end());
  for (const std::string& name : network_interfaces("rc,ud,self")) EXPECT_NE(name.find(':'), std::string::npos) << name;
  EXPECT_TRUE(network_interfaces("self").empty());
}

TEST(Messages, RefusesWhatItCannotUse) {
  with_ranks(1, [](ChildRank&) {
    const auto made = [](MessagesOptions options) {
      return failure_of<InvalidArgument>([&] { const Messages messages(options); });
    };
    require_text(made({.interface = "nope0"}), "lo");
    require_text(made({.interface = ""}), "must be one of those there");
    require_text(made({.interface = "lo", .transports = "rc,self"}), "must be one of those there");
    require_text(made({.interface = "lo", .rank = 2, .ranks = 2}), "rank 2 of 2");
    require_text(made({.interface = "lo", .rank = 0, .ranks = kMaxMessageRanks + 1}), "at most 65536");

    Messages messages({.interface = "lo", .rank = 0, .ranks = 3});
    const auto call = [](const std::function<void()>& body) { return failure_of<InvalidArgument>(body); };
    char byte = 0;
    require_text(call([&] { messages.isend(1, 0, &byte, 1); }), "must be connected");
    require_text(call([&] { messages.irecv(7, 0, &byte, 1); }), "must be connected");
    require_text(call([&] { messages.connect(0, messages.address()); }), "another rank");
    require_text(call([&] { messages.connect(3, messages.address()); }), "another rank");
    require_text(call([&] { messages.connect(1, messages.address()); }), "made by rank 0");
    require_text(call([&] { messages.connect(1, "hspmdmsg"); }), "only 8 bytes");
    require_text(call([&] { messages.expose(&byte, 0); }), "must have bytes");
    messages.close();
    messages.close();
  });
}

TEST(Messages, AnyNumberOfRanksExchangeAnySize) {
  for (const int ranks : {2, 3, 4, 7, 8}) {
    with_ranks(ranks, [](ChildRank& self) {
      std::vector<std::vector<std::byte>> from(static_cast<std::size_t>(self.ranks()));
      std::vector<std::byte> mine;
      End end(self);
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{100003}, kMiB}) {
        mine = pattern(bytes, self.rank());
        std::vector<Messages::Ticket> tickets;
        for (int peer = 0; peer < self.ranks(); ++peer) {
          if (peer == self.rank()) continue;
          auto& data = from[static_cast<std::size_t>(peer)];
          data.assign(bytes, std::byte{0});
          tickets.push_back(end.messages.irecv(peer, bytes, data.data(), bytes));
          tickets.push_back(end.messages.isend(peer, bytes, mine.data(), bytes));
        }
        for (const Messages::Ticket ticket : tickets) end.wait(ticket);
        for (int peer = 0; peer < self.ranks(); ++peer) {
          if (peer != self.rank())
            require(from[static_cast<std::size_t>(peer)] == pattern(bytes, peer),
                    fmt::format("{} bytes of rank {} must arrive", bytes, peer));
        }
      }
      end.meet();
    });
  }
}

TEST(Messages, TagsMayBeReceivedInAnyOrderAndEarlyMessagesWait) {
  with_ranks(2, [](ChildRank& self) {
    const std::vector<std::size_t> sizes{3, 0, 70001, 2 * kMiB, 5, 9000};
    std::vector<std::vector<std::byte>> data;
    End end(self);
    std::vector<Messages::Ticket> tickets;
    if (self.rank() == 0) {
      for (std::size_t tag = 0; tag < sizes.size(); ++tag) data.push_back(pattern(sizes[tag], static_cast<int>(tag)));
      for (std::size_t tag = 0; tag < sizes.size(); ++tag)
        tickets.push_back(end.messages.isend(1, tag, data[tag].data(), sizes[tag]));
      const auto last = end.messages.isend(1, 99, nullptr, 0);
      for (const auto ticket : tickets) end.wait(ticket);
      end.wait(last);
    } else {
      end.wait(end.messages.irecv(0, 99, nullptr, 0));  // the others are here, unexpected
      for (std::size_t tag = sizes.size(); tag-- > 0;) {
        std::vector<std::byte> got(sizes[tag]);
        end.receive(0, tag, got);
        require(got == pattern(sizes[tag], static_cast<int>(tag)), "data must arrive");
      }
    }
    const std::uint64_t highest = (std::uint64_t{1} << kMessageTagBits) - 1;
    end.meet(highest);
    require_text(failure_of<InvalidArgument>([&] { end.messages.isend(1 - self.rank(), highest + 1, nullptr, 0); }),
                 "must be below 2^48");
  });
}

TEST(Messages, OfOneTagArriveInOrder) {
  with_ranks(2, [](ChildRank& self) {
    constexpr int kCount = 2000;
    std::vector<int> values(kCount);
    End end(self);
    std::vector<Messages::Ticket> tickets;
    for (int i = 0; i < kCount; ++i) {
      int& value = values[static_cast<std::size_t>(i)];
      if (self.rank() == 0) value = i;
      tickets.push_back(self.rank() == 0 ? end.messages.isend(1, 5, &value, sizeof value)
                                         : end.messages.irecv(0, 5, &value, sizeof value));
    }
    for (const auto ticket : tickets) end.wait(ticket);
    for (int i = 0; i < kCount; ++i) require(values[static_cast<std::size_t>(i)] == i, "the order must stay");
    for (const auto ticket : tickets) require(end.messages.done(ticket), "done stays done");
    end.meet();
  });
}

TEST(Messages, OfAnotherSizeThanExpectedFailWithBothSizes) {
  with_ranks(2, [](ChildRank& self) {
    std::vector<std::byte> data = pattern(2 * kMiB, 1);
    End end(self);
    std::uint64_t tag = 0;
    for (const std::size_t sent : {std::size_t{100}, std::size_t{20000}, 2 * kMiB}) {
      for (const std::size_t expected : {sent / 2, sent - 1, std::size_t{0}}) {
        for (const bool early : {true, false}) {
          ++tag;
          const std::uint64_t mark = tag + 1000;
          if (self.rank() == 0) {
            if (!early) end.meet(mark);
            const auto first = end.messages.isend(1, tag, data.data(), sent);
            if (early) end.meet(mark);
            end.wait(first);
            end.wait(end.messages.isend(1, tag, data.data(), expected));
            continue;
          }
          if (early) end.meet(mark);
          const auto longer = failure_of<RuntimeFailure>([&] {
            const auto ticket = end.messages.irecv(0, tag, data.data(), expected);
            if (!early) end.meet(mark);
            end.wait(ticket);
          });
          const auto shorter =
              failure_of<RuntimeFailure>([&] { end.wait(end.messages.irecv(0, tag, data.data(), sent)); });
          require_text(longer, fmt::format("the message has {} bytes, its receiver expected {}", sent, expected));
          require_text(shorter, fmt::format("the message has {} bytes, its receiver expected {}", expected, sent));
          require_text(shorter, "peer 0");
        }
      }
    }
    end.meet();
  });
}

TEST(Messages, AGetReadsInsideWhatWasExposedOnly) {
  with_ranks(2, [](ChildRank& self) {
    std::vector<std::byte> memory = pattern(3 * kMiB + 5, 40 + self.rank());
    std::vector<std::byte> got(memory.size());
    End end(self);
    const int peer = 1 - self.rank();
    self.publish(1, end.messages.expose(memory.data(), memory.size()));
    const std::string description = self.fetch(1, peer);
    const Messages::Remote remote = end.messages.import_memory(peer, description);
    const std::vector<std::byte> theirs = pattern(memory.size(), 40 + peer);

    for (const auto& [offset, bytes] : std::vector<std::pair<std::size_t, std::size_t>>{
             {0, 1}, {7, 4097}, {0, memory.size()}, {memory.size() - 1, 1}, {5, 0}}) {
      got.assign(memory.size(), std::byte{0});
      end.wait(end.messages.iget(remote, offset, got.data(), bytes));
      require(
          std::equal(got.begin(), got.begin() + static_cast<long>(bytes), theirs.begin() + static_cast<long>(offset)),
          fmt::format("{} bytes at {} must be read", bytes, offset));
    }
    const auto read = [&](std::uint64_t offset, std::size_t bytes) {
      return failure_of<InvalidArgument>([&] { end.messages.iget(remote, offset, got.data(), bytes); });
    };
    require_text(read(memory.size(), 1), "must lie in the 3145733 bytes");
    require_text(read(0, memory.size() + 1), "must lie in");
    require_text(read(~std::uint64_t{0}, 2), "must lie in");
    require_text(read(1, ~std::size_t{0}), "must lie in");
    std::string damaged = description;
    damaged.back() = static_cast<char>(damaged.back() + 1);
    require_text(failure_of<InvalidArgument>([&] { (void)end.messages.import_memory(peer, damaged); }), "checksum");
    end.meet();
  });
}

TEST(Messages, AWaitEndsByTimeOutAndByAbort) {
  with_ranks(2, [](ChildRank& self) {
    std::vector<std::byte> data(4 * kMiB);
    End end(self);
    end.meet();
    const int peer = 1 - self.rank();
    end.timeout = duration<double>(0.05);
    const auto never = end.messages.irecv(peer, 1, data.data(), 16);
    require_text(failure_of<RuntimeFailure>([&] { end.wait(never); }),
                 fmt::format("[rank {}] wait, peer {}, tensor x, 1 bytes: timed out after 0.05 s", self.rank(), peer));

    end.timeout = kTimeout;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      end.abort.raise("rank 2 died");
    });
    const auto start = std::chrono::steady_clock::now();
    // A rendezvous that its receiver never answers, and one that nobody sends.
    const auto sent = end.messages.isend(peer, 2, data.data(), data.size());
    const auto text = failure_of<RuntimeFailure>([&] {
      end.wait(end.messages.irecv(peer, 3, data.data(), data.size()));
      end.wait(sent);
    });
    other.join();
    require_text(text, "aborted: rank 2 died");
    require(std::chrono::steady_clock::now() - start < std::chrono::seconds(2), "an abort must end a wait soon");
    self.publish(1, "aborted");
    static_cast<void>(self.fetch(1, peer));
    end.messages.close();
  });
}

// Rank 2 dies; the others notice, close, and go on as two with fresh messages.
TEST(Messages, SurvivorsOfAKilledPeerFailInTimeAndGoOn) {
  // How far rank 2 gets before it dies: at once, inside a rendezvous of sends, of receives, while it is read from.
  enum class Death { kIdle, kSending, kReceiving, kRead };
  for (const Death death : {Death::kIdle, Death::kSending, Death::kReceiving, Death::kRead}) {
    const auto outcomes = run_ranks(3, [&](ChildRank& self) {
      constexpr int kVictim = 2;
      std::vector<std::byte> in(32 * kMiB);
      std::vector<std::byte> out(32 * kMiB);
      std::chrono::steady_clock::time_point start;
      {
        End end(self);
        self.publish(1, end.messages.expose(out.data(), out.size()));
        end.meet();
        if (self.rank() == kVictim) {
          for (const int peer : {0, 1}) {
            if (death == Death::kSending) end.messages.isend(peer, 7, out.data(), out.size());
            if (death == Death::kReceiving) end.messages.irecv(peer, 7, in.data(), in.size());
          }
          for (int i = 0; i < 100; ++i) end.messages.progress();
          kill(getpid(), SIGKILL);
        }
        const auto remote = end.messages.import_memory(kVictim, self.fetch(1, kVictim));
        const auto operation = [&] {
          if (death == Death::kReceiving) return end.messages.isend(kVictim, 7, out.data(), out.size());
          if (death == Death::kRead) return end.messages.iget(remote, 0, in.data(), in.size());
          return end.messages.irecv(kVictim, 7, in.data(), in.size());
        };
        const auto fails = [&](const std::function<Messages::Ticket()>& begin) {
          return failure_of<RuntimeFailure>([&] {
            while (true) end.wait(begin());  // one may still succeed
          });
        };
        start = std::chrono::steady_clock::now();
        require_text(fails(operation), "peer 2");
        require_text(fails([&] { return end.messages.isend(kVictim, 8, out.data(), 1); }), "peer 2");
        require_text(fails([&] { return end.messages.irecv(kVictim, 8, in.data(), 1); }), "peer 2");
        end.messages.close();
      }
      require(std::chrono::steady_clock::now() - start < std::chrono::seconds(3), "survivors must be quick");

      AbortFlag abort;
      Messages fresh({.interface = "lo", .rank = self.rank(), .ranks = 2});
      self.connect(fresh, 2, {0, 1});
      const WaitSite site{self.rank(), "exchange", "y", 0};
      const auto received = fresh.irecv(1 - self.rank(), 7, in.data(), in.size());
      const auto sent = fresh.isend(1 - self.rank(), 7, out.data(), out.size());
      fresh.wait(received, site, abort, kTimeout);
      fresh.wait(sent, site, abort, kTimeout);
    });

    EXPECT_EQ(failures_of({outcomes[0], outcomes[1]}), "") << static_cast<int>(death);
    EXPECT_EQ(outcomes[2].signal, SIGKILL) << outcomes[2].text;
  }
}

TEST(Messages, LeavingInOrderLosesNothing) {
  with_ranks(2, [](ChildRank& self) {
    std::vector<std::byte> data = pattern(300000, 9);
    std::vector<std::byte> got(data.size());
    End end(self);
    if (self.rank() == 0) {
      end.send(1, 1, data);
      end.messages.close();
      return;
    }
    end.receive(0, 1, got);
    require(got == data, "what was sent must arrive after its sender has closed");
  });
}

// Two network namespaces joined by a pair of virtual devices, as two hosts are by a cable.
class TwoHosts {
 public:
  TwoHosts() {
    ok_ = true;
    for (const int host : {0, 1}) run(fmt::format("ip netns add {}", name(host)));
    run(fmt::format("ip link add hspmd0 netns {} type veth peer name hspmd1 netns {}", name(0), name(1)));
    for (const int host : {0, 1}) {
      run(fmt::format("ip -n {} addr add 10.77.0.{}/24 dev hspmd{}", name(host), host + 1, host));
      run(fmt::format("ip -n {} link set hspmd{} up", name(host), host));
      run(fmt::format("ip -n {} link set lo up", name(host)));
    }
  }
  ~TwoHosts() {
    for (const int host : {0, 1}) run(fmt::format("ip netns del {}", name(host)));
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  [[nodiscard]] bool ok() const { return ok_; }
  void enter(int host) const {
    const int there = open(("/run/netns/" + name(host)).c_str(), O_RDONLY);
    require(there >= 0 && setns(there, CLONE_NEWNET) == 0, "a host must be entered");
    require(unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0 &&
                mount("hspmd", "/sys", "sysfs", 0, nullptr) == 0,
            "/sys, where UCX looks for interfaces, must show the host's");
    ::close(there);
  }

 private:
  [[nodiscard]] static std::string name(int host) { return fmt::format("hspmd_test_{}_{}", getpid_of_test(), host); }
  [[nodiscard]] static int getpid_of_test() {
    static const int pid = getpid();
    return pid;
  }
  void run(const std::string& command) { ok_ = std::system((command + " 2>/dev/null").c_str()) == 0 && ok_; }

  bool ok_ = false;
};

TEST(Messages, TravelBetweenHosts) {
  const TwoHosts hosts;
  if (!hosts.ok()) GTEST_SKIP() << "network namespaces cannot be made here";

  with_ranks(2, [&](ChildRank& self) {
    std::vector<std::byte> out = pattern(5 * kMiB + 1, self.rank());
    std::vector<std::byte> in(out.size());
    hosts.enter(self.rank());
    const std::string interface = fmt::format("hspmd{}", self.rank());
    for (int i = 0; i < 200 && network_interfaces("tcp").size() < 2; ++i) usleep(10000);
    require_text(failure_of<InvalidArgument>([&] { const Messages messages({.interface = "eth0"}); }), interface);
    AbortFlag abort;
    Messages messages({.interface = interface, .rank = self.rank(), .ranks = 2});
    const int peer = 1 - self.rank();
    self.connect(messages, 0, {0, 1});
    const WaitSite site{self.rank(), "exchange", "z", 0};
    const auto received = messages.irecv(peer, 7, in.data(), in.size());
    const auto sent = messages.isend(peer, 7, out.data(), out.size());
    messages.wait(received, site, abort, kTimeout);
    messages.wait(sent, site, abort, kTimeout);
    require(in == pattern(out.size(), peer), "data must travel between hosts");
  });
}

// As when a host loses power: nothing answers, nothing refuses.
TEST(Messages, AHostThatDoesNotAnswerEndsAWaitByTimeOut) {
  const TwoHosts hosts;
  if (!hosts.ok()) GTEST_SKIP() << "network namespaces cannot be made here";

  const auto body = [&](ChildRank& self) {
    std::byte byte{};
    hosts.enter(self.rank());
    const std::string interface = fmt::format("hspmd{}", self.rank());
    for (int i = 0; i < 200 && network_interfaces("tcp").size() < 2; ++i) usleep(10000);
    AbortFlag abort;
    Messages messages({.interface = interface, .rank = self.rank(), .ranks = 2});
    self.publish(0, messages.address());
    const std::string address = self.fetch(0, 1 - self.rank());
    if (self.rank() == 1) return static_cast<void>(self.fetch(1, 0));
    require(std::system("ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:01 dev hspmd0") == 0, "no false neighbour");
    const auto start = std::chrono::steady_clock::now();
    messages.connect(1, address);
    require_text(failure_of<RuntimeFailure>([&] {
                   messages.wait(messages.irecv(1, 1, &byte, 1), {0, "receive"}, abort, duration<double>(0.3));
                 }),
                 "timed out after 0.3 s");
    messages.close();
    require(std::chrono::steady_clock::now() - start < std::chrono::seconds(2), "a silent host must not hold a rank");
    self.publish(1, "over");
  };

  with_ranks(2, body);
}

}  // namespace
}  // namespace hspmd
