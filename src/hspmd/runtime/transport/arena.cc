#include "hspmd/runtime/transport/arena.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "hspmd/base/errors.h"
#include "hspmd/base/hash.h"

namespace hspmd {

// A cache line of its own: ranks poll it.
struct alignas(64) Generation::Mailbox {
  std::atomic<std::uint64_t> posted{0};    // times shown
  std::atomic<std::uint64_t> released{0};  // readers that are done, over all times
  std::uint64_t table[2] = {0, 0};         // offset of the table in the owner's memory, for even and odd times
};

struct Generation::Head {
  enum : std::uint32_t { kRuns, kWriting, kAborted };
  std::atomic<std::uint32_t> state{kRuns};
  char reason[996] = {};
  std::atomic<std::uint64_t> arrived{0};  // of the first near rank: at the barrier
};

namespace {

constexpr std::size_t kPage = 4096;

std::size_t pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

std::uint64_t this_host() {
  std::string text;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, text);
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    struct stat info {};
    if (stat(space, &info) == 0) text += fmt::format(" {}", info.st_ino);
  }
  if (const char* name = std::getenv("HSPMD_HOST")) text += fmt::format(" {}", name);
  return fnv1a(text);
}

Generation::Generation(int ranks, int channels, std::chrono::duration<double> timeout)
    : channels_(channels), timeout_(timeout), peers_(static_cast<std::size_t>(std::max(ranks, 0))) {
  check(timeout);
  for (int rank = 0; rank < ranks; ++rank) near_.push_back(rank);
}

Generation::Generation(Place place, int channels, std::chrono::duration<double> timeout)
    : me_(place.rank), channels_(channels), timeout_(timeout), peers_(place.hosts.size()) {
  check(timeout);
  check_internal(me_ >= 0 && me_ < ranks(), "a process is one of the ranks");
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    peers_[r].near = place.hosts[r] == place.hosts[static_cast<std::size_t>(me_)];
    if (peers_[r].near) near_.push_back(rank);
  }
}

void Generation::check(std::chrono::duration<double> timeout) const {
  if (peers_.empty() || channels_ < 0 || timeout.count() <= 0)
    invalid("[arena] a generation must have a rank and a time-out above 0 s");
}

void Generation::attach(Peer& peer, Segment segment) const {
  peer.segment = std::move(segment);
  peer.head = reinterpret_cast<Head*>(peer.segment.data());
  peer.mailboxes = reinterpret_cast<Mailbox*>(peer.segment.data() + pages(sizeof(Head)));
  peer.data = peer.segment.data() + pages(sizeof(Head)) +
              pages(static_cast<std::size_t>(channels_) * kRoundsPerChannel * sizeof(Mailbox));
}

std::byte* Generation::make_segment(int rank, std::size_t bytes) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  check_internal(peer.data == nullptr, "a rank's segment is made once");
  const std::size_t whole =
      pages(sizeof(Head)) + pages(static_cast<std::size_t>(channels_) * kRoundsPerChannel * sizeof(Mailbox)) + bytes;
  attach(peer, me_ == kAllHere ? Segment::in_process(whole) : Segment::shared(whole));
  return peer.data;
}

std::string Generation::introduction() const {
  return to_string(peers_[static_cast<std::size_t>(me_)].segment.name());
}

void Generation::meet(const std::vector<std::string>& introductions) {
  check_internal(introductions.size() == peers_.size(), "everybody is introduced");
  for (const int rank : near_) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == me_) continue;
    const SegmentName name = parse_segment_name(introductions[r]);
    attach(peers_[r], Segment::of_peer(name));
    if (peers_[r].segment.bytes() < static_cast<std::size_t>(peers_[r].data - peers_[r].segment.data()))
      throw RuntimeFailure(fmt::format("[arena] rank {} must run the same program; its segment is too small", rank));
  }
}

Generation::Mailbox& Generation::mailbox(int rank, int channel, int round) const {
  check_internal(round < kRoundsPerChannel && channel < channels_ && rank < ranks(),
                 "a mailbox is one of the generation");
  return peers_[static_cast<std::size_t>(rank)].mailboxes[channel * kRoundsPerChannel + round];
}

void Generation::post(int rank, int channel, int round, std::uint64_t time, std::uint64_t table_offset) {
  Mailbox& box = mailbox(rank, channel, round);
  box.table[time % 2] = table_offset;
  box.posted.store(time, std::memory_order_release);
}

std::size_t Generation::segment_bytes(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return peer.segment.bytes() - static_cast<std::size_t>(peer.data - peer.segment.data());
}

const std::uint64_t* Generation::posted(int peer, int channel, int round, std::uint64_t time) const {
  const Mailbox& box = mailbox(peer, channel, round);
  if (box.posted.load(std::memory_order_acquire) < time) return nullptr;
  return reinterpret_cast<const std::uint64_t*>(segment(peer) + box.table[time % 2]);
}

const std::uint64_t* Generation::acquire(int peer, int channel, int round, std::uint64_t time, const WaitSite& site) {
  const std::uint64_t* table = nullptr;
  wait([&] { return (table = posted(peer, channel, round, time)) != nullptr; }, site, peer);
  return table;
}

void Generation::release(int peer, int channel, int round) {
  mailbox(peer, channel, round).released.fetch_add(1, std::memory_order_acq_rel);
}

bool Generation::released(int rank, int channel, int round, std::uint64_t count) const {
  return mailbox(rank, channel, round).released.load(std::memory_order_acquire) >= count;
}

void Generation::wait_released(int channel, int round, std::uint64_t count, const WaitSite& site) {
  wait([&] { return released(site.rank, channel, round, count); }, site, std::nullopt);
}

void Generation::barrier(const WaitSite& site) {
  const auto all = static_cast<std::uint64_t>(near_.size());
  std::atomic<std::uint64_t>& arrived = peers_[static_cast<std::size_t>(near_.front())].head->arrived;
  const std::uint64_t turn = arrived.fetch_add(1, std::memory_order_acq_rel) / all;
  wait([&] { return arrived.load(std::memory_order_acquire) >= (turn + 1) * all; }, site, std::nullopt);
}

void Generation::abort(const std::string& reason) {
  flag_.raise(reason);
  if (me_ == kAllHere) return;
  for (const int rank : near_) {
    Head* head = peers_[static_cast<std::size_t>(rank)].head;
    std::uint32_t runs = Head::kRuns;
    if (head == nullptr || !head->state.compare_exchange_strong(runs, Head::kWriting)) continue;
    std::strncpy(head->reason, reason.c_str(), sizeof(head->reason) - 1);
    head->state.store(Head::kAborted, std::memory_order_release);
  }
}

bool Generation::aborted() const {
  if (me_ != kAllHere && !flag_.raised()) {
    const Head* head = peers_[static_cast<std::size_t>(me_)].head;
    if (head != nullptr && head->state.load(std::memory_order_acquire) == Head::kAborted)
      flag_.raise(std::string(head->reason, strnlen(head->reason, sizeof(head->reason))));
  }
  return flag_.raised();
}

}  // namespace hspmd
