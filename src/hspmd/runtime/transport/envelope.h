// Envelope: bytes that one rank makes and another hands to UCX, which trusts them blindly. The envelope says what they
// are and whose, and a checksum finds damage before UCX reads them. It guards against accidents, not against an enemy.
//
//   unseal(seal({Envelope::Kind::kAddress, 3, 0, bytes}), Envelope::Kind::kAddress, 3).payload == bytes
//
// Layout, in the order of this machine: "hspmdmsg", kind, rank (4 bytes each), bytes (8), checksum (8), payload.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hspmd {

struct Envelope {
  enum class Kind : std::uint32_t { kAddress = 1, kMemory = 2 };

  Kind kind = Kind::kAddress;
  int rank = 0;             // who made it
  std::uint64_t bytes = 0;  // size of the memory that it describes; 0 for an address
  std::string payload;

  friend bool operator==(const Envelope&, const Envelope&) = default;
};

[[nodiscard]] std::string seal(const Envelope& envelope);

// Throws InvalidArgument if the text is damaged, of another kind or of another rank.
[[nodiscard]] Envelope unseal(std::string_view text, Envelope::Kind kind, int rank);

}  // namespace hspmd
