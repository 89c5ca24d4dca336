// Arena: how ranks inside one host exchange data. Every rank has one segment of memory that all others can read, and
// a mailbox for each round of each exchange. Nothing is copied to be sent: a rank shows its buffers, the others read
// them in place, sum what they need and say that they are done.
//
//   rank 0: post(channel, round, table)     the table lists where its buffers lie in its segment
//   rank 1: acquire(0, ...) -> table        waits for the post; reads rank 0's buffers
//   rank 1: release(0, ...)
//   rank 0: wait_released(...)              may overwrite its buffers
//
// Everything belongs to a generation with one abort token: an abort ends every wait at once, with an error; a fresh
// generation starts from fresh mailboxes. Mailboxes hold counters and offsets, no pointers, so that the same layout
// serves threads (one process) and processes (shared memory).
// A wait spins briefly, then yields (more ranks than cores are no disaster), and is never endless.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hspmd/base/errors.h"

namespace hspmd {

// What a wait is for; the texts must outlive it.
struct WaitSite {
  int rank = 0;
  const char* action = "";
  const char* tensor = "";
  std::int64_t bytes = 0;
};

struct Mailbox {
  std::atomic<std::uint64_t> posted{0};    // times shown
  std::atomic<std::uint64_t> released{0};  // readers that are done, over all times
  std::uint64_t table[2] = {0, 0};         // offset of the table in the owner's segment, for even and odd times
};

inline constexpr int kRoundsPerChannel = 8;  // a CommPlan has at most 4 stages of 2 rounds

class Generation {
 public:
  // Throws InvalidArgument unless ranks >= 1, channels >= 0 and the time-out is positive.
  Generation(int ranks, int channels, std::chrono::duration<double> timeout);

  [[nodiscard]] int ranks() const { return ranks_; }

  void set_segment(int rank, std::byte* base) {
    segments_[static_cast<std::size_t>(rank)].store(base, std::memory_order_release);
  }
  [[nodiscard]] const std::byte* segment(int rank) const {
    return segments_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

  // Shows for the `time`-th time (from 1, ascending; times in which nobody reads may be left out).
  void post(int rank, int channel, int round, std::uint64_t time, std::uint64_t table_offset);
  // The table that `peer` posted for the `time`-th time (from 1). Throws RuntimeFailure on abort or time-out.
  const std::uint64_t* acquire(int peer, int channel, int round, std::uint64_t time, const WaitSite& site);
  void release(int peer, int channel, int round);
  void wait_released(int channel, int round, std::uint64_t count, const WaitSite& site);

  // All ranks meet. Throws RuntimeFailure on abort or time-out.
  void barrier(const WaitSite& site);

  // Ends every wait of the generation, now and later; the first reason stays.
  void abort(const std::string& reason);
  [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const;

 private:
  Mailbox& mailbox(int rank, int channel, int round);
  template <typename Ready>
  void wait(Ready ready, const WaitSite& site, int peer);

  int ranks_;
  int channels_;
  std::chrono::duration<double> timeout_;
  std::vector<Mailbox> mailboxes_;
  std::vector<std::atomic<std::byte*>> segments_;
  std::atomic<bool> aborted_{false};
  std::atomic<std::uint64_t> arrived_{0};
  mutable std::mutex reason_lock_;
  std::string reason_;
};

}  // namespace hspmd
