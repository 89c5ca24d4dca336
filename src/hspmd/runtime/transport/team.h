// Team: an ordered list of ranks of one host and what their collectives stand on. In here ranks are places in the list,
// 0..size-1. Two ways to meet, both without a copy that somebody else must make:
//
//   small data   every rank puts its own into a slot that the others read; two slots, used in turn, so that nobody
//   waits
//                for readers: a rank that comes to the next collective but one has seen everybody come to the next
//   large data   every rank shows where its data lie in its segment; the others read and write there directly; all wait
//                until all are done
//
//   Team team(generation, {2, 0, 1}, /*rank=*/0, /*block=*/0);    a block of Team::block_bytes(3) at the same place of
//   direct_all_reduce<float>(team, data, Reduction::kSum);        all segments; all three call the same, in order
//
// Data must lie in the rank's segment, behind the blocks; InvalidArgument otherwise.
#pragma once

#include <span>
#include <vector>

#include "hspmd/runtime/transport/arena.h"

namespace hspmd {

class Team {
 public:
  static constexpr std::size_t kSmallBytes = 8192;
  [[nodiscard]] static std::size_t block_bytes();

  // Throws InvalidArgument unless the ranks are distinct and near, and `rank` is one of them.
  Team(Generation& generation, std::vector<int> ranks, int rank, std::size_t block);

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int me() const { return me_; }
  // Named in failures; the text must outlive the team's use.
  void set_tensor(const char* tensor) { site_.tensor = tensor; }

  // ---- for the collectives ----

  // The next collective, of so many bytes.
  void begin(const char* action, std::size_t bytes);
  // My slot of this collective, kSmallBytes long; `arrive` makes it readable.
  [[nodiscard]] std::byte* my_slot() { return slot(me_); }
  void arrive();
  // Shows my data, and arrives.
  void show(const void* data);
  // Wait for a rank to arrive; its slot, or the data that it showed.
  [[nodiscard]] const std::byte* slot_of(int place);
  [[nodiscard]] std::byte* data_of(int place);
  // I no longer touch others' data. `wait_departed` returns once nobody touches mine.
  void depart();
  void wait_departed();

 private:
  struct Line;
  struct Block;
  [[nodiscard]] Block& block(int place) const;
  [[nodiscard]] std::byte* slot(int place) const;

  Generation& generation_;
  std::vector<int> ranks_;
  int me_ = 0;
  std::size_t offset_;  // of the block in each segment
  std::uint64_t turn_ = 0;
  WaitSite site_;
};

}  // namespace hspmd
