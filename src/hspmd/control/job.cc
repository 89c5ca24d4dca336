#include "hspmd/control/job.h"

#include <algorithm>
#include <utility>

#include "hspmd/base/errors.h"
#include "hspmd/control/limits.h"

namespace hspmd {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using Ticks = std::chrono::steady_clock::duration;

Job::Time after(Job::Time now, double seconds) {
  constexpr double kLongest = 1e8;  // three years; not a number becomes 0
  return now + duration_cast<Ticks>(duration<double>(seconds > 0 ? std::min(seconds, kLongest) : 0));
}

wire::ToMember answer(std::uint64_t call) {
  wire::ToMember message;
  message.set_call(call);
  return message;
}

}  // namespace

const char* to_string(MemberState state) {
  switch (state) {
    case MemberState::kAbsent:
      return "never joined";
    case MemberState::kJoined:
      return "joined";
    case MemberState::kLeft:
      return "left";
    case MemberState::kLost:
      return "lost";
  }
  return "";
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

Job::Job(const JobOptions& options) : options_(options) {
  if (options.ranks < 1 || options.ranks > kMostRanks)
    invalid("[control] a job must have 1 to {} ranks. Received {}.", kMostRanks, options.ranks);
  if (!(options.heartbeat_timeout.count() > 0))
    invalid("[control] the heartbeat time-out must be above 0 s. Received {}.", options.heartbeat_timeout.count());
  members_.resize(static_cast<std::size_t>(options.ranks));
}

// ---- links ----

void Job::connected(LinkId id, Time now) {
  links_[id] = {std::nullopt, now};
  if (closed_) end(id, End::Kind::kAborted, *closed_);
}

void Job::receive(LinkId id, const wire::ToServer& message, Time now) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;  // ended, but what it sent before was under way
  link->second.heard = now;
  const bool member = link->second.rank.has_value();
  if (!member && message.has_hello())
    join(id, message.hello(), now);
  else if (!member)
    end(id, End::Kind::kRefused, "[control] a member must say hello first. Received another message.");
  else
    serve(id, message, now);
}

void Job::broken(LinkId id, Time now) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;
  const std::optional<int> rank = link->second.rank;
  if (rank)
    lose(*rank, "its connection broke without a goodbye (killed, crashed, or ended early)", now);
  else
    links_.erase(link);
}

std::optional<std::string> Job::why_refused(const wire::Hello& hello) const {
  if (hello.protocol() != kControlProtocol)
    return fmt::format("[control] a member must speak protocol {}. Received {}. Run one version of hspmd everywhere.",
                       kControlProtocol, hello.protocol());
  if (hello.ranks() != options_.ranks)
    return fmt::format("[control] the job has {} ranks. Received a world size of {}. Set WORLD_SIZE to {}.",
                       options_.ranks, hello.ranks(), options_.ranks);
  if (hello.rank() < 0 || hello.rank() >= options_.ranks)
    return fmt::format("[control] a rank must lie in 0 to {}. Received {}. Mend RANK.", options_.ranks - 1,
                       hello.rank());
  if (members_[static_cast<std::size_t>(hello.rank())].state == MemberState::kJoined)
    return fmt::format(
        "[control] a rank must be one process. Received a second rank {}. Give every process a RANK of "
        "its own.",
        hello.rank());
  return std::nullopt;
}

void Job::join(LinkId id, const wire::Hello& hello, Time now) {
  if (aborted_) return end(id, End::Kind::kAborted, *aborted_);
  if (const auto why = why_refused(hello)) return end(id, End::Kind::kRefused, *why);
  links_[id].rank = hello.rank();
  members_[static_cast<std::size_t>(hello.rank())] = {MemberState::kJoined, {}, now};
  wire::ToMember welcome = answer(0);
  welcome.mutable_welcome()->set_heartbeat_timeout_s(options_.heartbeat_timeout.count());
  send(id, std::move(welcome));
  tell(ControlEvent::Kind::kJoined, hello.rank(), {}, now);
}

// A member becomes what it is after its link; nobody answers its calls any more.
void Job::depart(LinkId id, Member after) {
  const int rank = *links_.at(id).rank;
  members_[static_cast<std::size_t>(rank)] = std::move(after);
  links_.erase(id);
  std::erase_if(waits_, [id](const auto& entry) { return entry.second.link == id; });
  for (auto& [name, gather] : gathers_) gather.erase(rank);
  std::erase_if(gathers_, [](const auto& entry) { return entry.second.empty(); });
  fail_gathers_without(rank);
}

void Job::leave(LinkId id, Time now) {
  const int rank = *links_.at(id).rank;
  depart(id, {MemberState::kLeft, {}, now});
  outbox_.push_back({id, End{End::Kind::kLeft}});
  tell(ControlEvent::Kind::kLeft, rank, {}, now);
}

void Job::lose(int rank, const std::string& why, Time now) {
  for (const auto& [id, link] : links_) {
    if (link.rank != rank) continue;
    depart(id, {MemberState::kLost, why, now});
    break;
  }
  tell(ControlEvent::Kind::kLost, rank, why, now);
  if (aborted_) return;
  wire::ToMember news = answer(0);
  news.mutable_lost()->set_rank(rank);
  news.mutable_lost()->set_why(why);
  for (const auto& [id, link] : links_) {
    if (link.rank) send(id, news);
  }
  if (options_.on_loss == LossPolicy::kAbort) abort(fmt::format("rank {} was lost: {}", rank, why), now);
}

void Job::abort(const std::string& reason, Time now) {
  if (aborted_ || closed_) return;  // the first reason stays
  aborted_ = reason.substr(0, kMostReasonBytes);
  waits_.clear();
  gathers_.clear();
  wire::ToMember news = answer(0);
  news.mutable_aborted()->set_reason(*aborted_);
  for (const auto& [id, link] : links_) {
    if (link.rank) send(id, news);
  }
  tell(ControlEvent::Kind::kAborted, -1, *aborted_, now);
}

void Job::close(const std::string& why) {
  if (closed_) return;
  closed_ = why;
  for (const auto& [id, link] : links_) outbox_.push_back({id, End{End::Kind::kAborted, why}});
  links_.clear();
  waits_.clear();
  gathers_.clear();
}

// ---- calls ----

void Job::serve(LinkId id, const wire::ToServer& message, Time now) {
  const int rank = *links_.at(id).rank;
  Call call{id, message.call()};
  switch (message.what_case()) {
    case wire::ToServer::kLeave:
      return leave(id, now);
    case wire::ToServer::kBeat: {
      wire::ToMember echo = answer(0);
      echo.mutable_beat();
      return send(id, std::move(echo));
    }
    case wire::ToServer::kAbort:
      return abort(message.abort().reason(), now);
    case wire::ToServer::kSet: {
      try {
        set(message.set().key(), message.set().value());
      } catch (const InvalidArgument& error) {
        return refuse(call, wire::Refused::USER, error.what());
      }
      wire::ToMember done = answer(call.number);
      done.mutable_done();
      return send(id, std::move(done));
    }
    case wire::ToServer::kCheck: {
      wire::ToMember found = answer(call.number);
      found.mutable_found();
      if (const auto value = check(message.check().key())) found.mutable_found()->set_value(*value);
      return send(id, std::move(found));
    }
    case wire::ToServer::kWait:
      call.timeout_s = message.wait().timeout_s();
      call.deadline = after(now, call.timeout_s);
      return wait(call, message.wait().key());
    case wire::ToServer::kGather:
      call.timeout_s = message.gather().timeout_s();
      call.deadline = after(now, call.timeout_s);
      return gather(call, rank, message.gather());
    case wire::ToServer::kHello:
    case wire::ToServer::WHAT_NOT_SET:
      return refuse(call, wire::Refused::USER, "[control] a message must be one that this version knows");
  }
}

void Job::set(const std::string& key, const std::string& value) {
  if (const auto why = why_invalid_name(key)) throw InvalidArgument(*why);
  if (const auto why = why_invalid_value(value)) throw InvalidArgument(*why);
  const auto old = keys_.find(key);
  const std::size_t freed = old == keys_.end() ? 0 : key.size() + old->second.size();
  const std::size_t bytes = key_bytes_ - freed + key.size() + value.size();
  if (bytes > kMostKeyBytes || (freed == 0 && keys_.size() >= kMostKeys))
    invalid(
        "[control] a job must have at most {} keys of {} bytes together. Received one more: {}. Send large data "
        "over the transport.",
        kMostKeys, kMostKeyBytes, key);
  key_bytes_ = bytes;
  keys_[key] = value;
  const auto [first, last] = waits_.equal_range(key);
  for (auto entry = first; entry != last; ++entry) {
    wire::ToMember found = answer(entry->second.number);
    found.mutable_found()->set_value(value);
    send(entry->second.link, std::move(found));
  }
  waits_.erase(first, last);
}

std::optional<std::string> Job::check(const std::string& key) const {
  const auto entry = keys_.find(key);
  if (entry == keys_.end()) return std::nullopt;
  return entry->second;
}

std::size_t Job::waiting() const {
  std::size_t count = waits_.size();
  for (const auto& [name, gather] : gathers_) count += gather.size();
  return count;
}

void Job::wait(const Call& call, const std::string& key) {
  if (const auto why = why_invalid_name(key)) return refuse(call, wire::Refused::USER, *why);
  if (waiting() >= kMostWaits) return refuse(call, wire::Refused::WORLD, "too many calls wait already");
  const auto value = check(key);
  if (!value) {
    if (!aborted_) waits_.emplace(key, call);
    return;
  }
  wire::ToMember found = answer(call.number);
  found.mutable_found()->set_value(*value);
  send(call.link, std::move(found));
}

void Job::gather(const Call& call, int rank, const wire::Gather& request) {
  const std::string& name = request.name();
  if (aborted_) return;  // the member has been told
  if (const auto why = why_invalid_name(name)) return refuse(call, wire::Refused::USER, *why);
  if (waiting() >= kMostWaits) return refuse(call, wire::Refused::WORLD, "too many calls wait already");
  Gather& gather = gathers_[name];
  if (gather.contains(rank))
    return refuse(
        call, wire::Refused::USER,
        fmt::format("[control] a rank must wait in {} once at a time. Received a second call of rank {}.", name, rank));
  gather[rank] = {call, request.value()};
  std::size_t bytes = 0;
  for (const auto& [other, arrival] : gather) bytes += arrival.value.size();
  std::optional<std::string> why = hopeless(gather);
  if (bytes > kMostValueBytes)
    why = fmt::format("all values together must have at most {} bytes, and have {} or more", kMostValueBytes, bytes);
  if (why) {
    for (const auto& [other, arrival] : gather) refuse(arrival.call, wire::Refused::WORLD, *why);
    gathers_.erase(name);
  } else if (gather.size() == members_.size()) {
    complete(name);
  }
}

void Job::complete(const std::string& name) {
  wire::Values values;
  for (auto& [rank, arrival] : gathers_[name]) values.add_by_rank(std::move(arrival.value));
  for (const auto& [rank, arrival] : gathers_[name]) {
    wire::ToMember message = answer(arrival.call.number);
    *message.mutable_values() = values;
    send(arrival.call.link, std::move(message));
  }
  gathers_.erase(name);
}

// Why a gather can never be complete.
std::optional<std::string> Job::hopeless(const Gather& gather) const {
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    if (gather.contains(static_cast<int>(rank))) continue;
    if (member.state == MemberState::kLost) return fmt::format("rank {} was lost: {}", rank, member.why);
    if (member.state == MemberState::kLeft) return fmt::format("rank {} has left", rank);
  }
  return std::nullopt;
}

void Job::fail_gathers_without(int rank) {
  std::erase_if(gathers_, [&](const auto& entry) {
    if (entry.second.contains(rank)) return false;
    const auto why = hopeless(entry.second);
    for (const auto& [other, arrival] : entry.second) refuse(arrival.call, wire::Refused::WORLD, *why);
    return true;
  });
}

// "ranks 2, 5-6 never joined, rank 3 joined but has not come"
std::string Job::missing(const Gather& gather) const {
  std::vector<int> never;
  std::vector<int> late;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (gather.contains(rank)) continue;
    const bool joined = members_[static_cast<std::size_t>(rank)].state == MemberState::kJoined;
    (joined ? late : never).push_back(rank);
  }
  const auto who = [](const std::vector<int>& ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks_text(ranks));
  };
  std::string text;
  if (!never.empty()) text = who(never) + " never joined";
  if (!late.empty()) text += (text.empty() ? "" : ", ") + who(late) + " joined but did not come";
  return text;
}

// ---- time ----

std::chrono::steady_clock::duration Job::patience(const Link& link) const {
  constexpr Ticks kHello = std::chrono::seconds(10);  // a busy host is no reason to refuse a member
  return link.rank ? duration_cast<Ticks>(options_.heartbeat_timeout) : kHello;
}

void Job::expire_calls(Time now) {
  std::erase_if(waits_, [&](const auto& entry) {
    const Call& call = entry.second;
    if (call.deadline > now) return false;
    refuse(call, wire::Refused::WORLD, fmt::format("nobody set it; timed out after {} s", call.timeout_s));
    return true;
  });
  for (auto& [name, gather] : gathers_) {
    const std::string who = missing(gather);
    std::erase_if(gather, [&](const auto& entry) {
      const Call& call = entry.second.call;
      if (call.deadline > now) return false;
      refuse(call, wire::Refused::WORLD, fmt::format("{}; timed out after {} s", who, call.timeout_s));
      return true;
    });
  }
  std::erase_if(gathers_, [](const auto& entry) { return entry.second.empty(); });
}

void Job::expire_links(Time now) {
  std::vector<LinkId> silent;
  for (const auto& [id, link] : links_) {
    if (now >= link.heard + patience(link)) silent.push_back(id);
  }
  for (const LinkId id : silent) {
    const std::optional<int> rank = links_.at(id).rank;
    if (!rank) {
      end(id, End::Kind::kRefused, "[control] a member must say hello at once. Received nothing.");
      continue;
    }
    const std::string why = fmt::format("no heartbeat for {} s (stopped, or its host or network is gone)",
                                        options_.heartbeat_timeout.count());
    lose(*rank, why, now);
    outbox_.push_back({id, End{End::Kind::kLost, fmt::format("this process, rank {}, was given up: {}", *rank, why)}});
  }
}

Job::Time Job::tick(Time now) {
  if (next_tick_ && now - *next_tick_ > options_.heartbeat_timeout / 4) {
    for (auto& [id, link] : links_) link.heard = now;
  }
  expire_calls(now);
  expire_links(now);
  Time next = after(now, 3600);
  for (const auto& [key, call] : waits_) next = std::min(next, call.deadline);
  for (const auto& [name, gather] : gathers_) {
    for (const auto& [rank, arrival] : gather) next = std::min(next, arrival.call.deadline);
  }
  for (const auto& [id, link] : links_) next = std::min(next, link.heard + patience(link));
  next_tick_ = next;
  return next;
}

// ---- letters ----

void Job::send(LinkId id, wire::ToMember message) {
  outbox_.push_back({id, std::move(message)});
}

void Job::refuse(const Call& call, wire::Refused::Whose whose, const std::string& text) {
  wire::ToMember message = answer(call.number);
  message.mutable_refused()->set_whose(whose);
  message.mutable_refused()->set_text(text);
  send(call.link, std::move(message));
}

void Job::end(LinkId id, End::Kind kind, const std::string& text) {
  links_.erase(id);
  outbox_.push_back({id, End{kind, text.substr(0, kMostReasonBytes)}});
}

void Job::tell(ControlEvent::Kind kind, int rank, const std::string& text, Time now) {
  events_.push_back({kind, rank, text, now});
}

std::optional<ControlEvent> Job::take_event() {
  if (events_.empty()) return std::nullopt;
  ControlEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::vector<Job::Letter> Job::take_outbox() {
  return std::exchange(outbox_, {});
}

}  // namespace hspmd
