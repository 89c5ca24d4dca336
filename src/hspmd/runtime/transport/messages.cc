#include "hspmd/runtime/transport/messages.h"

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/envelope.h"
#include "hspmd/runtime/transport/messages_engine.h"

namespace hspmd {
namespace {

constexpr std::uint64_t kWholeTag = ~std::uint64_t{0};

std::uint64_t tag_from(int source, std::uint64_t tag) {
  if (tag >> kMessageTagBits != 0) invalid("[messages] a tag must be below 2^{}. Received {}.", kMessageTagBits, tag);
  return static_cast<std::uint64_t>(source) << kMessageTagBits | tag;
}

}  // namespace

Messages::Messages(const MessagesOptions& options) : engine_(std::make_unique<Engine>(options)) {}

Messages::~Messages() = default;

int Messages::rank() const {
  return engine_->options.rank;
}

int Messages::ranks() const {
  return engine_->options.ranks;
}

std::string Messages::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  require_ucx(ucp_worker_get_address(engine_->worker, &address, &bytes), rank(), "take the address");
  std::string payload(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(engine_->worker, address);
  return seal({Envelope::Kind::kAddress, rank(), 0, std::move(payload)});
}

void Messages::connect(int peer, std::string_view address) {
  if (peer < 0 || peer >= ranks() || peer == rank())
    invalid("[messages] rank {} of {} can be connected to another rank. Received {}.", rank(), ranks(), peer);
  Engine::Peer& its = engine_->peers[static_cast<std::size_t>(peer)];
  if (its.endpoint != nullptr) invalid("[messages] a peer is connected once. Received rank {} again.", peer);
  const Envelope envelope = unseal(address, Envelope::Kind::kAddress, peer);

  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(envelope.payload.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &its;
  params.err_handler.cb = [](void* lost, ucp_ep_h, ucs_status_t status) {
    static_cast<Engine::Peer*>(lost)->status = status;
  };
  require_ucx(ucp_ep_create(engine_->worker, &params, &its.endpoint), rank(), "connect", peer);
}

Messages::Ticket Messages::isend(int peer, std::uint64_t tag, const void* data, std::size_t bytes) {
  const Engine::Peer& to = engine_->connected(peer);
  const std::uint64_t whole_tag = tag_from(rank(), tag);
  Engine::Slot& slot = engine_->take(Engine::Kind::kSend, peer, bytes);
  if (to.status != UCS_OK) return engine_->started(slot, UCS_STATUS_PTR(to.status));
  const ucp_request_param_t param = Engine::reporting_to(slot);
  return engine_->started(slot, ucp_tag_send_nbx(to.endpoint, data, bytes, whole_tag, &param));
}

// Also from a peer that is lost: what it had sent before may be here.
Messages::Ticket Messages::irecv(int peer, std::uint64_t tag, void* data, std::size_t bytes) {
  static_cast<void>(engine_->connected(peer));
  const std::uint64_t whole_tag = tag_from(peer, tag);
  Engine::Slot& slot = engine_->take(Engine::Kind::kReceive, peer, bytes);
  const ucp_request_param_t param = Engine::reporting_to(slot);
  return engine_->started(slot, ucp_tag_recv_nbx(engine_->worker, data, bytes, whole_tag, kWholeTag, &param));
}

std::string Messages::expose(void* base, std::size_t bytes) {
  if (bytes == 0) invalid("[messages] memory that is exposed must have bytes");
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = base;
  params.length = bytes;
  ucp_mem_h memory = nullptr;
  require_ucx(ucp_mem_map(engine_->context, &params, &memory), rank(), "expose memory");
  engine_->exposed.push_back(memory);

  void* key = nullptr;
  std::size_t key_bytes = 0;
  require_ucx(ucp_rkey_pack(engine_->context, memory, &key, &key_bytes), rank(), "describe memory");
  const auto address = reinterpret_cast<std::uint64_t>(base);
  std::string payload(reinterpret_cast<const char*>(&address), sizeof address);
  payload.append(static_cast<const char*>(key), key_bytes);
  ucp_rkey_buffer_release(key);
  return seal({Envelope::Kind::kMemory, rank(), bytes, std::move(payload)});
}

Messages::Remote Messages::import_memory(int peer, std::string_view description) {
  const Engine::Peer& its = engine_->connected(peer);
  const Envelope envelope = unseal(description, Envelope::Kind::kMemory, peer);
  check_internal(envelope.payload.size() > sizeof(std::uint64_t), "a memory description holds an address and a key");
  Engine::RemoteMemory memory;
  envelope.payload.copy(reinterpret_cast<char*>(&memory.base), sizeof memory.base);
  require_ucx(ucp_ep_rkey_unpack(its.endpoint, envelope.payload.data() + sizeof memory.base, &memory.key), rank(),
              "import memory", peer);
  engine_->remotes.push_back(memory);
  return {peer, static_cast<std::uint32_t>(engine_->remotes.size() - 1), envelope.bytes};
}

Messages::Ticket Messages::iget(const Remote& memory, std::uint64_t offset, void* into, std::size_t bytes) {
  if (offset > memory.bytes || bytes > memory.bytes - offset)
    invalid("[messages] a read must lie in the {} bytes that rank {} exposed. Received {} bytes at {}.", memory.bytes,
            memory.peer, bytes, offset);
  if (bytes == 0) return {};
  const Engine::Peer& from = engine_->connected(memory.peer);
  check_internal(memory.index < engine_->remotes.size(), "remote memory is of these messages");
  const Engine::RemoteMemory& its = engine_->remotes[memory.index];
  Engine::Slot& slot = engine_->take(Engine::Kind::kGet, memory.peer, bytes);
  if (from.status != UCS_OK) return engine_->started(slot, UCS_STATUS_PTR(from.status));
  const ucp_request_param_t param = Engine::reporting_to(slot);
  return engine_->started(slot, ucp_get_nbx(from.endpoint, into, bytes, its.base + offset, its.key, &param));
}

bool Messages::done(Ticket ticket) {
  return engine_->poll(ticket, nullptr);
}

void Messages::wait(Ticket ticket, const WaitSite& site, const AbortFlag& abort,
                    std::chrono::duration<double> timeout) {
  if (ticket.slot == 0) return;
  const int peer = engine_->peer_of(ticket);
  wait_until([&] { return engine_->poll(ticket, &site); }, {&abort, timeout}, site,
             peer == kNobody ? std::nullopt : std::optional(peer));
}

void Messages::progress() {
  ucp_worker_progress(engine_->worker);
}

void Messages::keep(std::vector<std::byte> memory) {
  engine_->kept.push_back(std::move(memory));
}

void Messages::close() noexcept {
  engine_->close();
}

}  // namespace hspmd
