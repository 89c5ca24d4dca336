// Exchanger: runs exchanges over the arena. An exchange is a few rounds; in each a device shows its buffers, reads
// those of others in place (sums in a fixed order), and says that it is done:
//
//   start     shows the first round; nothing is waited for
//   advance   does what can be done now; true once everything is read
//   finish    waits for the rest; within a stage also until the others have read, so that buffers are free again
//
// A message to another stage is only shown: its outbox buffer is guarded before it is written again.
//
// What a device of another host reads is packed into one message a round and reader, when it is shown; there it arrives
// in memory of its own, which is read instead of the sender's. Such messages are awaited from the beginning of a
// section on (`expect`), so that they travel while the section computes.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "hspmd/runtime/pace.h"
#include "hspmd/runtime/strided.h"
#include "hspmd/runtime/transport/arena.h"
#include "hspmd/runtime/transport/messages.h"
#include "hspmd/specialize/bind.h"

namespace hspmd {

// What an exchange instruction keeps from run to run, whatever the micro-batch size.
struct ChannelState {
  std::uint64_t times = 0;
  std::array<std::uint64_t, kRoundsPerChannel> expected = {};         // releases of my shows so far
  std::array<std::uint64_t, kRoundsPerChannel> expected_before = {};  // but for the last time
};

// An exchange made ready to run.
struct RunExchange {
  struct InMessage {
    std::size_t message = 0;  // of the round's received ones
    std::size_t at = 0;       // bytes in it
  };
  struct Reading {
    int ordinal = 0;
    StridedPull pull;
    Address mine;
    Address own_source;  // where my own part of a sum lies
    ElementType type = ElementType::kFp32;
    Reduction reduction = Reduction::kSum;
    std::vector<std::optional<InMessage>> arrived;  // by source, where it is far
  };

  // To or from a rank of another host.
  struct Message {
    struct Gather {  // sent: a box of one buffer
      StridedPull copy;
      Address from;
      ElementType type = ElementType::kFp32;
      std::size_t at = 0;  // bytes in the message
    };
    int peer = 0;
    std::size_t offset = 0;  // in the exchange's message memory
    std::size_t bytes = 0;
    std::vector<Gather> gathers;
    Messages::Ticket ticket;
  };

  struct Round {
    std::vector<std::pair<int, Address>> shows;  // ordinal, buffer
    std::uint64_t readers = 0;                   // distinct near ranks that read this round
    std::vector<Reading> readings;
    std::vector<int> peers;  // near ranks read from
    std::vector<Message> sent;
    std::vector<Message> received;
  };

  const BoundExchange* bound = nullptr;
  ChannelState* state = nullptr;
  int channel = 0;
  std::size_t table = 0;          // offset in my segment of [2 times][round][ordinal], then the message memory
  std::size_t message_bytes = 0;  // of the message memory
  std::string tensor;             // for messages, made once
  std::int64_t bytes = 0;
  double seconds = 0;  // paced: what it takes
  std::vector<Round> rounds;

  // Where it stands while it runs.
  std::size_t round = 0;
  bool shown = false;
  bool expected = false;
  std::int64_t started_ns = 0;  // of a traced one that began early

  std::uint32_t trace_name = 0;
};

struct ExchangerPlace {
  Device device = 0;
  int rank = 0;
  const std::vector<int>* rank_of_device = nullptr;
};

class Exchanger {
 public:
  // All must outlive it. `base` is where the scopes lie now.
  // `messages` only where some rank is far.
  Exchanger(Generation& generation, const ExchangerPlace& place, const std::array<std::byte*, kScopes>& base,
            Pace* pace, Messages* messages);

  [[nodiscard]] RunExchange prepare(const BoundExchange& bound, ChannelState& state) const;

  // Far messages may come from now on. Once until the exchange has finished; further calls do nothing.
  void expect(RunExchange& exchange);
  // Lets far messages go on.
  void progress() {
    if (messages_ != nullptr) messages_->progress();
  }
  void start(RunExchange& exchange);
  bool advance(RunExchange& exchange);
  void finish(RunExchange& exchange);
  // Before a section overwrites what it sent the time before last, that must have been read.
  void guard(RunExchange& exchange);

 private:
  [[nodiscard]] RunExchange::Reading prepare_reading(RunExchange::Round& round, const Round& local, const Pull& pull,
                                                     const BoundTransfer& t) const;
  void prepare_sends(RunExchange& run, const BoundTransfer& t) const;
  void show(RunExchange& exchange);
  void send(RunExchange& exchange);
  void read(RunExchange& exchange);
  [[nodiscard]] bool all_shown(const RunExchange& exchange);
  [[nodiscard]] std::optional<int> missing(const RunExchange& exchange);
  [[nodiscard]] WaitSite site(const RunExchange& exchange) const;
  [[nodiscard]] std::byte* message_memory(const RunExchange& exchange) const;
  [[nodiscard]] std::uint64_t tag(const RunExchange& exchange, std::size_t round) const {
    return static_cast<std::uint64_t>(exchange.channel) * kRoundsPerChannel + round;
  }
  [[nodiscard]] int rank_of(Device device) const { return (*place_.rank_of_device)[static_cast<std::size_t>(device)]; }
  [[nodiscard]] std::byte* at(const Address& address) const {
    return base_[static_cast<std::size_t>(address.scope)] + address.offset;
  }

  Generation& generation_;
  ExchangerPlace place_;
  const std::array<std::byte*, kScopes>& base_;
  Pace* pace_;                                     // null unless paced
  Messages* messages_;                             // null where all ranks are near
  std::vector<const void*> source_pointers_;       // of the pull that runs: the buffers, then where a run reads
  std::vector<const std::uint64_t*> peer_tables_;  // by rank, of the round that runs
};

}  // namespace hspmd
