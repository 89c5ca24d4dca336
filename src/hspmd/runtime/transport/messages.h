// Messages between processes: tagged isend and irecv, one-sided get, over UCX (TCP, RoCE, InfiniBand). One object per
// process and generation.
//
//   Messages messages({.interface = "eth0", .rank = 0, .ranks = 2});
//   publish(messages.address());                        by whatever the processes share
//   messages.connect(1, address_of_rank_1);
//   auto ticket = messages.irecv(1, kTag, buffer, 4096);
//   messages.wait(ticket, {0, "receive", "x", 4096}, abort, timeout);
//
// An object is used by one thread at a time. Nothing moves by itself: done, wait and progress make progress, also of
// what peers read from here. Buffers belong to the operation until its ticket is done; after a failure, an abort or a
// time-out they stay until close() has returned. In the steady state no memory is allocated here.
//
// Errors: InvalidArgument for what a caller got wrong (interface, address, rank, tag, bounds), RuntimeFailure for an
// operation that failed, with rank, peer, bytes and UCX's word; the start of an operation never throws it, its wait
// does. A dead peer fails the operations with it, no others. docs/messages.md says what UCX is trusted with.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hspmd/runtime/transport/wait.h"

namespace hspmd {

struct MessagesOptions {
  std::string interface;                // this one only: "lo", "eth0", "mlx5_0:1"
  std::string transports = "tcp,self";  // UCX's names; over RDMA "rc,ud,self"
  int rank = 0;
  int ranks = 1;  // at most kMaxMessageRanks
};

inline constexpr int kMaxMessageRanks = 1 << 16;  // a message's tag holds the source in 16 bits
inline constexpr int kMessageTagBits = 48;

class Messages {
 public:
  // An operation that was started. A ticket that was found done, or failed, stays done.
  struct Ticket {
    std::uint32_t slot = 0;  // 0: done at once
    std::uint32_t sequence = 0;
  };
  // Memory of a peer that can be read; valid until close().
  struct Remote {
    int peer = 0;
    std::uint32_t index = 0;
    std::uint64_t bytes = 0;
  };

  explicit Messages(const MessagesOptions& options);
  ~Messages();  // close()
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int ranks() const;

  // Opaque bytes for the peers' connect.
  [[nodiscard]] std::string address() const;
  // Once a peer. Does not wait for it.
  void connect(int peer, std::string_view address);

  // Messages from one peer with one tag arrive in order. A message must have exactly the receiver's bytes (0 will do).
  Ticket isend(int peer, std::uint64_t tag, const void* data, std::size_t bytes);
  Ticket irecv(int peer, std::uint64_t tag, void* data, std::size_t bytes);

  // Shows memory to peers until close(); returns the description for their import_memory.
  std::string expose(void* base, std::size_t bytes);
  [[nodiscard]] Remote import_memory(int peer, std::string_view description);
  // Reads bytes [offset, offset + bytes) of the memory. Over TCP the peer must make progress meanwhile.
  Ticket iget(const Remote& memory, std::uint64_t offset, void* into, std::size_t bytes);

  // Makes progress. Throws RuntimeFailure if the operation has failed.
  bool done(Ticket ticket);
  void wait(Ticket ticket, const WaitSite& site, const AbortFlag& abort, std::chrono::duration<double> timeout);
  void progress();

  // Memory that an unfinished operation uses and its owner cannot keep: it is freed by close().
  void keep(std::vector<std::byte> memory);

  // Ends all operations and frees everything; afterwards only the destructor may be called. Takes a few seconds at
  // worst and never throws. What was sent and waited for still arrives, if no peer has failed; a rank that leaves
  // before its peers have received fails what they wait for from it, so ranks meet in a barrier first.
  void close() noexcept;

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace hspmd
