// Direct all-gather: every rank copies the others' parts into its own memory.
//
// Meets: 2. A rank reads and writes B less its own part. Small: through the slots, meets once.
#include "hspmd/runtime/transport/copy.h"
#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/parts.h"

namespace hspmd {

template <typename T>
void direct_all_gather(Team& team, std::span<const std::size_t> parts, std::span<T> data) {
  team.begin("direct all-gather", data.size_bytes());
  const auto part_of = [&](int place) {
    return data.subspan(begin_of_part(parts, place), parts[static_cast<std::size_t>(place)]);
  };
  const bool small = data.size_bytes() <= Team::kSmallBytes;
  if (small) {
    const std::span<T> mine = part_of(team.me());
    copy(team.my_slot(), mine.data(), mine.size_bytes());
    team.arrive();
  } else {
    team.show(data.data());
  }
  const bool beyond_caches = data.size_bytes() * static_cast<std::size_t>(team.size()) >= kBeyondCaches;
  // Each begins with its neighbour, so that they do not all read one rank's memory at once.
  for (int step = 1; step < team.size(); ++step) {
    const int place = (team.me() + step) % team.size();
    const std::span<T> part = part_of(place);
    const std::byte* theirs = small ? team.slot_of(place) : team.data_of(place);
    const T* from = reinterpret_cast<const T*>(theirs) + (small ? 0 : begin_of_part(parts, place));
    (beyond_caches ? copy_beyond_caches : copy)(part.data(), from, part.size_bytes());
  }
  if (small) return;
  team.depart();
  team.wait_departed();
}

template void direct_all_gather(Team&, std::span<const std::size_t>, std::span<float>);
template void direct_all_gather(Team&, std::span<const std::size_t>, std::span<double>);
template void direct_all_gather(Team&, std::span<const std::size_t>, std::span<std::int32_t>);

}  // namespace hspmd
