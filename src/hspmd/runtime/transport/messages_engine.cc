#include "hspmd/runtime/transport/messages_engine.h"

#include <ucs/config/global_opts.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/network_interfaces.h"

namespace hspmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFlushTime(1);  // for what is still on its way out when all is well
constexpr std::chrono::seconds kCloseTime(3);  // for what must end before the worker may go

void check_options(const MessagesOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxMessageRanks || options.rank < 0 || options.rank >= options.ranks)
    invalid("[messages] the rank must be one of at most {} ranks. Received rank {} of {}.", kMaxMessageRanks,
            options.rank, options.ranks);
  const std::vector<std::string> there = network_interfaces(options.transports);
  if (std::find(there.begin(), there.end(), options.interface) == there.end())
    invalid("[messages] the interface must be one of those there for \"{}\" ({}). Received \"{}\".", options.transports,
            there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")), options.interface);
}

void set_option(ucp_config_t* config, const char* name, const std::string& value) {
  if (const ucs_status_t status = ucp_config_modify(config, name, value.c_str()); status != UCS_OK)
    invalid("[messages] UCX must take the option {}={}. It says: {}.", name, value, ucs_status_string(status));
}

// UCX reads its level when it is loaded, and warns of what is handled here, such as a lost peer.
void quieten_log() {
  if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "error");
}

ucp_context_h make_context(const MessagesOptions& options) {
  check_options(options);
  ucp_config_t* config = nullptr;
  require_ucx(ucp_config_read(nullptr, nullptr, &config), options.rank, "read UCX's options");
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> held(config, ucp_config_release);
  set_option(config, "TLS", options.transports);
  set_option(config, "NET_DEVICES", options.interface);
  for (const char* name : {"CONN_NB", "TCP_CONN_NB"})  // UCX 1.13 takes the first
    set_option(config, name, "y");                     // else a host that does not answer holds connect for minutes
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
  params.estimated_num_eps = static_cast<std::size_t>(options.ranks);
  ucp_context_h context = nullptr;
  quieten_log();
  require_ucx(ucp_init(&params, config, &context), options.rank, "start UCX");
  return context;
}

}  // namespace

void require_ucx(ucs_status_t status, int rank, const char* action, int peer) {
  if (status == UCS_OK) return;
  FailureSite site{rank, action};
  if (peer != kNobody) site.peer = peer;
  throw RuntimeFailure(site, ucs_status_string(status));
}

Messages::Engine::Engine(const MessagesOptions& o) : options(o), context(make_context(o)) {
  peers.resize(static_cast<std::size_t>(options.ranks));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  const ucs_status_t status = ucp_worker_create(context, &params, &worker);
  if (status == UCS_OK) return;
  ucp_cleanup(context);
  require_ucx(status, options.rank, "make UCX's worker");
}

Messages::Engine::Peer& Messages::Engine::connected(int peer) {
  if (peer < 0 || peer >= options.ranks || peers[static_cast<std::size_t>(peer)].endpoint == nullptr)
    invalid("[messages] the peer must be connected. Received {} on rank {} of {}.", peer, options.rank, options.ranks);
  return peers[static_cast<std::size_t>(peer)];
}

Messages::Engine::Slot& Messages::Engine::take(Kind kind, int peer, std::size_t bytes) {
  if (free_.empty()) {
    Slot& made = slots_.emplace_back();
    made.engine = this;
    made.ticket.slot = static_cast<std::uint32_t>(slots_.size());
    free_.reserve(slots_.size());  // giving back allocates nothing
    free_.push_back(made.ticket.slot);
  }
  Slot& slot = slots_[free_.back() - 1];
  free_.pop_back();
  slot.kind = kind;
  slot.peer = peer;
  slot.bytes = bytes;
  slot.arrived = 0;
  slot.status = UCS_OK;
  slot.completed = false;
  slot.abandoned = false;
  return slot;
}

void Messages::Engine::give_back(Slot& slot) {
  if (slot.request != nullptr) ucp_request_free(slot.request);
  slot.request = nullptr;
  ++slot.ticket.sequence;
  free_.push_back(slot.ticket.slot);
}

ucp_request_param_t Messages::Engine::reporting_to(Slot& slot) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &slot;
  if (slot.kind == Kind::kReceive) {
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;  // else the size of a message that is here stays unknown
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data) {
      Slot& its = *static_cast<Slot*>(user_data);
      its.arrived = info->length;
      its.engine->complete(its, request, status);
    };
  } else {
    param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
      Slot& its = *static_cast<Slot*>(user_data);
      its.engine->complete(its, request, status);
    };
  }
  return param;
}

Messages::Ticket Messages::Engine::started(Slot& slot, ucs_status_ptr_t answer) {
  if (answer == nullptr) {
    give_back(slot);
    return {};
  }
  if (UCS_PTR_IS_PTR(answer)) {
    slot.request = answer;
    ++under_way_;
  } else {
    slot.status = UCS_PTR_STATUS(answer);
    slot.completed = true;
  }
  return slot.ticket;  // whose wait, which knows what it is for, says how it went
}

// May be called while the operation is being started, before `started`.
void Messages::Engine::complete(Slot& slot, void* request, ucs_status_t status) {
  slot.request = request;
  slot.status = status;
  slot.completed = true;
  --under_way_;
  if (slot.abandoned) give_back(slot);
}

void Messages::Engine::fail(const Slot& slot, const WaitSite* site, const std::string& reason) const {
  const char* action = slot.kind == Kind::kSend ? "send" : slot.kind == Kind::kReceive ? "receive" : "get";
  FailureSite failure{options.rank, action, slot.peer, "", static_cast<long>(slot.bytes)};
  if (site != nullptr) {
    failure.action = site->action;
    failure.tensor = site->tensor;
  }
  throw RuntimeFailure(failure, reason);
}

// Of an operation that UCX has completed.
void Messages::Engine::finish(Slot& slot, const WaitSite* site) {
  give_back(slot);  // its contents stay until the next take
  const bool arrived = slot.status == UCS_OK || slot.status == UCS_ERR_MESSAGE_TRUNCATED;
  if (slot.kind == Kind::kReceive && arrived && slot.arrived != slot.bytes)
    fail(slot, site, fmt::format("the message has {} bytes, its receiver expected {}", slot.arrived, slot.bytes));
  if (slot.status != UCS_OK) fail(slot, site, ucs_status_string(slot.status));
}

// Nobody waits for it any more; UCX may hold it, and its buffer, until the endpoints are closed.
void Messages::Engine::abandon(Slot& slot) {
  slot.abandoned = true;
  ++slot.ticket.sequence;
  if (slot.kind == Kind::kReceive) ucp_request_cancel(worker, slot.request);  // may complete it at once
}

int Messages::Engine::peer_of(Ticket ticket) const {
  return ticket.slot == 0 || ticket.slot > slots_.size() ? kNobody : slots_[ticket.slot - 1].peer;
}

bool Messages::Engine::poll(Ticket ticket, const WaitSite* site) {
  if (ticket.slot == 0) return true;
  check_internal(ticket.slot <= slots_.size(), "a ticket is of these messages");
  Slot& slot = slots_[ticket.slot - 1];
  if (slot.ticket.sequence != ticket.sequence) return true;
  if (!slot.completed) ucp_worker_progress(worker);
  if (slot.completed) {
    finish(slot, site);
    return true;
  }
  if (const ucs_status_t lost = peers[static_cast<std::size_t>(slot.peer)].status; lost != UCS_OK) {
    abandon(slot);
    fail(slot, site, ucs_status_string(lost));
  }
  return false;
}

// Closing. The order is UCX's law: cancel receives, close every endpoint by force, make progress until every operation
// has completed, and only then destroy the worker; another order trips its assertions.

bool Messages::Engine::all_is_well() const {
  return under_way_ == 0 && std::all_of(peers.begin(), peers.end(), [](const Peer& p) { return p.status == UCS_OK; });
}

// Sends that are done may still lie in UCX's buffers.
void Messages::Engine::flush() noexcept {
  ucp_request_param_t param{};
  void* request = ucp_worker_flush_nbx(worker, &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  const auto start = Clock::now();
  while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::now() - start < kFlushTime) {
    if (ucp_worker_progress(worker) == 0) sched_yield();
  }
  ucp_request_free(request);  // UCX lets go of it when it completes
}

void Messages::Engine::cancel_receives() noexcept {
  for (Slot& slot : slots_) {
    if (slot.kind == Kind::kReceive && slot.request != nullptr && !slot.completed)
      ucp_request_cancel(worker, slot.request);
  }
}

bool Messages::Engine::end_all_operations() noexcept {
  std::vector<void*> closing;
  closing.reserve(peers.size());
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (Peer& peer : peers) {
    if (peer.endpoint == nullptr) continue;
    void* request = ucp_ep_close_nbx(peer.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    peer.endpoint = nullptr;
  }
  const auto start = Clock::now();
  while (true) {
    const unsigned events = ucp_worker_progress(worker);
    const bool closed = std::all_of(closing.begin(), closing.end(),
                                    [](void* request) { return ucp_request_check_status(request) != UCS_INPROGRESS; });
    if (closed && under_way_ == 0) break;
    if (Clock::now() - start > kCloseTime) return false;
    if (events == 0) sched_yield();
  }
  for (void* request : closing) ucp_request_free(request);
  return true;
}

void Messages::Engine::close() noexcept {
  if (worker == nullptr) return;
  if (all_is_well()) flush();
  cancel_receives();
  if (end_all_operations()) {
    for (Slot& slot : slots_) {
      if (slot.request != nullptr) give_back(slot);  // nobody asked for it
    }
    for (const RemoteMemory& remote : remotes) ucp_rkey_destroy(remote.key);
    ucp_worker_destroy(worker);
    for (ucp_mem_h memory : exposed) ucp_mem_unmap(context, memory);
    ucp_cleanup(context);
    kept.clear();
  } else {  // destroying the worker would end the process
    std::fprintf(stderr, "[messages] rank %d: UCX holds %ld operations that do not end; its worker is left behind\n",
                 options.rank, under_way_);
  }
  worker = nullptr;
}

}  // namespace hspmd
