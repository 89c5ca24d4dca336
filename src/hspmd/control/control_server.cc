#include "hspmd/control/control_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/random.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "hspmd/base/errors.h"
#include "hspmd/control/control.grpc.pb.h"
#include "hspmd/control/job.h"
#include "hspmd/control/limits.h"
#include "hspmd/control/listen_address.h"
#include "hspmd/control/wire.h"

namespace hspmd {
namespace {

using Clock = std::chrono::steady_clock;
using Stream = grpc::ServerBidiReactor<wire::ToServer, wire::ToMember>;

class Link;

// What gRPC's threads report; the server's own thread alone acts on it.
struct Arrival {
  enum class Kind { kConnected, kMessage, kBroken, kWritten, kDone };
  Kind kind = Kind::kConnected;
  LinkId id = 0;
  Link* link = nullptr;  // connected
  wire::ToServer message = {};
};

class Inbox {
 public:
  virtual void put(Arrival arrival) = 0;

 protected:
  ~Inbox() = default;
};

grpc::Status status(const Job::End& end) {
  switch (end.kind) {
    case Job::End::Kind::kLeft:
      return grpc::Status::OK;
    case Job::End::Kind::kRefused:
      return {grpc::StatusCode::INVALID_ARGUMENT, end.text};
    case Job::End::Kind::kAborted:
    case Job::End::Kind::kLost:
      return {grpc::StatusCode::ABORTED, end.text};
  }
  return grpc::Status::CANCELLED;
}

// One member's stream. gRPC calls the On... functions, from any thread, and they only report; the server's thread calls
// the others. It lives until gRPC has said kDone.
class Link final : public Stream {
 public:
  Link(LinkId id, grpc::CallbackServerContext& context, Inbox& inbox) : id_(id), context_(context), inbox_(inbox) {
    inbox_.put({Arrival::Kind::kConnected, id_, this});
    StartRead(&read_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return inbox_.put({Arrival::Kind::kBroken, id_});
    inbox_.put({Arrival::Kind::kMessage, id_, nullptr, std::move(read_)});
    read_.Clear();
    StartRead(&read_);
  }
  void OnWriteDone(bool) override { inbox_.put({Arrival::Kind::kWritten, id_}); }
  void OnDone() override { inbox_.put({Arrival::Kind::kDone, id_}); }

  void send(wire::ToMember message) {
    if (end_) return;
    letters_.push_back(std::move(message));
    go_on();
  }
  void end(const Job::End& how) {
    if (end_) return;
    end_ = how;
    if (writing_ && how.kind == Job::End::Kind::kLost) cut();
    go_on();
  }
  // The other side is gone: nothing that is under way will arrive.
  void broken() {
    cut();
    if (!end_) end_ = Job::End{};
    go_on();
  }
  void written() {
    writing_ = false;
    letters_.pop_front();
    go_on();
  }

 private:
  void cut() {
    if (finished_) return;
    context_.TryCancel();
    letters_.erase(letters_.begin() + (writing_ ? 1 : 0), letters_.end());
  }
  void go_on() {
    if (writing_ || finished_) return;
    if (!letters_.empty()) {
      writing_ = true;
      StartWrite(&letters_.front());
    } else if (end_) {
      finished_ = true;
      Finish(status(*end_));
    }
  }

  LinkId id_;
  grpc::CallbackServerContext& context_;
  Inbox& inbox_;
  wire::ToServer read_;
  std::deque<wire::ToMember> letters_;
  std::optional<Job::End> end_;
  bool writing_ = false;
  bool finished_ = false;
};

// Refuses before anything is read.
class Refusal final : public Stream {
 public:
  Refusal() { Finish({grpc::StatusCode::UNAUTHENTICATED, "the token must be the job's"}); }
  void OnDone() override { delete this; }
};

ControlOptions checked(ControlOptions options) {
  if (const auto why = why_invalid_token(options.token)) throw InvalidArgument(*why);
  return options;
}

}  // namespace

class ControlServer::Service final : public wire::Control::CallbackService, public Inbox {
 public:
  explicit Service(const ControlOptions& options)
      : token_(checked(options).token), job_({options.ranks, options.heartbeat_timeout, options.on_loss}) {
    listen(options);
    thread_ = std::thread([this] { run(); });
  }
  ~Service() override { shutdown(); }

  Stream* Join(grpc::CallbackServerContext* context) override {
    const auto& metadata = context->client_metadata();
    const auto token = metadata.find(kTokenMetadata);
    if (metadata.count(kTokenMetadata) != 1 || !same_token(token_, {token->second.data(), token->second.size()}))
      return new Refusal;
    return new Link(++last_id_, *context, *this);
  }

  void put(Arrival arrival) override {
    const std::lock_guard guard(inbox_lock_);
    inbox_.push_back(std::move(arrival));
    wake_.notify_one();
  }

  void shutdown() {
    if (!thread_.joinable()) return;
    change_job([](Job& job) { job.close("the launcher has ended the job"); });
    constexpr std::chrono::milliseconds kGoodbyes{500};  // then the connections are cut
    server_->Shutdown(std::chrono::system_clock::now() + kGoodbyes);
    {
      const std::lock_guard guard(inbox_lock_);
      stopping_ = true;
      wake_.notify_one();
    }
    thread_.join();
    server_.reset();
  }

  template <typename Read>
  auto read_job(Read read) const {
    const std::lock_guard guard(job_lock_);
    return read(job_);
  }
  template <typename Change>
  void change_job(Change change) {
    const std::lock_guard guard(job_lock_);
    change(job_);
    happened_.notify_all();
    const std::lock_guard inbox_guard(inbox_lock_);
    nudged_ = true;  // the thread sends what is to be sent
    wake_.notify_one();
  }

  std::optional<ControlEvent> wait_event(std::chrono::duration<double> timeout) {
    std::unique_lock guard(job_lock_);
    std::optional<ControlEvent> event;
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
    happened_.wait_until(guard, until, [&] { return (event = job_.take_event()).has_value(); });
    return event;
  }

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  void listen(const ControlOptions& options) {
    const std::string address = free_address(options.listen, options.port);
    quiet_grpc();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    builder.SetMaxReceiveMessageSize(kMostMessageBytes);
    builder.SetMaxSendMessageSize(kMostMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);            // a member needs one
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);  // for who says nothing
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 10'000);       // for who opens no stream
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0)
      invalid("[control] the control plane must be able to listen on {}. Received an error. Choose another port.",
              address);
    address_ = with_port(address, port_);
  }

  void run() {
    std::unique_lock guard(inbox_lock_);
    while (true) {
      std::deque<Arrival> arrivals = std::exchange(inbox_, {});
      nudged_ = false;
      const bool stopping = stopping_;
      guard.unlock();
      const Job::Time next = act(arrivals);
      if (stopping && links_.empty()) return;
      guard.lock();
      wake_.wait_until(guard, next, [&] { return !inbox_.empty() || nudged_ || stopping_ != stopping; });
    }
  }

  // Brings the job what has arrived and what is overdue, then sends what it answers. gRPC is called with no lock held:
  // it may report to the inbox from within.
  Job::Time act(std::deque<Arrival>& arrivals) {
    std::vector<Job::Letter> letters;
    Job::Time next;
    {
      const std::lock_guard guard(job_lock_);
      for (Arrival& arrival : arrivals) bring(arrival);
      next = job_.tick(Clock::now());
      letters = job_.take_outbox();
      happened_.notify_all();
    }
    for (Arrival& arrival : arrivals) settle(arrival);
    for (Job::Letter& letter : letters) {
      const auto link = links_.find(letter.link);
      if (link == links_.end()) continue;
      if (const auto* end = std::get_if<Job::End>(&letter.content))
        link->second->end(*end);
      else
        link->second->send(std::get<wire::ToMember>(std::move(letter.content)));
    }
    return next;
  }

  void bring(const Arrival& arrival) {
    const auto now = Clock::now();
    if (arrival.kind == Arrival::Kind::kConnected) job_.connected(arrival.id, now);
    if (arrival.kind == Arrival::Kind::kMessage) job_.receive(arrival.id, arrival.message, now);
    if (arrival.kind == Arrival::Kind::kBroken) job_.broken(arrival.id, now);
  }

  void settle(const Arrival& arrival) {
    switch (arrival.kind) {
      case Arrival::Kind::kConnected:
        links_.emplace(arrival.id, arrival.link);
        break;
      case Arrival::Kind::kMessage:
        break;
      case Arrival::Kind::kBroken:
        links_.at(arrival.id)->broken();
        break;
      case Arrival::Kind::kWritten:
        links_.at(arrival.id)->written();
        break;
      case Arrival::Kind::kDone:
        links_.erase(arrival.id);
        break;
    }
  }

  const std::string token_;
  std::atomic<LinkId> last_id_{0};
  int port_ = 0;
  std::string address_;

  mutable std::mutex job_lock_;  // taken before inbox_lock_
  std::condition_variable happened_;
  Job job_;

  std::mutex inbox_lock_;
  std::condition_variable wake_;
  std::deque<Arrival> inbox_;
  bool nudged_ = false;
  bool stopping_ = false;

  std::map<LinkId, std::unique_ptr<Link>> links_;  // of the thread alone
  std::thread thread_;
  std::unique_ptr<grpc::Server> server_;
};

std::string make_token() {
  unsigned char bytes[16] = {};
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
    throw RuntimeFailure("[control] the system must give random numbers");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

ControlServer::ControlServer(ControlOptions options) : service_(std::make_unique<Service>(std::move(options))) {}
ControlServer::~ControlServer() = default;

int ControlServer::port() const {
  return service_->port();
}
std::string ControlServer::address() const {
  return service_->address();
}

void ControlServer::abort(const std::string& reason) {
  service_->change_job([&](Job& job) { job.abort(reason, Clock::now()); });
}
std::optional<std::string> ControlServer::aborted() const {
  return service_->read_job([](const Job& job) { return job.aborted(); });
}
std::vector<Member> ControlServer::members() const {
  return service_->read_job([](const Job& job) { return job.members(); });
}
std::optional<ControlEvent> ControlServer::wait_event(std::chrono::duration<double> timeout) {
  return service_->wait_event(timeout);
}
void ControlServer::set(const std::string& key, const std::string& value) {
  service_->change_job([&](Job& job) { job.set(key, value); });
}
std::optional<std::string> ControlServer::check(const std::string& key) const {
  return service_->read_job([&](const Job& job) { return job.check(key); });
}
void ControlServer::shutdown() {
  service_->shutdown();
}

}  // namespace hspmd
