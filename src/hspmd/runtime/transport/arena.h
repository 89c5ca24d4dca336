// Arena: how ranks inside one host exchange data. Every rank has one segment of memory that all others can reach, and
// a mailbox for each round of each exchange. Nothing is copied to be sent: a rank shows its buffers, the others read
// them in place, sum what they need and say that they are done.
//
//   rank 0: post(channel, round, table)     the table lists where its buffers lie in its segment
//   rank 1: acquire(0, ...) -> table        waits for the post; reads rank 0's buffers
//   rank 1: release(0, ...)
//   rank 0: wait_released(...)              may overwrite its buffers
//
// Everything belongs to a generation with one abort flag: an abort ends every wait at once, with an error; a fresh
// generation starts from fresh memory. Segments hold counters and offsets, no pointers, so that the same code serves
// threads (one generation object for all, memory of the process) and processes (an object each, shared memory):
//
//   Generation all(4, channels, limits)               Generation mine({.rank = 1, .hosts = {0, 0, 1, 1}}, ...)
//   all.make_segment(r, bytes)     each rank r        mine.make_segment(1, bytes)
//                                                     mine.meet(all_gather(mine.introduction()))
//
// A rank is near when it is of one's own host; only near ranks can be read.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hspmd/runtime/transport/segment.h"
#include "hspmd/runtime/transport/wait.h"

namespace hspmd {

inline constexpr int kRoundsPerChannel = 16;  // a CommPlan has at most 4 stages of 4 rounds

// One process's place among all.
struct Place {
  int rank = 0;
  std::vector<std::uint64_t> hosts;  // by rank: equal numbers share memory
};
// A number that is equal for processes that can reach each other's memory: same kernel, same process and network
// namespaces, and the same HSPMD_HOST, where that is set (several hosts on one machine, for trials).
[[nodiscard]] std::uint64_t this_host();

class Generation {
 public:
  // Ranks as threads of this process. Throws InvalidArgument unless ranks >= 1, channels >= 0, time-out > 0.
  Generation(int ranks, int channels, std::chrono::duration<double> timeout);
  // This process as one rank.
  Generation(Place place, int channels, std::chrono::duration<double> timeout);

  [[nodiscard]] int ranks() const { return static_cast<int>(peers_.size()); }
  [[nodiscard]] bool near(int rank) const { return peers_[static_cast<std::size_t>(rank)].near; }

  // Memory of a rank that near ranks can read; once for each rank that runs here.
  std::byte* make_segment(int rank, std::size_t bytes);
  // Processes: what near ranks need to reach this rank's segment, and the call that takes everybody's, by rank.
  [[nodiscard]] std::string introduction() const;
  void meet(const std::vector<std::string>& introductions);
  [[nodiscard]] std::byte* segment(int rank) const { return peers_[static_cast<std::size_t>(rank)].data; }
  [[nodiscard]] std::size_t segment_bytes(int rank) const;

  // Shows for the `time`-th time (from 1, ascending; times in which nobody reads may be left out).
  void post(int rank, int channel, int round, std::uint64_t time, std::uint64_t table_offset);
  // The table that `peer` posted for the `time`-th time (from 1). Throws RuntimeFailure on abort or time-out.
  const std::uint64_t* acquire(int peer, int channel, int round, std::uint64_t time, const WaitSite& site);
  // The same without waiting: nullptr when it is not posted yet.
  [[nodiscard]] const std::uint64_t* posted(int peer, int channel, int round, std::uint64_t time) const;
  void release(int peer, int channel, int round);
  void wait_released(int channel, int round, std::uint64_t count, const WaitSite& site);
  [[nodiscard]] bool released(int rank, int channel, int round, std::uint64_t count) const;

  // Any other wait of the generation.
  template <typename Ready>
  void wait(Ready ready, const WaitSite& site, std::optional<int> peer) {
    // A near rank's abort arrives in this rank's head; from there it becomes one's own.
    const auto ready_or_aborted = [&] {
      if (ready()) return true;
      (void)aborted();
      return false;
    };
    wait_until(ready_or_aborted, limits(), site, peer);
  }

  // All near ranks meet. Throws RuntimeFailure on abort or time-out.
  void barrier(const WaitSite& site);

  // Ends every wait of all near ranks, now and later; the first reason stays.
  void abort(const std::string& reason);
  [[nodiscard]] bool aborted() const;
  [[nodiscard]] std::string reason() const { return flag_.reason(); }
  [[nodiscard]] WaitLimits limits() const { return {&flag_, timeout_}; }

 private:
  struct Mailbox;
  struct Head;
  // A rank's segment: its head, its mailboxes, then its memory.
  struct Peer {
    bool near = true;
    Segment segment;
    Head* head = nullptr;
    Mailbox* mailboxes = nullptr;
    std::byte* data = nullptr;
  };
  void check(std::chrono::duration<double> timeout) const;
  void attach(Peer& peer, Segment segment) const;
  [[nodiscard]] Mailbox& mailbox(int rank, int channel, int round) const;

  static constexpr int kAllHere = -1;
  int me_ = kAllHere;
  int channels_ = 0;
  std::chrono::duration<double> timeout_;
  std::vector<Peer> peers_;
  std::vector<int> near_;
  mutable AbortFlag flag_;
};

}  // namespace hspmd
