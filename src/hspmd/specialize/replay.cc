#include "hspmd/specialize/replay.h"

#include <optional>
#include <unordered_map>

namespace hspmd {
namespace {

// One round of one channel of a device, over the whole step.
struct Board {
  int shown = 0;
  int read = 0;                      // by all readers together
  int expected = 0;                  // reads of what was shown so far
  int expected_before = 0;           // but for the last time
  std::vector<std::size_t> waiting;  // devices that wait for the next show
};

class Player {
 public:
  explicit Player(const std::vector<ReplayDevice>& devices) : devices_(devices), at_(devices.size()) {
    for (std::size_t d = 0; d < devices.size(); ++d) index_[devices[d].device] = d;
  }

  std::vector<Stuck> run() {
    for (std::size_t d = 0; d < devices_.size(); ++d) ready_.push_back(d);
    while (!ready_.empty()) {
      const std::size_t d = ready_.back();
      ready_.pop_back();
      while (advance(d)) continue;
    }
    std::vector<Stuck> stuck;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      if (at_[d].run < devices_[d].runs.size()) stuck.push_back(where(d));
    }
    return stuck;
  }

 private:
  enum class Phase { kGuard, kShow, kRead, kRelease };
  // Where a device stands: in a run, at an exchange, in a round, at a peer.
  struct Place {
    std::size_t run = 0;
    Phase phase = Phase::kGuard;
    std::size_t exchange = 0;
    std::size_t round = 0;
    std::size_t peer = 0;
    std::optional<std::size_t> unread;  // the round whose readers it waits for
  };

  std::size_t place_of(Device device) const {
    const auto found = index_.find(device);
    check_internal(found != index_.end(), "a peer is one of the devices");
    return found->second;
  }

  const std::vector<ReplayExchange>& exchanges(std::size_t d) const {
    return devices_[d].lists[devices_[d].runs[at_[d].run].list];
  }

  Board& board(std::size_t d, int channel, std::size_t round) {
    auto& rounds = boards_[(static_cast<std::uint64_t>(d) << 32U) | static_cast<std::uint32_t>(channel)];
    if (rounds.size() <= round) rounds.resize(round + 1);
    return rounds[round];
  }

  // One thing that the device can do now; false where it waits or has come to the end.
  bool advance(std::size_t d) {
    Place& at = at_[d];
    if (at.run == devices_[d].runs.size()) return false;
    const auto& list = exchanges(d);
    if (at.exchange == list.size()) {
      at.exchange = 0;
      if (at.phase == Phase::kGuard) {
        at.phase = Phase::kShow;
      } else {
        at.phase = Phase::kGuard;
        ++at.run;
      }
      return true;
    }
    const ReplayExchange& exchange = list[at.exchange];
    switch (at.phase) {
      case Phase::kGuard:
        return guard(d, exchange);
      case Phase::kShow:
        return show(d, exchange);
      case Phase::kRead:
        return read(d, exchange);
      case Phase::kRelease:
        return release(d, exchange);
    }
    return false;
  }

  bool guard(std::size_t d, const ReplayExchange& exchange) {
    for (std::size_t r = 0; exchange.crossing == Crossing::kSends && r < exchange.rounds.size(); ++r) {
      const Board& b = board(d, exchange.channel, r);
      if (b.read < b.expected_before) return wait_for_readers(d, r);
    }
    ++at_[d].exchange;
    return true;
  }

  bool show(std::size_t d, const ReplayExchange& exchange) {
    Place& at = at_[d];
    if (at.round == exchange.rounds.size()) {
      at.phase = Phase::kRelease;
      at.round = 0;
      return true;
    }
    Board& b = board(d, exchange.channel, at.round);
    ++b.shown;
    b.expected_before = b.expected;
    b.expected += static_cast<int>(exchange.rounds[at.round].readers.size());
    ready_.insert(ready_.end(), b.waiting.begin(), b.waiting.end());
    b.waiting.clear();
    at.phase = Phase::kRead;
    at.peer = 0;
    return true;
  }

  bool read(std::size_t d, const ReplayExchange& exchange) {
    Place& at = at_[d];
    const auto& peers = exchange.rounds[at.round].peers;
    const int times = board(d, exchange.channel, at.round).shown;
    for (; at.peer < peers.size(); ++at.peer) {
      Board& b = board(place_of(peers[at.peer]), exchange.channel, at.round);
      if (b.shown >= times) continue;
      b.waiting.push_back(d);
      return false;
    }
    for (const Device peer : peers) {
      const std::size_t p = place_of(peer);
      ++board(p, exchange.channel, at.round).read;
      if (at_[p].unread) ready_.push_back(p);
      at_[p].unread.reset();
    }
    ++at.round;
    at.phase = Phase::kShow;
    return true;
  }

  bool release(std::size_t d, const ReplayExchange& exchange) {
    Place& at = at_[d];
    for (std::size_t r = 0; exchange.crossing == Crossing::kWithin && r < exchange.rounds.size(); ++r) {
      const Board& b = board(d, exchange.channel, r);
      if (b.read < b.expected) return wait_for_readers(d, r);
    }
    ++at.exchange;
    at.round = 0;
    at.phase = Phase::kShow;
    return true;
  }

  bool wait_for_readers(std::size_t d, std::size_t round) {
    at_[d].unread = round;
    return false;
  }

  Stuck where(std::size_t d) const {
    const Place& at = at_[d];
    const ReplayExchange& exchange = exchanges(d)[at.exchange];
    Stuck stuck{devices_[d].device, exchange.channel, devices_[d].runs[at.run].micro_batch, {}};
    stuck.waits_for =
        at.unread ? exchange.rounds[*at.unread].readers : std::vector<Device>{exchange.rounds[at.round].peers[at.peer]};
    return stuck;
  }

  const std::vector<ReplayDevice>& devices_;
  std::vector<Place> at_;
  std::unordered_map<Device, std::size_t> index_;
  std::unordered_map<std::uint64_t, std::vector<Board>> boards_;  // device << 32 | channel -> rounds
  std::vector<std::size_t> ready_;
};

}  // namespace

std::vector<Stuck> replay(const std::vector<ReplayDevice>& devices) {
  for (const ReplayDevice& device : devices) {
    for (const ReplayRun& run : device.runs) check_internal(run.list < device.lists.size(), "a run has its exchanges");
  }
  return Player(devices).run();
}

}  // namespace hspmd
