// MessageGroup: an ordered list of ranks that run collectives over Messages, and what these need: a tag, scratch memory
// that is kept, and how a wait ends. In here ranks are places in the list, 0..size-1.
//
//   MessageGroup group(messages, {0, 4, 8}, /*tag=*/7, abort, timeout);
//   ring_all_reduce(group, std::span(gradients), Reduction::kSum);      all three call the same, in the same order
//
// Every collective has a tag of its own, so that ranks which disagree about the order of collectives wait in vain, or
// see a wrong size, instead of mixing data. After a failure the Messages are closed, and both made anew. The Messages
// outlive the group.
#pragma once

#include <span>
#include <vector>

#include "hspmd/runtime/transport/messages.h"

namespace hspmd {

class MessageGroup {
 public:
  // The tag tells groups with common ranks apart; a group's messages have the Messages' tags [tag * 2^16, (tag + 1) *
  // 2^16). Throws InvalidArgument unless the ranks are distinct, the own rank is one of them and the tag is below 2^32.
  MessageGroup(Messages& messages, std::vector<int> ranks, std::uint32_t tag, const AbortFlag& abort,
               std::chrono::duration<double> timeout);
  ~MessageGroup();
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int me() const { return me_; }

  // Named in failures from now on; the text must outlive the group's use.
  void set_tensor(const char* tensor) { site_.tensor = tensor; }

  // For the collectives.

  // A collective begins.
  void begin(const char* action);
  // The place `steps` (negative too) further round the ring.
  [[nodiscard]] int around(int steps) const;
  // Sends and receives at once; returns when both are done. Nothing is sent where there are no bytes.
  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in);
  void send(int to, std::span<const std::byte> out);
  void receive(int from, std::span<std::byte> in);

  // Kept from call to call; grows only. A second call may move what the first returned.
  template <typename T>
  [[nodiscard]] std::span<T> scratch(std::size_t count) {
    return {reinterpret_cast<T*>(scratch_bytes(count * sizeof(T))), count};
  }
  // `count` elements cut into size() parts that differ by at most one; valid until the next call.
  [[nodiscard]] std::span<const std::size_t> even_parts(std::size_t count);

 private:
  std::byte* scratch_bytes(std::size_t bytes);
  void wait(Messages::Ticket ticket, std::size_t bytes);
  [[nodiscard]] int rank_at(int place) const { return ranks_[static_cast<std::size_t>(place)]; }

  Messages& messages_;
  std::vector<int> ranks_;
  int me_ = 0;
  std::uint64_t tag_;        // 32 bits of the group, 16 of the collective
  std::uint64_t begun_ = 0;  // collectives
  const AbortFlag& abort_;
  std::chrono::duration<double> timeout_;
  WaitSite site_;
  bool under_way_ = false;  // messages; stays so after a failure
  std::vector<std::byte> scratch_;
  std::vector<std::size_t> even_parts_;
};

}  // namespace hspmd
