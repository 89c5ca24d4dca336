// Direct reduce-scatter: rank i reads part i of everybody's data and sums it into its own memory.
//
// Meets: 2. A rank reads n times its part and writes its part once. Small: through the slots, meets once.
#include <cstring>

#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/parts.h"
#include "hspmd/runtime/transport/places.h"
#include "hspmd/runtime/transport/reduce.h"

namespace hspmd {

template <typename T>
void direct_reduce_scatter(Team& team, std::span<const T> data, std::span<const std::size_t> parts, std::span<T> mine,
                           Reduction reduction) {
  team.begin("direct reduce-scatter", data.size_bytes());
  const std::size_t begin = begin_of_part(parts, team.me());
  const bool small = data.size_bytes() <= Team::kSmallBytes;
  if (small) {
    if (!data.empty()) std::memcpy(team.my_slot(), data.data(), data.size_bytes());
    team.arrive();
  } else {
    team.show(data.data());
  }
  PerPlace<const void*> sources(team.size());
  for (int place = 0; place < team.size(); ++place) {
    const std::byte* theirs = small ? team.slot_of(place) : team.data_of(place);
    sources[place] = reinterpret_cast<const T*>(theirs) + begin;
  }
  reduce<T>(reduction, mine.data(), sources.span(), mine.size());
  if (small) return;
  team.depart();
  team.wait_departed();
}

template void direct_reduce_scatter(Team&, std::span<const float>, std::span<const std::size_t>, std::span<float>,
                                    Reduction);
template void direct_reduce_scatter(Team&, std::span<const double>, std::span<const std::size_t>, std::span<double>,
                                    Reduction);
template void direct_reduce_scatter(Team&, std::span<const std::int32_t>, std::span<const std::size_t>,
                                    std::span<std::int32_t>, Reduction);

}  // namespace hspmd
