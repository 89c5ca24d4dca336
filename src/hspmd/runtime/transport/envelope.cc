#include "hspmd/runtime/transport/envelope.h"

#include <cstring>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

constexpr std::string_view kMagic = "hspmdmsg";

struct Head {
  char magic[8];
  std::uint32_t kind;
  std::uint32_t rank;
  std::uint64_t bytes;
  std::uint64_t checksum;  // of everything, taken with 0 here
};
static_assert(sizeof(Head) == 32, "a head has no gaps");

// FNV-1a.
std::uint64_t checksum_of(Head head, std::string_view payload) {
  std::uint64_t sum = 0xcbf29ce484222325U;
  const auto add = [&](const char* data, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum = (sum ^ static_cast<unsigned char>(data[i])) * 0x100000001b3U;
  };
  head.checksum = 0;
  char bytes[sizeof head];
  std::memcpy(bytes, &head, sizeof head);
  add(bytes, sizeof bytes);
  add(payload.data(), payload.size());
  return sum;
}

const char* name_of(Envelope::Kind kind) {
  return kind == Envelope::Kind::kAddress ? "address" : "memory description";
}

}  // namespace

std::string seal(const Envelope& envelope) {
  Head head{};
  std::memcpy(head.magic, kMagic.data(), sizeof head.magic);
  head.kind = static_cast<std::uint32_t>(envelope.kind);
  head.rank = static_cast<std::uint32_t>(envelope.rank);
  head.bytes = envelope.bytes;
  head.checksum = checksum_of(head, envelope.payload);
  std::string text(sizeof head, '\0');
  std::memcpy(text.data(), &head, sizeof head);
  return text + envelope.payload;
}

Envelope unseal(std::string_view text, Envelope::Kind kind, int rank) {
  const auto refuse = [&](const std::string& why) {
    invalid("[messages] the {} of rank {} must arrive as it was made. It {}.", name_of(kind), rank, why);
  };
  Head head{};
  if (text.size() <= sizeof head) refuse(fmt::format("has only {} bytes", text.size()));
  std::memcpy(&head, text.data(), sizeof head);
  const std::string_view payload = text.substr(sizeof head);
  if (std::string_view(head.magic, sizeof head.magic) != kMagic) refuse("is something else");
  if (checksum_of(head, payload) != head.checksum) refuse("is damaged: its checksum does not match");
  if (head.kind != static_cast<std::uint32_t>(kind)) refuse("is of another kind");
  if (head.rank != static_cast<std::uint32_t>(rank)) refuse(fmt::format("was made by rank {}", head.rank));
  return {kind, rank, head.bytes, std::string(payload)};
}

}  // namespace hspmd
