#include "hspmd/runtime/exchanger.h"

#include <algorithm>
#include <set>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

ElementType element_type(const BoundTransfer& t) {
  if (t.integers) return ElementType::kInt32;
  return t.element_bytes == 8 ? ElementType::kFp64 : ElementType::kFp32;
}

}  // namespace

Exchanger::Exchanger(Generation& generation, const ExchangerPlace& place, const std::array<std::byte*, kScopes>& base,
                     Pace* pace)
    : generation_(generation), place_(place), base_(base), pace_(pace) {
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
  check_internal(bound.rounds <= kRoundsPerChannel, "an exchange has at most 8 rounds");
  for (const BoundTransfer& t : bound.transfers) {
    run.bytes += t.bytes;
    run.seconds = std::max(run.seconds, t.seconds);
  }
  for (std::size_t r = 0; r < bound.rounds; ++r) {
    RunExchange::Round& round = run.rounds[r];
    std::set<int> readers;
    std::set<int> peers;
    for (const BoundTransfer& t : bound.transfers) {
      if (r >= t.exchange.rounds.size()) continue;
      const Round& local = t.exchange.rounds[r];
      for (const Device d : local.readers) readers.insert(rank_of(d));
      if (local.shows >= 0)
        round.shows.emplace_back(t.transfer->ordinal, t.states[static_cast<std::size_t>(local.shows)]);
      for (const Pull& pull : local.pulls) {
        // In the second half of an all-reduce the buffer read is the one filled: state `fills` of the peer.
        const bool second = r % 2 == 1;
        const auto source_state = static_cast<std::size_t>(second ? local.fills : local.fills - 1);
        RunExchange::Reading reading{
            t.transfer->ordinal,    make_strided(pull), t.states[static_cast<std::size_t>(local.fills)],
            t.states[source_state], element_type(t),    t.exchange.reduction};
        for (const Device d : reading.pull.devices) {
          if (d != place_.device) peers.insert(rank_of(d));
        }
        round.readings.push_back(std::move(reading));
      }
    }
    round.readers = readers.size();
    round.peers.assign(peers.begin(), peers.end());
  }
  return run;
}

WaitSite Exchanger::site(const RunExchange& exchange) const {
  return {place_.rank, "exchange", exchange.tensor.c_str(), exchange.bytes};
}

void Exchanger::start(RunExchange& exchange) {
  if (!exchange.rounds.empty()) show(exchange);
}

void Exchanger::show(RunExchange& exchange) {
  const std::size_t r = exchange.round;
  RunExchange::Round& round = exchange.rounds[r];
  exchange.shown = true;
  exchange.state->expected_before[r] = exchange.state->expected[r];
  if (round.readers == 0) return;
  if (pace_ != nullptr) pace_->settle();
  const std::size_t size = static_cast<std::size_t>(exchange.bound->step->size);
  const std::size_t offset =
      exchange.table + ((exchange.state->times % 2) * exchange.rounds.size() + r) * size * sizeof(std::uint64_t);
  std::byte* memory = generation_.segment(place_.rank);
  auto* table = reinterpret_cast<std::uint64_t*>(memory + offset);
  for (const auto& [ordinal, address] : round.shows) table[ordinal] = static_cast<std::uint64_t>(at(address) - memory);
  exchange.state->expected[r] += round.readers;
  generation_.post(place_.rank, exchange.channel, static_cast<int>(r), exchange.state->times + 1, offset);
}

bool Exchanger::advance(RunExchange& exchange) {
  while (exchange.round < exchange.rounds.size()) {
    if (!exchange.shown) show(exchange);
    const int r = static_cast<int>(exchange.round);
    const RunExchange::Round& round = exchange.rounds[exchange.round];
    for (const int peer : round.peers) {
      const std::uint64_t* table = generation_.posted(peer, exchange.channel, r, exchange.state->times + 1);
      if (table == nullptr) return false;
      peer_tables_[static_cast<std::size_t>(peer)] = table;
    }
    read(exchange);
    for (const int peer : round.peers) generation_.release(peer, exchange.channel, r);
    ++exchange.round;
    exchange.shown = false;
  }
  return true;
}

void Exchanger::read(RunExchange& exchange) {
  RunExchange::Round& round = exchange.rounds[exchange.round];
  if (pace_ != nullptr) {
    if (round.peers.empty()) return;
    pace_->pass(exchange.seconds / static_cast<double>(exchange.rounds.size()));
    pace_->settle();
    return;
  }
  for (RunExchange::Reading& reading : round.readings) {
    const std::size_t sources = reading.pull.devices.size();
    for (std::size_t s = 0; s < sources; ++s) {
      const Device device = reading.pull.devices[s];
      const int peer = rank_of(device);
      source_pointers_[s] = device == place_.device ? at(reading.own_source)
                                                    : generation_.segment(peer) +
                                                          peer_tables_[static_cast<std::size_t>(peer)][reading.ordinal];
    }
    run_strided(reading.pull, reading.type, reading.reduction, at(reading.mine),
                {source_pointers_.data(), source_pointers_.data() + sources});
  }
}

void Exchanger::finish(RunExchange& exchange) {
  while (!advance(exchange)) {
    // The first peer that has not shown yet is the one waited for.
    const int r = static_cast<int>(exchange.round);
    for (const int peer : exchange.rounds[exchange.round].peers)
      (void)generation_.acquire(peer, exchange.channel, r, exchange.state->times + 1, site(exchange));
  }
  ++exchange.state->times;
  exchange.round = 0;
  exchange.shown = false;
  if (exchange.bound->step->crossing != Crossing::kWithin) return;
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    if (exchange.rounds[r].readers > 0)
      generation_.wait_released(exchange.channel, static_cast<int>(r), exchange.state->expected[r], site(exchange));
  }
}

void Exchanger::guard(RunExchange& exchange) {
  if (exchange.bound->step->crossing != Crossing::kSends) return;
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    const std::uint64_t before = exchange.state->expected_before[r];
    if (before == 0) continue;
    generation_.wait_released(
        exchange.channel, static_cast<int>(r), before,
        {place_.rank, "wait for readers of what was sent", exchange.tensor.c_str(), exchange.bytes});
  }
}

}  // namespace hspmd
