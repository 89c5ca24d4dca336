#include "hspmd/runtime/transport/message_group.h"

#include <algorithm>
#include <set>

#include "hspmd/base/errors.h"

namespace hspmd {

constexpr int kCollectiveBits = 16;

MessageGroup::MessageGroup(Messages& messages, std::vector<int> ranks, std::uint32_t tag, const AbortFlag& abort,
                           std::chrono::duration<double> timeout)
    : messages_(messages),
      ranks_(std::move(ranks)),
      tag_(std::uint64_t{tag} << kCollectiveBits),
      abort_(abort),
      timeout_(timeout),
      site_{messages.rank()},
      even_parts_(ranks_.size()) {
  if (std::set<int>(ranks_.begin(), ranks_.end()).size() != ranks_.size())
    invalid("[messages] the ranks of a group must be distinct. Received {}.", fmt::join(ranks_, ", "));
  const auto mine = std::find(ranks_.begin(), ranks_.end(), messages.rank());
  if (mine == ranks_.end())
    invalid("[messages] a group must hold rank {} itself. Received {}.", messages.rank(), fmt::join(ranks_, ", "));
  me_ = static_cast<int>(mine - ranks_.begin());
}

// After a failure UCX may still hold the scratch memory.
MessageGroup::~MessageGroup() {
  if (under_way_) messages_.keep(std::move(scratch_));
}

void MessageGroup::begin(const char* action) {
  check_internal(!under_way_, "a group is not used again after a failure");
  site_.action = action;
  constexpr std::uint64_t kCollectives = std::uint64_t{1} << kCollectiveBits;
  tag_ = (tag_ & ~(kCollectives - 1)) | (begun_++ % kCollectives);
}

int MessageGroup::around(int steps) const {
  return ((me_ + steps) % size() + size()) % size();
}

void MessageGroup::exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  Messages::Ticket received;
  Messages::Ticket sent;
  under_way_ = true;
  if (!in.empty()) received = messages_.irecv(rank_at(from), tag_, in.data(), in.size());
  if (!out.empty()) sent = messages_.isend(rank_at(to), tag_, out.data(), out.size());
  wait(received, in.size());
  wait(sent, out.size());
  under_way_ = false;
}

void MessageGroup::send(int to, std::span<const std::byte> out) {
  exchange(to, out, to, {});
}

void MessageGroup::receive(int from, std::span<std::byte> in) {
  exchange(from, {}, from, in);
}

void MessageGroup::wait(Messages::Ticket ticket, std::size_t bytes) {
  site_.bytes = static_cast<std::int64_t>(bytes);
  messages_.wait(ticket, site_, abort_, timeout_);
}

std::byte* MessageGroup::scratch_bytes(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

std::span<const std::size_t> MessageGroup::even_parts(std::size_t count) {
  const std::size_t parts = even_parts_.size();
  for (std::size_t p = 0; p < parts; ++p) even_parts_[p] = count / parts + (p < count % parts ? 1 : 0);
  return even_parts_;
}

}  // namespace hspmd
