#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <future>

#include "hspmd/base/errors.h"
#include "hspmd/control/control_client.h"
#include "hspmd/control/control_server.h"
#include "hspmd/control/ranks_as_threads.h"

namespace hspmd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_ranks;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr const char* kToken = "a-token-for-tests";
constexpr int kAbortedCode = 7;

ControlOptions options(int ranks, Seconds heartbeat_timeout = 10s) {
  return {.token = kToken, .ranks = ranks, .heartbeat_timeout = heartbeat_timeout};
}
ClientOptions member(const std::string& address, int rank, int ranks, Seconds timeout = 10s) {
  return {.address = address, .token = kToken, .rank = rank, .ranks = ranks, .timeout = timeout};
}
double since_ms(Clock::time_point start) {
  return Seconds(Clock::now() - start).count() * 1000;
}

template <typename Thrown, typename Act>
std::string thrown(Act act) {
  try {
    act();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// ---- processes: this program again, as a member or as a server ----

class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int ends[2] = {};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), "/proc/self/exe");
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = ends[0];
  }
  ~Child() {
    close(output_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void send(int signal) const { kill(pid_, signal); }
  std::string line() const {
    std::string text;
    for (char c = 0; read(output_, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  // Its exit code, or minus the signal.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

int run_member(const std::string& address, int rank, int ranks) {
  ControlClient client(member(address, rank, ranks));
  std::promise<std::string> aborted;
  client.on_abort([&](const std::string& reason) { aborted.set_value(reason); });
  client.barrier("start");
  auto reason = aborted.get_future();
  return reason.wait_for(20s) == std::future_status::ready ? kAbortedCode : 0;
}

int run_server(int ranks, double heartbeat_timeout_s) {
  const ControlServer server(options(ranks, Seconds(heartbeat_timeout_s)));
  std::printf("%s\n", server.address().c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(20s);
  return 0;
}

std::vector<std::string> member_arguments(const std::string& address, int rank, int ranks) {
  return {"member", address, std::to_string(rank), std::to_string(ranks)};
}

// What a client heard of the end, and when.
struct Listener {
  explicit Listener(ControlClient& client) {
    client.on_abort([this](const std::string& text) {
      when = Clock::now();
      reason.set_value(text);
    });
  }
  std::string wait() {
    auto future = reason.get_future();
    return future.wait_for(10s) == std::future_status::ready ? future.get() : "not aborted";
  }
  std::promise<std::string> reason;
  Clock::time_point when;
};

// ---- what it does ----

TEST(Control, RanksMeetAndKnowEachOther) {
  constexpr int kRanks = 5;
  ControlServer server(options(kRanks));

  const auto errors = run_ranks(kRanks, [&](int rank) {
    ControlClient client(member(server.address(), rank, kRanks));
    for (int round = 0; round < 20; ++round) {
      const auto values = client.all_gather("addresses", fmt::format("{}/{}", round, rank));
      for (int r = 0; r < kRanks; ++r) EXPECT_EQ(values[static_cast<std::size_t>(r)], fmt::format("{}/{}", round, r));
    }
    client.barrier("done");
    client.leave();
  });

  EXPECT_THAT(errors, Each(""));
  for (const Member& m : server.members()) EXPECT_EQ(m.state, MemberState::kLeft);
  int joined = 0;
  int left = 0;
  while (const auto event = server.wait_event(0s)) {
    joined += event->kind == ControlEvent::Kind::kJoined;
    left += event->kind == ControlEvent::Kind::kLeft;
  }
  EXPECT_EQ(joined, kRanks);
  EXPECT_EQ(left, kRanks);
  EXPECT_EQ(server.aborted(), std::nullopt);
}

TEST(Control, KeysAreSetCheckedAndWaitedFor) {
  ControlServer server(options(2));
  const std::string large(std::size_t{16} << 20, '\xff');

  const auto errors = run_ranks(2, [&](int rank) {
    ControlClient client(member(server.address(), rank, 2));
    if (rank == 0) {
      EXPECT_EQ(client.check("strategy"), std::nullopt);
      EXPECT_EQ(client.wait("strategy", "wait for the strategy"), large);
      client.set("empty", "");
    } else {
      std::this_thread::sleep_for(20ms);
      client.set("strategy", large);
      EXPECT_EQ(client.wait("empty", "wait for nothing"), "");
      EXPECT_EQ(client.check("empty"), "");
      EXPECT_THROW(client.set("a key", ""), InvalidArgument);
      EXPECT_THROW(client.set("key", large + "x"), InvalidArgument);
      EXPECT_THROW(client.all_gather("a name", ""), InvalidArgument);
      EXPECT_THROW(server.set("from the launcher", ""), InvalidArgument);
      server.set("from-the-launcher", "1");
      EXPECT_EQ(client.check("from-the-launcher"), "1");
    }
    client.barrier("done");
    client.leave();
  });

  EXPECT_THAT(errors, Each(""));
}

TEST(Control, AClientMayBeThereBeforeTheServer) {
  auto first = std::make_unique<ControlServer>(options(1));
  const int port = first->port();
  first.reset();
  std::string error = "not run";
  std::thread early([&] {
    error = thrown<Error>([&] {
      ControlClient client(member(fmt::format("127.0.0.1:{}", port), 0, 1));
      client.barrier("alone");
      client.leave();
    });
  });

  std::this_thread::sleep_for(300ms);
  ControlOptions late = options(1);
  late.port = port;
  const ControlServer server(late);
  early.join();

  EXPECT_EQ(error, "nothing was thrown");
}

// ---- how it refuses ----

TEST(Control, RefusesAServerThatCannotBe) {
  const ControlServer server(options(1));
  ControlOptions taken = options(1);
  taken.port = server.port();
  ControlOptions foreign = options(1);
  foreign.listen = "192.0.2.1";
  ControlOptions nameless = options(1);
  nameless.listen = "no.such.host.invalid";
  ControlOptions open = options(1);
  open.token = "";
  const auto refusal = [](const ControlOptions& o) { return thrown<InvalidArgument>([&] { ControlServer s(o); }); };

  EXPECT_THAT(thrown<RuntimeFailure>([&] { ControlServer s(taken); }),
              HasSubstr(fmt::format("port {} of 127.0.0.1 must be free", server.port())));
  EXPECT_THAT(refusal(foreign), HasSubstr("must be one of this host's. Received 192.0.2.1"));
  EXPECT_THAT(refusal(nameless), HasSubstr("must be one of this host's. Received \"no.such.host.invalid\""));
  EXPECT_THAT(refusal(open), HasSubstr("the token must be 1 to 256"));
  EXPECT_THAT(refusal(options(0)), HasSubstr("a job must have 1 to"));
  EXPECT_THAT(refusal(options(1, 0s)), HasSubstr("heartbeat time-out must be above 0"));
}

TEST(Control, RefusesAMemberThatDoesNotFit) {
  const ControlServer server(options(3));
  const ControlClient first(member(server.address(), 1, 3));
  const auto refusal = [](const ClientOptions& o) { return thrown<InvalidArgument>([&] { ControlClient c(o); }); };
  ClientOptions stranger = member(server.address(), 0, 3);
  stranger.token = "another-token";
  ClientOptions bare = member(server.address(), 0, 3);
  bare.token = "";

  EXPECT_THAT(refusal(stranger), HasSubstr("the token must be that of the job"));
  EXPECT_THAT(refusal(stranger), Not(HasSubstr(kToken)));
  EXPECT_THAT(refusal(bare), HasSubstr("Set HSPMD_TOKEN"));
  EXPECT_THAT(refusal(member(server.address(), 1, 3)), HasSubstr("Received a second rank 1"));
  EXPECT_THAT(refusal(member(server.address(), 0, 4)), HasSubstr("Received a world size of 4"));
  EXPECT_THAT(refusal(member(server.address(), 3, 3)), HasSubstr("Received 3"));
  for (const char* address : {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x"})
    EXPECT_THAT(refusal(member(address, 0, 3)), HasSubstr("must read like 127.0.0.1:4711")) << address;
  EXPECT_EQ(server.aborted(), std::nullopt);
}

TEST(Control, SaysWhereNobodyAnswers) {
  auto gone = std::make_unique<ControlServer>(options(1));
  const std::string address = gone->address();
  gone.reset();
  const auto start = Clock::now();

  const std::string text = thrown<RuntimeFailure>([&] { ControlClient c(member(address, 0, 1, 300ms)); });

  EXPECT_THAT(
      text, HasSubstr(fmt::format("[rank 0] join the job: the control plane must answer at {} within 0.3 s", address)));
  EXPECT_LT(since_ms(start), 3000);
}

TEST(Control, AGatherNamesWhoIsMissing) {
  const ControlServer server(options(4));
  ControlClient idle(member(server.address(), 0, 4));
  ControlClient client(member(server.address(), 1, 4, 400ms));

  EXPECT_EQ(thrown<RuntimeFailure>([&] { client.all_gather("addresses", ""); }),
            "[rank 1] gather addresses: ranks 2-3 never joined, rank 0 joined but did not come; timed out after 0.4 s");
  EXPECT_EQ(thrown<RuntimeFailure>([&] { (void)client.wait("nothing", "wait for nothing"); }),
            "[rank 1] wait for nothing: nobody set it; timed out after 0.4 s");
}

// ---- how it ends ----

TEST(Control, AnAbortReachesEverybodyAndEndsEveryWait) {
  ControlServer server(options(3));
  ControlClient a(member(server.address(), 0, 3));
  ControlClient b(member(server.address(), 1, 3));
  ControlClient c(member(server.address(), 2, 3));
  Listener at_a(a);
  Listener at_c(c);
  std::string failure;
  std::thread waiter([&] { failure = thrown<RuntimeFailure>([&] { b.all_gather("never", ""); }); });
  std::this_thread::sleep_for(20ms);

  const auto start = Clock::now();
  a.abort("rank 0 ran out of memory");
  waiter.join();

  EXPECT_EQ(failure, "[rank 1] gather never: aborted: rank 0 ran out of memory");
  EXPECT_EQ(at_a.wait(), "rank 0 ran out of memory");
  EXPECT_EQ(at_c.wait(), "rank 0 ran out of memory");
  std::printf("abort: the others know after %.1f ms\n", Seconds(at_c.when - start).count() * 1000);
  EXPECT_EQ(server.aborted(), "rank 0 ran out of memory");
  c.abort("later");
  EXPECT_EQ(c.aborted(), "rank 0 ran out of memory");
  Listener late(b);
  EXPECT_EQ(late.wait(), "rank 0 ran out of memory");
  EXPECT_EQ(thrown<RuntimeFailure>([&] { ControlClient(member(server.address(), 0, 3)); }),
            "[rank 0] join the job: aborted: rank 0 ran out of memory");
}

TEST(Control, TheLauncherAborts) {
  ControlServer server(options(1));
  ControlClient client(member(server.address(), 0, 1));
  Listener listener(client);

  server.abort("the user pressed Ctrl-C");

  EXPECT_EQ(listener.wait(), "the user pressed Ctrl-C");
  EXPECT_THAT(thrown<RuntimeFailure>([&] { client.barrier("b"); }), HasSubstr("aborted: the user pressed Ctrl-C"));
}

TEST(Control, AKilledProcessIsLostAtOnce) {
  constexpr int kRanks = 4;
  ControlServer server(options(kRanks));
  Child victim(member_arguments(server.address(), 2, kRanks));
  Child other(member_arguments(server.address(), 3, kRanks));
  ControlClient a(member(server.address(), 0, kRanks));
  ControlClient b(member(server.address(), 1, kRanks));
  Listener at_a(a);
  Listener at_b(b);
  EXPECT_THAT(run_ranks(2, [&](int rank) { (rank == 0 ? a : b).barrier("start"); }), Each(""));

  const auto start = Clock::now();
  victim.send(SIGKILL);

  EXPECT_EQ(at_a.wait(), "rank 2 was lost: its connection broke without a goodbye (killed, crashed, or ended early)");
  EXPECT_THAT(at_b.wait(), HasSubstr("rank 2 was lost"));
  const double ms = Seconds(std::max(at_a.when, at_b.when) - start).count() * 1000;
  EXPECT_EQ(other.wait(), kAbortedCode);
  std::printf("SIGKILL: all know after %.1f ms, the other process has ended after %.1f ms\n", ms, since_ms(start));
  EXPECT_LT(ms, 1000);
  EXPECT_EQ(victim.wait(), -SIGKILL);
  EXPECT_EQ(server.members()[2].state, MemberState::kLost);
}

TEST(Control, AStoppedProcessIsLostByItsHeartbeatsAndHearsOfItWhenItWakes) {
  ControlServer server(options(2, 500ms));
  Child victim(member_arguments(server.address(), 1, 2));
  ControlClient client(member(server.address(), 0, 2));
  Listener listener(client);
  client.barrier("start");

  const auto start = Clock::now();
  victim.send(SIGSTOP);

  EXPECT_EQ(listener.wait(), "rank 1 was lost: no heartbeat for 0.5 s (stopped, or its host or network is gone)");
  std::printf("SIGSTOP: known after %.1f ms with a time-out of 500 ms\n", since_ms(start));
  victim.send(SIGCONT);
  EXPECT_EQ(victim.wait(), kAbortedCode);
}

TEST(Control, HeartbeatsKeepAQuietJobAlive) {
  ControlServer server(options(2, 300ms));
  ControlClient a(member(server.address(), 0, 2));
  ControlClient b(member(server.address(), 1, 2));

  std::this_thread::sleep_for(1s);

  EXPECT_EQ(server.aborted(), std::nullopt);
  EXPECT_EQ(a.aborted(), std::nullopt);
  a.leave();
  b.leave();
}

TEST(Control, ALossIsOnlyReportedWhereTheOwnerDecides) {
  ControlOptions elastic = options(2);
  elastic.on_loss = LossPolicy::kReport;
  ControlServer server(elastic);
  ControlClient survivor(member(server.address(), 0, 2));
  std::promise<int> lost;
  survivor.on_loss([&](int rank, const std::string&) { lost.set_value(rank); });
  { const ControlClient gone(member(server.address(), 1, 2)); }

  EXPECT_EQ(lost.get_future().get(), 1);
  EXPECT_THAT(thrown<RuntimeFailure>([&] { survivor.barrier("b"); }), HasSubstr("rank 1 was lost"));
  EXPECT_EQ(survivor.aborted(), std::nullopt);

  ControlClient again(member(server.address(), 1, 2));
  EXPECT_THAT(run_ranks(2, [&](int rank) { (rank == 0 ? survivor : again).barrier("b"); }), Each(""));
  survivor.leave();
  again.leave();
}

TEST(Control, TheLaunchersDeathIsNoticed) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    Child launcher({"server", "1"});
    const std::string address = launcher.line();
    ControlClient client(member(address, 0, 1));
    Listener listener(client);
    std::string failure;
    std::thread waiter([&] { failure = thrown<RuntimeFailure>([&] { (void)client.wait("never", "wait for it"); }); });
    std::this_thread::sleep_for(20ms);

    const auto start = Clock::now();
    launcher.send(signal);

    EXPECT_THAT(listener.wait(), HasSubstr(fmt::format("the launcher at {} is gone", address)));
    std::printf("launcher killed: known after %.1f ms\n", Seconds(listener.when - start).count() * 1000);
    waiter.join();
    EXPECT_THAT(failure, HasSubstr("[rank 0] wait for it: aborted: the launcher"));
  }
}

TEST(Control, AStoppedLauncherIsNoticedByItsSilence) {
  Child launcher({"server", "1", "0.5"});
  ControlClient client(member(launcher.line(), 0, 1));
  Listener listener(client);

  launcher.send(SIGSTOP);

  EXPECT_THAT(listener.wait(), HasSubstr("does not answer: no heartbeat for 0.5 s"));
}

TEST(Control, AShutDownEndsTheJobForWhoIsStillThere) {
  auto server = std::make_unique<ControlServer>(options(2));
  ControlClient stays(member(server->address(), 0, 2));
  ControlClient goes(member(server->address(), 1, 2));
  Listener listener(stays);
  goes.leave();

  const auto start = Clock::now();
  server->shutdown();
  server->shutdown();
  server.reset();

  EXPECT_EQ(listener.wait(), "the launcher has ended the job");
  EXPECT_LT(since_ms(start), 2000);
  EXPECT_EQ(goes.aborted(), std::nullopt);
  EXPECT_THAT(thrown<RuntimeFailure>([&] { goes.barrier("b"); }), HasSubstr("this rank has left the job"));
}

}  // namespace

int run_child(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    const std::string role = arguments[1];
    if (role == "member") return run_member(arguments[2], std::stoi(arguments[3]), std::stoi(arguments[4]));
    return run_server(std::stoi(arguments[2]), count > 3 ? std::stod(arguments[3]) : 10.0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
    return 1;
  }
}

}  // namespace hspmd

int main(int count, char** arguments) {
  if (count > 1 && arguments[1][0] != '-') return hspmd::run_child(count, arguments);
  testing::InitGoogleMock(&count, arguments);
  return RUN_ALL_TESTS();
}
