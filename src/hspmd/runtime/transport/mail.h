// Mail: tagged messages between ranks of one host, and reads of each other's memory. Every rank has a ring of letters
// for each other one. A letter holds small data itself; for larger ones it says where they lie in the sender's segment,
// and the receiver copies them from there, once.
//
//   Mail mail(generation, /*rank=*/0, /*block=*/0);      a block of Mail::block_bytes(ranks) at the same place
//   everywhere auto sent = mail.isend(1, kTag, data, bytes);        data over kInlineBytes must lie in the own segment
//   auto got = mail.irecv(1, kTag, into, bytes);         messages of one peer and tag arrive in order
//   mail.wait(got, {0, "receive", "x", bytes});
//
// Used by one thread. A send is done once its data may be overwritten. Nothing is allocated in the steady state.
// RuntimeFailure: a wait that ends by abort or time-out, a message of another size than the receiver's.
#pragma once

#include <vector>

#include "hspmd/runtime/transport/arena.h"

namespace hspmd {

class Mail {
 public:
  static constexpr std::size_t kInlineBytes = 4096;
  static constexpr int kLetters = 8;  // on their way between two ranks
  [[nodiscard]] static std::size_t block_bytes(int ranks);

  // An operation that was started; one that was found done stays so.
  struct Ticket {
    std::uint32_t slot = 0;
    std::uint32_t sequence = 0;
  };

  Mail(Generation& generation, int rank, std::size_t block);

  // Throws InvalidArgument when the peer is not near, or large data do not lie in the own segment.
  Ticket isend(int peer, std::uint64_t tag, const void* data, std::size_t bytes);
  Ticket irecv(int peer, std::uint64_t tag, void* data, std::size_t bytes);
  // Makes progress.
  bool done(Ticket ticket);
  void wait(Ticket ticket, const WaitSite& site);
  void progress();

  // Reads bytes [offset, offset + bytes) of a near rank's segment. Throws InvalidArgument beyond its end.
  void get(int peer, std::size_t offset, void* into, std::size_t bytes) const;

 private:
  struct Letter;
  struct Request {
    std::uint64_t tag = 0;
    const void* source = nullptr;
    void* target = nullptr;
    std::size_t bytes = 0;
    std::uint64_t letter = 0;  // sent: which of the peer's
    std::uint32_t sequence = 0;
    bool finished = true;
  };
  // What goes on with one peer.
  struct Peer {
    std::uint64_t written = 0;         // letters to it
    std::uint64_t read = 0;            // letters from it, all before are consumed
    std::vector<std::uint32_t> sends;  // requests that wait for a letter, or for its reader
    std::vector<std::uint32_t> receives;
    bool busy = false;  // listed in busy_
  };

  [[nodiscard]] Letter& letter(int from, int to, std::uint64_t number) const;
  Ticket start(Request request, int peer, std::vector<std::uint32_t> Peer::*list);
  void progress_sends(int peer);
  void progress_receives(int peer);
  void write(int peer, Request& request);
  void take(int peer, Letter& letter, Request& request);
  void finish(std::uint32_t slot);

  Generation& generation_;
  int rank_;
  std::size_t block_;
  std::vector<Peer> peers_;  // by rank
  std::vector<int> busy_;    // those that a poll must look at
  std::vector<Request> requests_;
  std::vector<std::uint32_t> free_;
};

}  // namespace hspmd
