// Direct all-to-all: every rank shows where the part for each other one begins (in its slot), and copies what is its
// own out of everybody's memory.
//
// Meets: 2. A rank reads and writes what it gets.
#include <cstring>

#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/parts.h"
#include "hspmd/runtime/transport/places.h"

namespace hspmd {

template <typename T>
void direct_all_to_all(Team& team, std::span<const T> from, std::span<const std::size_t> from_parts, std::span<T> into,
                       std::span<const std::size_t> into_parts) {
  static_assert(kMaxTeam * sizeof(std::uint64_t) <= Team::kSmallBytes);
  team.begin("direct all-to-all", from.size_bytes());
  auto* begins = reinterpret_cast<std::uint64_t*>(team.my_slot());
  for (int place = 0; place < team.size(); ++place) begins[place] = begin_of_part(from_parts, place);
  team.show(from.data());
  for (int step = 0; step < team.size(); ++step) {
    const int place = (team.me() + step) % team.size();
    const auto* theirs = reinterpret_cast<const T*>(team.data_of(place));
    const std::uint64_t begin = reinterpret_cast<const std::uint64_t*>(team.slot_of(place))[team.me()];
    const std::size_t count = into_parts[static_cast<std::size_t>(place)];
    if (count > 0) std::memcpy(into.data() + begin_of_part(into_parts, place), theirs + begin, count * sizeof(T));
  }
  team.depart();
  team.wait_departed();
}

template void direct_all_to_all(Team&, std::span<const float>, std::span<const std::size_t>, std::span<float>,
                                std::span<const std::size_t>);
template void direct_all_to_all(Team&, std::span<const double>, std::span<const std::size_t>, std::span<double>,
                                std::span<const std::size_t>);
template void direct_all_to_all(Team&, std::span<const std::int32_t>, std::span<const std::size_t>,
                                std::span<std::int32_t>, std::span<const std::size_t>);

}  // namespace hspmd
