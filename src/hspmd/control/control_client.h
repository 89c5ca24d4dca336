// ControlClient: one rank's connection to the control plane, held for the life of the process.
//
//   ControlClient control({.address = "127.0.0.1:4711", .token = token, .rank = 1, .ranks = 4});
//   control.on_abort([&](const std::string& reason) { generation.abort(reason); });
//   const auto addresses = control.all_gather("addresses", mine);     everybody's, by rank
//   control.barrier("ready");
//   control.leave();                                                  a goodbye: not a loss
//
// Every call ends: by its answer, by the time-out, or by the abort. Where a call fails, RuntimeFailure says rank,
// action and reason. Any thread may call. A client that is destroyed without leave() is a lost rank.
//
// Make it after any fork: gRPC's threads do not live on in a forked child (fork and exec is fine).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hspmd {

struct ClientOptions {
  std::string address = {};  // "host:port"
  std::string token = {};    // the job's, from HSPMD_TOKEN
  int rank = 0;
  int ranks = 1;
  std::chrono::duration<double> timeout{60};  // of the connection and of each call
};

class ControlClient {
 public:
  using AbortCallback = std::function<void(const std::string& reason)>;
  using LossCallback = std::function<void(int rank, const std::string& why)>;

  // Tries until the time-out; the server may start later. Throws InvalidArgument for a wrong token, rank or world size
  // and for a rank that is there already; RuntimeFailure when nobody answers or the job is aborted.
  explicit ControlClient(ClientOptions options);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int ranks() const;

  // The last value set stays.
  void set(const std::string& key, const std::string& value);
  [[nodiscard]] std::optional<std::string> check(const std::string& key);
  // Waits until somebody has set it. `action` says in the failure what it was for: "wait for the strategy".
  [[nodiscard]] std::string wait(const std::string& key, const std::string& action);
  // Everybody's value, by rank. On time-out it names the ranks that are missing; a rank that left or was lost ends it
  // at once. Who gave up has taken its value away, so a name may be used again.
  std::vector<std::string> all_gather(const std::string& name, const std::string& value);
  void barrier(const std::string& name);

  // Ends the job for everybody, this rank too; returns once the control plane knows, or soon.
  void abort(const std::string& reason);
  [[nodiscard]] std::optional<std::string> aborted() const;
  // Called from another thread when anybody aborts, a rank is lost (unless losses are only reported), or the launcher
  // is gone; from this one if that was before. Called once at most. It must be brief, not throw, and not use this
  // client except aborted(). An empty function: no more, and none is running when this returns.
  void on_abort(AbortCallback callback);
  // The same for the loss of another rank, each time.
  void on_loss(LossCallback callback);

  // No call may follow.
  void leave();

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace hspmd
