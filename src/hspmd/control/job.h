// Job: what the control plane knows of a job - members, keys, gathers, the abort - and what it answers. It has neither
// network nor clock nor thread: its owner brings what arrives, with the time, and carries away what is to be sent.
//
//   Job job({.ranks = 2, .heartbeat_timeout = 10 s});
//   job.connected(7, now)              a stranger that knows the token
//   job.receive(7, hello, now)         link 7 is rank 0 from here on
//   job.take_outbox()                  {7, welcome}
//   job.broken(7, now)                 rank 0 is lost; after a Leave it would have left
//
// A gather holds exactly the ranks that wait in it: who gives up takes its value away, and with the last rank all are
// answered and the gather is forgotten. So a name may be used again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hspmd/control/control.pb.h"
#include "hspmd/control/membership.h"

namespace hspmd {

inline constexpr std::uint32_t kControlProtocol = 1;

using LinkId = std::uint64_t;

struct JobOptions {
  int ranks = 1;
  std::chrono::duration<double> heartbeat_timeout{10};
  LossPolicy on_loss = LossPolicy::kAbort;
};

class Job {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // How a link ends: after a goodbye, by a mistake of the member's user, for good with a reason, or because the member
  // is taken for dead (then nobody waits for it to read what is under way).
  struct End {
    enum class Kind { kLeft, kRefused, kAborted, kLost };
    Kind kind = Kind::kLeft;
    std::string text = {};
  };
  struct Letter {
    LinkId link = 0;
    std::variant<wire::ToMember, End> content;
  };

  explicit Job(const JobOptions& options);

  void connected(LinkId id, Time now);
  void receive(LinkId id, const wire::ToServer& message, Time now);
  void broken(LinkId id, Time now);
  void abort(const std::string& reason, Time now);
  // Ends every link, those to come too.
  void close(const std::string& why);
  // Ends what is overdue; returns when to be called again at the latest. A call that comes much later than that was
  // itself kept from running (a stopped launcher, a suspended machine), and takes nobody for dead.
  Time tick(Time now);

  // Both answer the members that wait. Set throws InvalidArgument beyond the limits.
  void set(const std::string& key, const std::string& value);
  [[nodiscard]] std::optional<std::string> check(const std::string& key) const;

  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] const std::optional<std::string>& aborted() const { return aborted_; }
  [[nodiscard]] std::optional<ControlEvent> take_event();
  [[nodiscard]] std::vector<Letter> take_outbox();
  [[nodiscard]] bool has_letters() const { return !outbox_.empty(); }

 private:
  struct Link {
    std::optional<int> rank = {};
    Time heard = {};
  };
  struct Call {
    LinkId link = 0;
    std::uint64_t number = 0;
    double timeout_s = 0;
    Time deadline = {};
  };
  struct Arrival {
    Call call;
    std::string value;
  };
  using Gather = std::map<int, Arrival>;  // by rank

  [[nodiscard]] std::optional<std::string> why_refused(const wire::Hello& hello) const;
  void join(LinkId id, const wire::Hello& hello, Time now);
  void leave(LinkId id, Time now);
  void lose(int rank, const std::string& why, Time now);
  void depart(LinkId id, Member after);
  void serve(LinkId id, const wire::ToServer& message, Time now);
  void wait(const Call& call, const std::string& key);
  void gather(const Call& call, int rank, const wire::Gather& request);
  void complete(const std::string& name);
  void fail_gathers_without(int rank);
  [[nodiscard]] Time::duration patience(const Link& link) const;
  void expire_calls(Time now);
  void expire_links(Time now);
  [[nodiscard]] std::string missing(const Gather& gather) const;
  [[nodiscard]] std::optional<std::string> hopeless(const Gather& gather) const;
  [[nodiscard]] std::size_t waiting() const;

  void send(LinkId id, wire::ToMember message);
  void refuse(const Call& call, wire::Refused::Whose whose, const std::string& text);
  void end(LinkId id, End::Kind kind, const std::string& text);  // of who has not joined
  void tell(ControlEvent::Kind kind, int rank, const std::string& text, Time now);

  JobOptions options_;
  std::map<LinkId, Link> links_;
  std::vector<Member> members_;
  std::map<std::string, std::string> keys_;
  std::size_t key_bytes_ = 0;
  std::multimap<std::string, Call> waits_;  // by key
  std::map<std::string, Gather> gathers_;
  std::optional<std::string> aborted_;
  std::optional<std::string> closed_;
  std::optional<Time> next_tick_;
  std::deque<ControlEvent> events_;
  std::vector<Letter> outbox_;
};

// "0-2, 5": of ascending ranks.
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

}  // namespace hspmd
