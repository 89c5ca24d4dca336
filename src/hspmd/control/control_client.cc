#include "hspmd/control/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "hspmd/base/errors.h"
#include "hspmd/control/control.grpc.pb.h"
#include "hspmd/control/job.h"
#include "hspmd/control/limits.h"
#include "hspmd/control/wire.h"

namespace hspmd {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kGrace{2};    // the server ends a wait itself, and says more about it
constexpr Seconds kGoodbye{2};  // for the answer to an abort or a goodbye
constexpr int kBeatsPerTimeout = 5;

Clock::duration ticks(Seconds seconds) {
  constexpr Seconds kLongest{1e8};
  return std::chrono::duration_cast<Clock::duration>(std::min(seconds, kLongest));
}

ClientOptions checked(ClientOptions options) {
  if (const auto why = why_invalid_token(options.token)) throw InvalidArgument(*why);
  const std::size_t colon = options.address.rfind(':');
  int port = 0;
  const char* end = options.address.data() + options.address.size();
  const char* digits = colon == std::string::npos ? end : options.address.data() + colon + 1;
  const auto [read, error] = std::from_chars(digits, end, port);
  if (colon == 0 || error != std::errc{} || read != end || port < 1 || port > 65535)
    invalid(
        "[control] the control plane's address must read like 127.0.0.1:4711. Received \"{}\". Mend MASTER_ADDR "
        "and MASTER_PORT.",
        options.address);
  if (!(options.timeout.count() > 0))
    invalid("[control] the time-out must be above 0 s. Received {}.", options.timeout.count());
  return options;
}

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  quiet_grpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostMessageBytes);
  arguments.SetMaxSendMessageSize(kMostMessageBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own: its end is this process's
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

// The stream to the control plane and its two threads: one reads and calls back, one writes and keeps the heart
// beating. Callers wait for neither longer than their time-out: they queue their message and watch for the answer.
class ControlClient::Session {
 public:
  explicit Session(ClientOptions options) : options_(checked(std::move(options))) { connect(); }
  ~Session() {
    {
      const std::lock_guard guard(lock_);
      closing_ = true;
    }
    hang_up();
  }

  [[nodiscard]] const ClientOptions& options() const { return options_; }

  // Sends and waits for the answer. Throws when it is a refusal, or there is none.
  wire::ToMember call(wire::ToServer request, const std::string& action, Seconds timeout) {
    std::unique_lock guard(lock_);
    check_open(action);
    const std::uint64_t number = ++last_call_;
    request.set_call(number);
    calls_[number] = std::nullopt;
    queue(std::move(request));
    changed_.wait_for(guard, ticks(timeout), [&] { return calls_[number] || aborted_ || left_; });
    std::optional<wire::ToMember> answer = std::move(calls_[number]);
    calls_.erase(number);
    if (!answer) {
      check_open(action);
      fail(action, fmt::format("the launcher at {} does not answer; timed out after {} s", options_.address,
                               options_.timeout.count()));
    }
    if (!answer->has_refused()) return std::move(*answer);
    if (answer->refused().whose() == wire::Refused::USER) throw InvalidArgument(answer->refused().text());
    fail(action, answer->refused().text());
  }

  void abort(const std::string& reason) {
    wire::ToServer message;
    message.mutable_abort()->set_reason(reason.substr(0, kMostReasonBytes));
    {
      std::unique_lock guard(lock_);
      if (aborted_ || left_) return;
      queue(std::move(message));
      changed_.wait_for(guard, ticks(kGoodbye), [&] { return aborted_.has_value(); });
    }
    raise(reason);
  }

  [[nodiscard]] std::optional<std::string> aborted() const {
    const std::lock_guard guard(lock_);
    return aborted_;
  }

  void on_abort(AbortCallback callback) {
    const std::lock_guard guard(callback_lock_);
    on_abort_ = std::move(callback);
    tell_abort();
  }
  void on_loss(LossCallback callback) {
    const std::lock_guard guard(callback_lock_);
    on_loss_ = std::move(callback);
  }

  void leave() {
    {
      std::unique_lock guard(lock_);
      if (left_) return;
      left_ = true;
      wire::ToServer message;
      message.mutable_leave();
      queue(std::move(message));
      changed_.wait_for(guard, ticks(kGoodbye), [&] { return ended_; });
      closing_ = true;
    }
    hang_up();
  }

 private:
  // ---- connection ----

  void connect() {
    const Clock::time_point deadline = Clock::now() + ticks(options_.timeout);
    const std::shared_ptr<grpc::Channel> channel = open_channel(options_.address);
    stub_ = wire::Control::NewStub(channel);
    std::string last = "no answer";
    while (Clock::now() < deadline) {
      const auto left = std::chrono::system_clock::now() + (deadline - Clock::now());
      if (!channel->WaitForConnected(left)) break;
      if (try_join(deadline)) return;
      check_refusal();
      if (status_.error_code() != grpc::StatusCode::CANCELLED) last = status_.error_message();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw RuntimeFailure(
        {.rank = options_.rank, .action = "join the job"},
        fmt::format("the control plane must answer at {} within {} s. Received: {}. Check that the launcher runs, and "
                    "its address and port.",
                    options_.address, options_.timeout.count(), last));
  }

  // Whether the server welcomed us; otherwise status_ says why not.
  bool try_join(Clock::time_point deadline) {
    context_ = std::make_unique<grpc::ClientContext>();
    context_->AddMetadata(kTokenMetadata, options_.token);
    ended_ = false;
    outbox_.clear();
    wire::ToServer hello;
    hello.mutable_hello()->set_protocol(kControlProtocol);
    hello.mutable_hello()->set_rank(options_.rank);
    hello.mutable_hello()->set_ranks(options_.ranks);
    outbox_.push_back(std::move(hello));
    stream_ = stub_->Join(context_.get());
    writer_ = std::thread([this] { write_all(); });
    reader_ = std::thread([this] { read_all(); });
    std::unique_lock guard(lock_);
    changed_.wait_until(guard, deadline, [&] { return welcomed_ || ended_; });
    if (welcomed_) return true;
    if (!ended_) context_->TryCancel();  // else it ended with a reason, and a cancel might hide that
    guard.unlock();
    reader_.join();
    return false;
  }

  void check_refusal() const {
    const std::string& text = status_.error_message();
    switch (status_.error_code()) {
      case grpc::StatusCode::UNAUTHENTICATED:
        invalid(
            "[control] the token must be that of the job at {}. Received another. Set HSPMD_TOKEN to the job's "
            "token.",
            options_.address);
      case grpc::StatusCode::INVALID_ARGUMENT:
        throw InvalidArgument(text);
      case grpc::StatusCode::UNIMPLEMENTED:
        invalid(
            "[control] {} must be the control plane of a job. Received an answer of another service. Mend "
            "MASTER_ADDR and MASTER_PORT.",
            options_.address);
      case grpc::StatusCode::ABORTED:
        throw RuntimeFailure({.rank = options_.rank, .action = "join the job"}, "aborted: " + text);
      default:
        return;
    }
  }

  void hang_up() {
    context_->TryCancel();
    if (reader_.joinable()) reader_.join();
    stream_.reset();
  }

  // ---- threads ----

  void read_all() {
    wire::ToMember message;
    while (stream_->Read(&message)) receive(message);
    {
      const std::lock_guard guard(lock_);
      ended_ = true;
      changed_.notify_all();
    }
    writer_.join();
    status_ = stream_->Finish();
    if (const auto news = why_ended()) raise(*news);
  }

  // nullopt where the end is no news: we went, or were never there.
  std::optional<std::string> why_ended() const {
    const std::lock_guard guard(lock_);
    if (closing_ || left_ || !welcomed_) return std::nullopt;
    if (silent_)
      return fmt::format(
          "the launcher at {} does not answer: no heartbeat for {} s (stopped, or its host or network is "
          "gone)",
          options_.address, patience_.count());
    if (status_.error_code() == grpc::StatusCode::ABORTED) return status_.error_message();
    return fmt::format("the launcher at {} is gone ({})", options_.address,
                       status_.ok() ? "it closed the connection" : status_.error_message());
  }

  void receive(const wire::ToMember& message) {
    if (message.has_aborted()) return raise(message.aborted().reason());
    if (message.has_lost()) {
      const std::lock_guard guard(callback_lock_);
      if (on_loss_) on_loss_(message.lost().rank(), message.lost().why());
      return;
    }
    const std::lock_guard guard(lock_);
    heard_ = Clock::now();
    if (message.has_welcome()) {
      patience_ = Seconds(message.welcome().heartbeat_timeout_s());
      welcomed_ = true;
    } else if (const auto call = calls_.find(message.call()); call != calls_.end()) {
      call->second = message;
    }
    changed_.notify_all();
  }

  void write_all() {
    std::unique_lock guard(lock_);
    Clock::time_point beat = Clock::now();
    while (!ended_) {
      const Clock::duration period = ticks(patience_ / kBeatsPerTimeout);
      if (outbox_.empty() && Clock::now() < beat + period) {
        changed_.wait_until(guard, beat + period);
        continue;
      }
      if (outbox_.empty()) {
        judge_silence(Clock::now() - beat > 2 * period);
        beat = Clock::now();
        wire::ToServer message;
        message.mutable_beat();
        outbox_.push_back(std::move(message));
      }
      const wire::ToServer message = std::move(outbox_.front());
      outbox_.pop_front();
      guard.unlock();
      const bool sent = stream_->Write(message);
      guard.lock();
      if (!sent) changed_.wait(guard, [&] { return ended_; });
    }
  }

  // The launcher echoes heartbeats. A process that was itself stopped for a while blames nobody.
  void judge_silence(bool was_stopped) {
    if (!welcomed_ || was_stopped) heard_ = Clock::now();
    if (Clock::now() - heard_ <= ticks(patience_)) return;
    silent_ = true;
    context_->TryCancel();
  }

  // ---- abort and calls ----

  void raise(const std::string& reason) {
    {
      const std::lock_guard guard(lock_);
      if (!aborted_) aborted_ = reason;
      changed_.notify_all();
    }
    const std::lock_guard guard(callback_lock_);
    tell_abort();
  }

  void tell_abort() {
    const std::optional<std::string> reason = aborted();
    if (!reason || told_ || !on_abort_) return;
    told_ = true;
    on_abort_(*reason);
  }

  void queue(wire::ToServer message) {
    outbox_.push_back(std::move(message));
    changed_.notify_all();
  }

  void check_open(const std::string& action) const {
    if (aborted_) fail(action, "aborted: " + *aborted_);
    if (left_) fail(action, "this rank has left the job");
  }

  [[noreturn]] void fail(const std::string& action, const std::string& reason) const {
    throw RuntimeFailure({.rank = options_.rank, .action = action}, reason);
  }

  const ClientOptions options_;
  std::unique_ptr<wire::Control::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::ToServer, wire::ToMember>> stream_;
  grpc::Status status_;  // of the reader, once ended
  std::thread reader_;
  std::thread writer_;  // joined by the reader

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::deque<wire::ToServer> outbox_;
  std::map<std::uint64_t, std::optional<wire::ToMember>> calls_;
  std::uint64_t last_call_ = 0;
  std::optional<std::string> aborted_;
  Seconds patience_{10};
  Clock::time_point heard_ = Clock::now();
  bool welcomed_ = false;
  bool silent_ = false;   // the launcher
  bool left_ = false;     // we said goodbye
  bool closing_ = false;  // we hang up
  bool ended_ = false;    // the stream

  std::recursive_mutex callback_lock_;  // taken before lock_; a callback may set another
  AbortCallback on_abort_;
  LossCallback on_loss_;
  bool told_ = false;
};

ControlClient::ControlClient(ClientOptions options) : session_(std::make_unique<Session>(std::move(options))) {}
ControlClient::~ControlClient() = default;

int ControlClient::rank() const {
  return session_->options().rank;
}
int ControlClient::ranks() const {
  return session_->options().ranks;
}

void ControlClient::set(const std::string& key, const std::string& value) {
  if (const auto why = why_invalid_value(value)) throw InvalidArgument(*why);
  wire::ToServer request;
  request.mutable_set()->set_key(key);
  request.mutable_set()->set_value(value);
  session_->call(std::move(request), "set " + key, session_->options().timeout);
}

std::optional<std::string> ControlClient::check(const std::string& key) {
  wire::ToServer request;
  request.mutable_check()->set_key(key);
  const wire::ToMember answer = session_->call(std::move(request), "check " + key, session_->options().timeout);
  if (!answer.found().has_value()) return std::nullopt;
  return answer.found().value();
}

std::string ControlClient::wait(const std::string& key, const std::string& action) {
  const Seconds timeout = session_->options().timeout;
  wire::ToServer request;
  request.mutable_wait()->set_key(key);
  request.mutable_wait()->set_timeout_s(timeout.count());
  return session_->call(std::move(request), action, timeout + kGrace).found().value();
}

std::vector<std::string> ControlClient::all_gather(const std::string& name, const std::string& value) {
  if (const auto why = why_invalid_value(value)) throw InvalidArgument(*why);
  const Seconds timeout = session_->options().timeout;
  wire::ToServer request;
  request.mutable_gather()->set_name(name);
  request.mutable_gather()->set_value(value);
  request.mutable_gather()->set_timeout_s(timeout.count());
  const wire::ToMember answer = session_->call(std::move(request), "gather " + name, timeout + kGrace);
  const auto& values = answer.values().by_rank();
  return {values.begin(), values.end()};
}

void ControlClient::barrier(const std::string& name) {
  all_gather(name, {});
}

void ControlClient::abort(const std::string& reason) {
  session_->abort(reason);
}
std::optional<std::string> ControlClient::aborted() const {
  return session_->aborted();
}
void ControlClient::on_abort(AbortCallback callback) {
  session_->on_abort(std::move(callback));
}
void ControlClient::on_loss(LossCallback callback) {
  session_->on_loss(std::move(callback));
}
void ControlClient::leave() {
  session_->leave();
}

}  // namespace hspmd
