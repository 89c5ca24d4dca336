#include "hspmd/runtime/exchanger.h"

#include <algorithm>
#include <set>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using Message = RunExchange::Message;

ElementType element_type(const BoundTransfer& t) {
  if (t.integers) return ElementType::kInt32;
  return t.element_bytes == 8 ? ElementType::kFp64 : ElementType::kFp32;
}

// The message to or from a peer, as a place in the list.
std::size_t message_with(std::vector<Message>& list, int peer) {
  const auto known = std::find_if(list.begin(), list.end(), [&](const Message& m) { return m.peer == peer; });
  if (known != list.end()) return static_cast<std::size_t>(known - list.begin());
  list.push_back({peer, 0, 0, {}, {}});
  return list.size() - 1;
}

// Room for a box in a message, at a multiple of 8 bytes.
std::size_t append(Message& message, const Box& box, const BoundTransfer& t) {
  constexpr std::size_t kEight = 8;
  const std::size_t at = (message.bytes + kEight - 1) / kEight * kEight;
  message.bytes = at + static_cast<std::size_t>(volume(box)) * t.element_bytes;
  return at;
}

void place_messages(RunExchange& run) {
  for (RunExchange::Round& round : run.rounds) {
    for (std::vector<Message>* list : {&round.sent, &round.received}) {
      for (Message& message : *list) {
        message.offset = run.message_bytes;
        run.message_bytes += aligned(message.bytes);
      }
    }
  }
}

}  // namespace

Exchanger::Exchanger(Generation& generation, const ExchangerPlace& place, const std::array<std::byte*, kScopes>& base,
                     Pace* pace, Messages* messages)
    : generation_(generation), place_(place), base_(base), pace_(pace), messages_(messages) {
  const auto ranks = static_cast<std::size_t>(generation.ranks());
  peer_tables_.resize(ranks);
  source_pointers_.resize(2 * ranks);
}

RunExchange Exchanger::prepare(const BoundExchange& bound, ChannelState& state) const {
  RunExchange run;
  run.bound = &bound;
  run.state = &state;
  run.channel = bound.step->channel;
  run.tensor = bound.step->transfers.front().name;
  run.rounds.resize(bound.rounds);
  check_internal(bound.rounds <= kRoundsPerChannel, "an exchange has at most 16 rounds");
  for (const BoundTransfer& t : bound.transfers) {
    run.bytes += t.bytes;
    run.seconds = std::max(run.seconds, t.seconds);
    prepare_sends(run, t);
  }
  for (std::size_t r = 0; r < bound.rounds; ++r) {
    RunExchange::Round& round = run.rounds[r];
    std::set<int> readers;
    std::set<int> peers;
    for (const BoundTransfer& t : bound.transfers) {
      if (r >= t.exchange.rounds.size()) continue;
      const Round& local = t.exchange.rounds[r];
      for (const Device d : local.readers) {
        if (generation_.near(rank_of(d))) readers.insert(rank_of(d));
      }
      if (local.shows >= 0)
        round.shows.emplace_back(t.transfer->ordinal, t.states[static_cast<std::size_t>(local.shows)]);
      for (const Pull& pull : local.pulls) {
        for (const Source& source : pull.sources) {
          const int rank = rank_of(source.device);
          if (source.device != place_.device && generation_.near(rank)) peers.insert(rank);
        }
        round.readings.push_back(prepare_reading(round, local, pull, t));
      }
    }
    round.readers = readers.size();
    round.peers.assign(peers.begin(), peers.end());
  }
  place_messages(run);
  return run;
}

RunExchange::Reading Exchanger::prepare_reading(RunExchange::Round& round, const Round& local, const Pull& pull,
                                                const BoundTransfer& t) const {
  RunExchange::Reading reading;
  reading.ordinal = t.transfer->ordinal;
  reading.mine = t.states[static_cast<std::size_t>(local.fills)];
  reading.own_source = t.states[static_cast<std::size_t>(local.reads)];
  reading.type = element_type(t);
  reading.reduction = t.exchange.reduction;
  Pull here = pull;
  for (Source& source : here.sources) {
    reading.arrived.emplace_back();
    if (generation_.near(rank_of(source.device))) continue;
    const std::size_t message = message_with(round.received, rank_of(source.device));
    reading.arrived.back() = {message, append(round.received[message], pull.box, t)};
    source.piece = {pull.box, 0};
  }
  reading.pull = make_strided(here);
  return reading;
}

void Exchanger::prepare_sends(RunExchange& run, const BoundTransfer& t) const {
  for (const FarRead& read : t.far_reads) {
    RunExchange::Round& round = run.rounds[read.round];
    Message& message = round.sent[message_with(round.sent, rank_of(read.reader))];
    const auto shows = static_cast<std::size_t>(t.exchange.rounds[read.round].shows);
    Message::Gather gather;
    gather.copy = make_strided({read.box, {read.box, 0}, {{place_.device, read.piece}}});
    gather.from = t.states[shows];
    gather.type = element_type(t);
    gather.at = append(message, read.box, t);
    message.gathers.push_back(std::move(gather));
  }
}

WaitSite Exchanger::site(const RunExchange& exchange) const {
  return {place_.rank, "exchange", exchange.tensor.c_str(), exchange.bytes};
}

std::byte* Exchanger::message_memory(const RunExchange& exchange) const {
  return generation_.segment(place_.rank) + exchange.table + table_bytes(*exchange.bound);
}

void Exchanger::expect(RunExchange& exchange) {
  if (messages_ == nullptr || exchange.expected) return;
  exchange.expected = true;
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    for (Message& message : exchange.rounds[r].received)
      message.ticket =
          messages_->irecv(message.peer, tag(exchange, r), message_memory(exchange) + message.offset, message.bytes);
  }
}

void Exchanger::start(RunExchange& exchange) {
  expect(exchange);
  if (!exchange.rounds.empty()) show(exchange);
}

void Exchanger::show(RunExchange& exchange) {
  const std::size_t r = exchange.round;
  RunExchange::Round& round = exchange.rounds[r];
  exchange.shown = true;
  exchange.state->expected_before[r] = exchange.state->expected[r];
  if (pace_ != nullptr && (round.readers > 0 || !round.sent.empty())) pace_->settle();
  send(exchange);
  if (round.readers == 0) return;
  const std::size_t size = static_cast<std::size_t>(exchange.bound->step->size);
  const std::size_t offset =
      exchange.table + ((exchange.state->times % 2) * exchange.rounds.size() + r) * size * sizeof(std::uint64_t);
  std::byte* memory = generation_.segment(place_.rank);
  auto* table = reinterpret_cast<std::uint64_t*>(memory + offset);
  for (const auto& [ordinal, address] : round.shows) table[ordinal] = static_cast<std::uint64_t>(at(address) - memory);
  exchange.state->expected[r] += round.readers;
  generation_.post(place_.rank, exchange.channel, static_cast<int>(r), exchange.state->times + 1, offset);
}

void Exchanger::send(RunExchange& exchange) {
  for (Message& message : exchange.rounds[exchange.round].sent) {
    const WaitSite before{place_.rank, "wait until the last message is sent", exchange.tensor.c_str(),
                          static_cast<std::int64_t>(message.bytes)};
    messages_->wait(message.ticket, before, *generation_.limits().abort, generation_.limits().timeout);
    std::byte* memory = message_memory(exchange) + message.offset;
    for (const Message::Gather& gather : message.gathers) {
      if (pace_ != nullptr) break;
      source_pointers_[0] = at(gather.from);
      run_strided(gather.copy, gather.type, Reduction::kSum, memory + gather.at,
                  {source_pointers_.data(), source_pointers_.data() + 1});
    }
    message.ticket = messages_->isend(message.peer, tag(exchange, exchange.round), memory, message.bytes);
  }
}

bool Exchanger::all_shown(const RunExchange& exchange) {
  const RunExchange::Round& round = exchange.rounds[exchange.round];
  for (const int peer : round.peers) {
    const std::uint64_t* table =
        generation_.posted(peer, exchange.channel, static_cast<int>(exchange.round), exchange.state->times + 1);
    if (table == nullptr) return false;
    peer_tables_[static_cast<std::size_t>(peer)] = table;
  }
  return std::all_of(round.received.begin(), round.received.end(),
                     [&](const Message& message) { return messages_->done(message.ticket); });
}

bool Exchanger::advance(RunExchange& exchange) {
  while (exchange.round < exchange.rounds.size()) {
    if (!exchange.shown) show(exchange);
    if (!all_shown(exchange)) return false;
    read(exchange);
    const int r = static_cast<int>(exchange.round);
    for (const int peer : exchange.rounds[exchange.round].peers) generation_.release(peer, exchange.channel, r);
    ++exchange.round;
    exchange.shown = false;
  }
  return true;
}

void Exchanger::read(RunExchange& exchange) {
  RunExchange::Round& round = exchange.rounds[exchange.round];
  if (pace_ != nullptr) {
    if (round.peers.empty() && round.received.empty()) return;
    pace_->pass(exchange.seconds / static_cast<double>(exchange.rounds.size()));
    pace_->settle();
    return;
  }
  const std::byte* arrived = message_memory(exchange);
  for (RunExchange::Reading& reading : round.readings) {
    const std::size_t sources = reading.pull.devices.size();
    for (std::size_t s = 0; s < sources; ++s) {
      const Device device = reading.pull.devices[s];
      const int peer = rank_of(device);
      if (reading.arrived[s]) {
        source_pointers_[s] = arrived + round.received[reading.arrived[s]->message].offset + reading.arrived[s]->at;
      } else if (device == place_.device) {
        source_pointers_[s] = at(reading.own_source);
      } else {
        source_pointers_[s] = generation_.segment(peer) + peer_tables_[static_cast<std::size_t>(peer)][reading.ordinal];
      }
    }
    run_strided(reading.pull, reading.type, reading.reduction, at(reading.mine),
                {source_pointers_.data(), source_pointers_.data() + sources});
  }
}

// The first peer whose part of the round has not come.
std::optional<int> Exchanger::missing(const RunExchange& exchange) {
  const RunExchange::Round& round = exchange.rounds[exchange.round];
  const int r = static_cast<int>(exchange.round);
  for (const int peer : round.peers) {
    if (generation_.posted(peer, exchange.channel, r, exchange.state->times + 1) == nullptr) return peer;
  }
  for (const Message& message : round.received) {
    if (!messages_->done(message.ticket)) return message.peer;
  }
  return std::nullopt;
}

void Exchanger::finish(RunExchange& exchange) {
  expect(exchange);
  while (!advance(exchange)) {
    const std::optional<int> peer = missing(exchange);
    const auto come = [&] {
      progress();
      return missing(exchange) != peer;
    };
    if (peer) generation_.wait(come, site(exchange), peer);
  }
  ++exchange.state->times;
  exchange.round = 0;
  exchange.shown = false;
  exchange.expected = false;
  if (exchange.bound->step->crossing != Crossing::kWithin) return;
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    if (exchange.rounds[r].readers == 0) continue;
    const auto released = [&] {
      progress();
      return generation_.released(place_.rank, exchange.channel, static_cast<int>(r), exchange.state->expected[r]);
    };
    generation_.wait(released, site(exchange), std::nullopt);
  }
}

void Exchanger::guard(RunExchange& exchange) {
  if (exchange.bound->step->crossing != Crossing::kSends) return;
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    const std::uint64_t before = exchange.state->expected_before[r];
    if (before == 0) continue;
    const auto released = [&] {
      progress();
      return generation_.released(place_.rank, exchange.channel, static_cast<int>(r), before);
    };
    const WaitSite readers{place_.rank, "wait for readers of what was sent", exchange.tensor.c_str(), exchange.bytes};
    generation_.wait(released, readers, std::nullopt);
  }
}

}  // namespace hspmd
