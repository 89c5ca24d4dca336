#include "hspmd/runtime/transport/mail.h"

#include <algorithm>
#include <cstring>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/copy.h"

namespace hspmd {

// Lies in the sender's segment; `written` and `read` count from 1, so that zero memory is an empty ring.
struct alignas(64) Mail::Letter {
  std::atomic<std::uint64_t> written{0};
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // of larger data in the sender's segment
  alignas(64) std::atomic<std::uint64_t> read{0};
  alignas(64) std::byte inlined[kInlineBytes];
};

std::size_t Mail::block_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * kLetters * sizeof(Letter);
}

Mail::Mail(Generation& generation, int rank, std::size_t block)
    : generation_(generation), rank_(rank), block_(block), peers_(static_cast<std::size_t>(generation.ranks())) {}

Mail::Letter& Mail::letter(int from, int to, std::uint64_t number) const {
  auto* letters = reinterpret_cast<Letter*>(generation_.segment(from) + block_);
  return letters[static_cast<std::size_t>(to) * kLetters + number % kLetters];
}

Mail::Ticket Mail::start(Request request, int peer, std::vector<std::uint32_t> Peer::*list) {
  if (peer < 0 || peer >= generation_.ranks() || !generation_.near(peer))
    invalid("[mail] rank {} must be of rank {}'s host", peer, rank_);
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(requests_.size()));
    requests_.emplace_back();
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  request.sequence = requests_[slot].sequence + 1;
  request.finished = false;
  requests_[slot] = request;
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  (p.*list).push_back(slot);
  if (!p.busy) busy_.push_back(peer);
  p.busy = true;
  return {slot, request.sequence};
}

void Mail::finish(std::uint32_t slot) {
  requests_[slot].finished = true;
  free_.push_back(slot);
}

Mail::Ticket Mail::isend(int peer, std::uint64_t tag, const void* data, std::size_t bytes) {
  if (bytes > kInlineBytes) {
    const std::byte* segment = generation_.segment(rank_);
    const auto* address = static_cast<const std::byte*>(data);
    const std::size_t room = generation_.segment_bytes(rank_);
    if (address < segment || address > segment + room || bytes > room - static_cast<std::size_t>(address - segment))
      invalid("[mail] more than {} bytes must lie in the segment of rank {}", kInlineBytes, rank_);
  }
  Request request;
  request.tag = tag;
  request.source = data;
  request.bytes = bytes;
  const Ticket ticket = start(request, peer, &Peer::sends);
  progress_sends(peer);
  return ticket;
}

Mail::Ticket Mail::irecv(int peer, std::uint64_t tag, void* data, std::size_t bytes) {
  Request request;
  request.tag = tag;
  request.target = data;
  request.bytes = bytes;
  return start(request, peer, &Peer::receives);
}

void Mail::write(int peer, Request& request) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  Letter& next = letter(rank_, peer, to.written);
  next.tag = request.tag;
  next.bytes = request.bytes;
  if (request.bytes <= kInlineBytes) {
    if (request.bytes > 0) std::memcpy(next.inlined, request.source, request.bytes);
  } else {
    next.offset =
        static_cast<std::uint64_t>(static_cast<const std::byte*>(request.source) - generation_.segment(rank_));
  }
  request.letter = ++to.written;
  next.written.store(to.written, std::memory_order_release);
}

void Mail::progress_sends(int peer) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  bool full = false;  // then later ones wait too, so that they keep their order
  const auto ended = [&](std::uint32_t slot) {
    Request& request = requests_[slot];
    if (request.letter == 0) {
      if (full) return false;
      const std::uint64_t before = to.written < kLetters ? 0 : to.written - kLetters + 1;  // that used this letter
      full = letter(rank_, peer, to.written).read.load(std::memory_order_acquire) < before;
      if (full) return false;
      write(peer, request);
    }
    const bool copied = request.bytes <= kInlineBytes;
    if (!copied && letter(rank_, peer, request.letter - 1).read.load(std::memory_order_acquire) < request.letter)
      return false;
    finish(slot);
    return true;
  };
  std::erase_if(to.sends, ended);
}

void Mail::take(int peer, Letter& from, Request& request) {
  if (from.bytes != request.bytes) {
    fail_wait({rank_, "receive", "", static_cast<std::int64_t>(request.bytes)}, peer,
              fmt::format("a message of {} bytes came", from.bytes));
  }
  const std::byte* data = request.bytes <= kInlineBytes ? from.inlined : generation_.segment(peer) + from.offset;
  // Two buffers at each end.
  (4 * request.bytes >= kBeyondCaches ? copy_beyond_caches : copy)(request.target, data, request.bytes);
}

void Mail::progress_receives(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  for (std::uint64_t number = from.read; number < from.read + kLetters && !from.receives.empty(); ++number) {
    Letter& next = letter(peer, rank_, number);
    if (next.written.load(std::memory_order_acquire) != number + 1) break;
    if (next.read.load(std::memory_order_relaxed) == number + 1) continue;  // out of turn, by its tag
    const auto wanted = std::find_if(from.receives.begin(), from.receives.end(),
                                     [&](std::uint32_t slot) { return requests_[slot].tag == next.tag; });
    if (wanted == from.receives.end()) continue;
    take(peer, next, requests_[*wanted]);
    next.read.store(number + 1, std::memory_order_release);
    finish(*wanted);
    from.receives.erase(wanted);
  }
  while (letter(peer, rank_, from.read).read.load(std::memory_order_relaxed) == from.read + 1) ++from.read;
}

void Mail::progress() {
  for (std::size_t i = 0; i < busy_.size();) {
    const int peer = busy_[i];
    Peer& p = peers_[static_cast<std::size_t>(peer)];
    if (!p.sends.empty()) progress_sends(peer);
    if (!p.receives.empty()) progress_receives(peer);
    p.busy = !p.sends.empty() || !p.receives.empty();
    if (p.busy) {
      ++i;
    } else {
      busy_[i] = busy_.back();
      busy_.pop_back();
    }
  }
}

bool Mail::done(Ticket ticket) {
  const auto ended = [&] {
    const Request& request = requests_.at(ticket.slot);
    return request.finished || request.sequence != ticket.sequence;
  };
  if (ended()) return true;
  progress();
  return ended();
}

void Mail::wait(Ticket ticket, const WaitSite& site) {
  generation_.wait([&] { return done(ticket); }, site, std::nullopt);
}

void Mail::get(int peer, std::size_t offset, void* into, std::size_t bytes) const {
  const std::size_t room = generation_.segment_bytes(peer);
  if (!generation_.near(peer) || offset > room || bytes > room - offset)
    invalid("[mail] bytes [{}, {}) must lie in the {} of a near rank's segment", offset, offset + bytes, room);
  if (bytes > 0) std::memcpy(into, generation_.segment(peer) + offset, bytes);
}

}  // namespace hspmd
