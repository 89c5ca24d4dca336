// ControlServer: the control plane of a job, in the launcher or in rank 0: rendezvous keys, gathers, barriers,
// membership, heartbeats and the abort. Its clients are ControlClients that know the job's token.
//
//   ControlServer server({.listen = "127.0.0.1", .token = make_token(), .ranks = 4});
//   ... start the ranks with HSPMD_TOKEN and 127.0.0.1:server.port()
//   while (auto event = server.wait_event(1s)) ...         joined, left, lost, aborted
//
// A process that dies is lost within milliseconds: its connection breaks. One that is stopped, or whose host is gone,
// is lost when its heartbeats stay away. A loss aborts the job for all, unless `on_loss` says that the owner decides.
//
// Make it after any fork: gRPC's threads do not live on in a forked child (fork and exec is fine).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hspmd/control/membership.h"

namespace hspmd {

struct ControlOptions {
  std::string listen = "127.0.0.1";  // an address or name of this host; nothing listens elsewhere
  int port = 0;                      // 0: any that is free
  std::string token = {};            // what members must know
  int ranks = 1;
  std::chrono::duration<double> heartbeat_timeout{10};
  LossPolicy on_loss = LossPolicy::kAbort;
};

// 128 random bits as text.
[[nodiscard]] std::string make_token();

class ControlServer {
 public:
  // Throws InvalidArgument: an address that is not this host's, an empty token, no ranks; RuntimeFailure: a port in
  // use.
  explicit ControlServer(ControlOptions options);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  [[nodiscard]] int port() const;
  // "127.0.0.1:4711", as ControlClient takes it.
  [[nodiscard]] std::string address() const;

  // Ends the job for everybody; the first reason stays.
  void abort(const std::string& reason);
  [[nodiscard]] std::optional<std::string> aborted() const;

  // By rank.
  [[nodiscard]] std::vector<Member> members() const;
  // Events come in order, each once; nullopt when none came in time.
  [[nodiscard]] std::optional<ControlEvent> wait_event(std::chrono::duration<double> timeout);

  // Keys, as the members see them.
  void set(const std::string& key, const std::string& value);
  [[nodiscard]] std::optional<std::string> check(const std::string& key) const;

  // Ends every connection ("the launcher has ended the job") and stops listening. The destructor calls it.
  void shutdown();

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace hspmd
