#include "hspmd/runtime/transport/arena.h"

#include <sched.h>

namespace hspmd {
namespace {

constexpr int kSpins = 200;          // then the core goes to somebody else
constexpr int kYieldsPerClock = 64;  // reading the clock at every yield would cost more than the yield
constexpr int kNobody = -1;

}  // namespace

Generation::Generation(int ranks, int channels, std::chrono::duration<double> timeout)
    : ranks_(ranks),
      channels_(channels),
      timeout_(timeout),
      mailboxes_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(channels) * kRoundsPerChannel),
      segments_(static_cast<std::size_t>(ranks)) {
  if (ranks < 1 || channels < 0 || timeout.count() <= 0)
    invalid("[arena] a generation must have a rank and a time-out above 0 s");
}

Mailbox& Generation::mailbox(int rank, int channel, int round) {
  check_internal(round < kRoundsPerChannel && channel < channels_ && rank < ranks_,
                 "a mailbox is one of the generation");
  const auto index =
      (static_cast<std::size_t>(rank) * static_cast<std::size_t>(channels_) + static_cast<std::size_t>(channel)) *
      kRoundsPerChannel;
  return mailboxes_[index + static_cast<std::size_t>(round)];
}

void Generation::post(int rank, int channel, int round, std::uint64_t time, std::uint64_t table_offset) {
  Mailbox& box = mailbox(rank, channel, round);
  box.table[time % 2] = table_offset;
  box.posted.store(time, std::memory_order_release);
}

template <typename Ready>
void Generation::wait(Ready ready, const WaitSite& site, int peer) {
  const auto fail = [&](const std::string& reason) {
    FailureSite failure{site.rank, site.action, std::nullopt, site.tensor, site.bytes};
    if (peer != kNobody) failure.peer = peer;
    throw RuntimeFailure(failure, reason);
  };
  for (int spin = 0; spin < kSpins; ++spin) {
    if (ready()) return;
  }
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < kYieldsPerClock; ++i) {
      if (ready()) return;
      if (aborted()) fail("aborted: " + reason());
      sched_yield();
    }
    if (std::chrono::steady_clock::now() - start > timeout_)
      fail(fmt::format("timed out after {} s", timeout_.count()));
  }
}

const std::uint64_t* Generation::acquire(int peer, int channel, int round, std::uint64_t time, const WaitSite& site) {
  const Mailbox& box = mailbox(peer, channel, round);
  wait([&] { return box.posted.load(std::memory_order_acquire) >= time; }, site, peer);
  return reinterpret_cast<const std::uint64_t*>(segment(peer) + box.table[time % 2]);
}

void Generation::release(int peer, int channel, int round) {
  mailbox(peer, channel, round).released.fetch_add(1, std::memory_order_acq_rel);
}

void Generation::wait_released(int channel, int round, std::uint64_t count, const WaitSite& site) {
  const Mailbox& box = mailbox(site.rank, channel, round);
  wait([&] { return box.released.load(std::memory_order_acquire) >= count; }, site, kNobody);
}

void Generation::barrier(const WaitSite& site) {
  const auto all = static_cast<std::uint64_t>(ranks_);
  const std::uint64_t turn = arrived_.fetch_add(1, std::memory_order_acq_rel) / all;
  wait([&] { return arrived_.load(std::memory_order_acquire) >= (turn + 1) * all; }, site, kNobody);
}

void Generation::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_lock_);
    if (!aborted()) reason_ = reason;
  }
  aborted_.store(true, std::memory_order_release);
}

std::string Generation::reason() const {
  const std::lock_guard lock(reason_lock_);
  return reason_;
}

}  // namespace hspmd
