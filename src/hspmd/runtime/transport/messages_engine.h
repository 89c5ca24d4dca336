// What stands behind Messages: UCX's context and worker, the endpoints, and the slots of operations under way. The only
// header that shows UCX; only messages*.cc include it.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <vector>

#include "hspmd/runtime/transport/messages.h"

namespace hspmd {

inline constexpr int kNobody = -1;  // the peer of what concerns nobody in particular

struct Messages::Engine {
  enum class Kind { kSend, kReceive, kGet };

  // An operation. Its slot is free again once its ticket was found done, or failed, and UCX has let go of it.
  struct Slot {
    Engine* engine = nullptr;
    Ticket ticket;
    Kind kind = Kind::kSend;
    int peer = 0;
    std::size_t bytes = 0;
    std::size_t arrived = 0;  // of a receive: the size of the message
    ucs_status_t status = UCS_OK;
    void* request = nullptr;  // UCX's
    bool completed = false;   // by UCX
    bool abandoned = false;   // nobody will ask for it again
  };

  struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t status = UCS_OK;  // why it is of no more use
  };

  struct RemoteMemory {
    std::uint64_t base = 0;
    ucp_rkey_h key = nullptr;
  };

  explicit Engine(const MessagesOptions& options);
  ~Engine() { close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws InvalidArgument unless `peer` is a rank that was connected.
  [[nodiscard]] Peer& connected(int peer);

  // A slot and the parameters that make UCX report to it; `started` hears how the call went.
  [[nodiscard]] Slot& take(Kind kind, int peer, std::size_t bytes);
  [[nodiscard]] static ucp_request_param_t reporting_to(Slot& slot);
  Ticket started(Slot& slot, ucs_status_ptr_t answer);

  [[nodiscard]] int peer_of(Ticket ticket) const;
  // True once done; throws if it failed, naming the site where there is one.
  bool poll(Ticket ticket, const WaitSite* site);

  void close() noexcept;

  MessagesOptions options;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  std::vector<Peer> peers;
  std::vector<ucp_mem_h> exposed;
  std::vector<RemoteMemory> remotes;
  std::vector<std::vector<std::byte>> kept;

 private:
  void complete(Slot& slot, void* request, ucs_status_t status);
  void finish(Slot& slot, const WaitSite* site);
  void abandon(Slot& slot);
  void give_back(Slot& slot);
  [[noreturn]] void fail(const Slot& slot, const WaitSite* site, const std::string& reason) const;

  [[nodiscard]] bool all_is_well() const;
  void flush() noexcept;
  void cancel_receives() noexcept;
  [[nodiscard]] bool end_all_operations() noexcept;

  std::deque<Slot> slots_;  // UCX holds pointers to them
  std::vector<std::uint32_t> free_;
  std::int64_t under_way_ = 0;  // operations that UCX has not completed
};

// Throws RuntimeFailure unless the status is UCS_OK.
void require_ucx(ucs_status_t status, int rank, const char* action, int peer = kNobody);

}  // namespace hspmd
