// Strangers at the door: whatever they send, they are refused, and a job that goes on beside them is not harmed.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "hspmd/base/errors.h"
#include "hspmd/control/control.grpc.pb.h"
#include "hspmd/control/control_client.h"
#include "hspmd/control/control_server.h"
#include "hspmd/control/job.h"
#include "hspmd/control/ranks_as_threads.h"
#include "hspmd/control/wire.h"

namespace hspmd {
namespace {

using ::testing::Each;
using namespace std::chrono_literals;

constexpr const char* kToken = "a-token-for-tests";
constexpr int kRanks = 3;

// A server and a job whose ranks meet again and again until it is destroyed; then all must be well.
class BusyJob {
 public:
  BusyJob() : server_({.token = kToken, .ranks = kRanks + 1}), thread_([this] { run(); }) {
    while (rounds_ < 10) std::this_thread::sleep_for(1ms);
  }
  ~BusyJob() {
    const int before = rounds_;
    while (rounds_ < before + 10 && !failed_) std::this_thread::sleep_for(1ms);
    stop_ = true;
    thread_.join();
    EXPECT_EQ(server_.aborted(), std::nullopt);
  }
  [[nodiscard]] const ControlServer& server() const { return server_; }

 private:
  void run() {
    const auto errors = testing::run_ranks(kRanks, [&](int rank) {
      ControlClient client({.address = server_.address(), .token = kToken, .rank = rank, .ranks = kRanks + 1});
      for (bool more = true; more;) {
        client.set(fmt::format("{}", rank), fmt::format("{}", rounds_.load()));
        for (int other = 0; other < kRanks; ++other) (void)client.wait(fmt::format("{}", other), "wait for the others");
        if (rank == 0) ++rounds_;
        more = !stop_;
      }
      client.leave();
    });
    failed_ = true;
    EXPECT_THAT(errors, Each(""));
  }

  ControlServer server_;
  std::atomic<int> rounds_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

class Socket {
 public:
  explicit Socket(int port) : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(file_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Socket() { close(file_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  void send(const std::string& bytes) const { (void)!::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

 private:
  int file_;
};

// An HTTP/2 frame.
std::string frame(std::uint32_t length, char type, char flags, std::uint32_t stream, const std::string& payload) {
  std::string bytes;
  for (const int shift : {16, 8, 0}) bytes += static_cast<char>(length >> shift);
  bytes += {type, flags};
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(stream >> shift);
  return bytes + payload;
}

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr char kData = 0;
constexpr char kHeaders = 1;
constexpr char kSettings = 4;
constexpr char kContinuation = 9;

TEST(Strangers, GarbageHarmsNothing) {
  std::mt19937 random(7);
  std::string noise;
  for (int i = 0; i < 100'000; ++i) noise += static_cast<char>(random());
  const std::string settings = frame(0, kSettings, 0, 0, "");
  const std::vector<std::string> texts = {
      "",                                                          // nothing, and stays
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",                         // another protocol
      noise,                                                       //
      kPreface.substr(0, 10),                                      // half a greeting
      kPreface,                                                    // no settings
      kPreface + settings + noise,                                 //
      kPreface + settings + frame(0xffffff, kData, 0, 1, "x"),     // 16 MiB promised
      kPreface + settings + frame(0xffffff, kHeaders, 4, 1, "x"),  //
      kPreface + settings + frame(100, kHeaders, 4, 1, "half"),    // half a message
      kPreface + settings + frame(4, kHeaders, 0, 1, "\xff\xff\xff\xff") + frame(1000, kContinuation, 0, 1, noise),
  };
  const BusyJob job;

  std::vector<std::unique_ptr<Socket>> stay;
  for (int round = 0; round < 5; ++round) {
    for (const std::string& text : texts) {
      stay.push_back(std::make_unique<Socket>(job.server().port()));
      stay.back()->send(text);
      Socket(job.server().port()).send(text);  // and hangs up
    }
  }
}

// Raw calls, for what a ControlClient would not send.
struct Caller {
  explicit Caller(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub = wire::Control::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    context.set_deadline(std::chrono::system_clock::now() + 10s);
  }
  // Sends the messages; what the call ends with, after so many answers.
  grpc::StatusCode call(const std::vector<wire::ToServer>& messages, int answers = 0) {
    const auto stream = stub->Join(&context);
    for (const wire::ToServer& message : messages) stream->Write(message);
    wire::ToMember message;
    int read = 0;
    while (stream->Read(&message)) ++read;
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(read, answers);
    return status.error_code();
  }
  std::unique_ptr<wire::Control::Stub> stub;
  grpc::ClientContext context;
};

wire::ToServer hello(int rank) {
  wire::ToServer message;
  message.mutable_hello()->set_protocol(kControlProtocol);
  message.mutable_hello()->set_rank(rank);
  message.mutable_hello()->set_ranks(kRanks + 1);
  return message;
}
wire::ToServer setting(std::size_t bytes) {
  wire::ToServer message;
  message.mutable_set()->set_key("0");
  message.mutable_set()->set_value(std::string(bytes, 'x'));
  return message;
}

TEST(Strangers, WithoutTheTokenNothingIsSeen) {
  const BusyJob job;
  for (const char* token : {"", "another-token-xxx", "a-token-for-test", "a-token-for-tests2"}) {
    Caller caller(job.server().address());
    caller.context.AddMetadata(kTokenMetadata, token);
    EXPECT_EQ(caller.call({hello(kRanks), setting(10)}), grpc::StatusCode::UNAUTHENTICATED) << token;
  }
  Caller bare(job.server().address());
  EXPECT_EQ(bare.call({hello(kRanks)}), grpc::StatusCode::UNAUTHENTICATED);
  Caller twice(job.server().address());
  twice.context.AddMetadata(kTokenMetadata, kToken);
  twice.context.AddMetadata(kTokenMetadata, "another");
  EXPECT_EQ(twice.call({hello(kRanks)}), grpc::StatusCode::UNAUTHENTICATED);
  Caller large(job.server().address());
  EXPECT_EQ(large.call({setting(std::size_t{32} << 20)}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(job.server().members()[kRanks].state, MemberState::kAbsent);
}

TEST(Strangers, WhoKnowsTheTokenButNotTheProtocolIsRefused) {
  const BusyJob job;
  struct Row {
    std::vector<wire::ToServer> messages;
    grpc::StatusCode code;
  };
  for (const Row& row :
       {Row{{setting(10)}, grpc::StatusCode::INVALID_ARGUMENT},
        Row{{wire::ToServer{}}, grpc::StatusCode::INVALID_ARGUMENT},
        Row{{hello(0)}, grpc::StatusCode::INVALID_ARGUMENT}, Row{{hello(-5)}, grpc::StatusCode::INVALID_ARGUMENT}}) {
    Caller caller(job.server().address());
    caller.context.AddMetadata(kTokenMetadata, kToken);
    EXPECT_EQ(caller.call(row.messages), row.code);
  }
  // A message beyond the limit, before it said who it is: only its own connection ends.
  Caller large(job.server().address());
  large.context.AddMetadata(kTokenMetadata, kToken);
  EXPECT_NE(large.call({setting(std::size_t{32} << 20)}), grpc::StatusCode::OK);
  EXPECT_EQ(job.server().members()[kRanks].state, MemberState::kAbsent);
}

}  // namespace
}  // namespace hspmd
