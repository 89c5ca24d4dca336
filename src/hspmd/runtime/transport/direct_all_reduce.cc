// Direct all-reduce. Large: rank i sums part i of everybody's data and writes the sum into everybody's; parts are cut
// evenly, and go block by block, so that what is written is still in the cache from being read.
//
//   rank 0   a0 a1          sums a0+b0, writes it to both
//   rank 1   b0 b1          sums a1+b1, writes it to both
//
// Meets: 2 (all have come; all have written). A rank reads B and writes B, of which (n-1)/n at others'.
// Small: every rank sums everybody's slots. Meets: 1. A rank reads nB and writes 2B.
#include <array>
#include <cstring>

#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/places.h"
#include "hspmd/runtime/transport/reduce.h"

namespace hspmd {
namespace {

template <typename T>
void reduce_small(Team& team, std::span<T> data, Reduction reduction) {
  if (!data.empty()) std::memcpy(team.my_slot(), data.data(), data.size_bytes());
  team.arrive();
  PerPlace<const void*> sources(team.size());
  for (int place = 0; place < team.size(); ++place) sources[place] = team.slot_of(place);
  reduce<T>(reduction, data.data(), sources.span(), data.size());
}

template <typename T>
void reduce_large(Team& team, std::span<T> data, Reduction reduction) {
  constexpr std::size_t kBlock = 4096;  // elements
  team.show(data.data());
  PerPlace<T*> all(team.size());
  for (int place = 0; place < team.size(); ++place) all[place] = reinterpret_cast<T*>(team.data_of(place));
  const auto n = static_cast<std::size_t>(team.size());
  const auto me = static_cast<std::size_t>(team.me());
  const std::size_t end = data.size() * (me + 1) / n;
  PerPlace<const void*> sources(team.size());
  for (std::size_t begin = data.size() * me / n; begin < end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, end - begin);
    for (int place = 0; place < team.size(); ++place) sources[place] = all[place] + begin;
    T* mine = data.data() + begin;
    reduce<T>(reduction, mine, sources.span(), count);
    for (int place = 0; place < team.size(); ++place) {
      if (place != team.me()) std::memcpy(all[place] + begin, mine, count * sizeof(T));
    }
  }
  team.depart();
  team.wait_departed();
}

}  // namespace

template <typename T>
void direct_all_reduce(Team& team, std::span<T> data, Reduction reduction) {
  team.begin("direct all-reduce", data.size_bytes());
  if (data.size_bytes() <= Team::kSmallBytes) {
    reduce_small(team, data, reduction);
  } else {
    reduce_large(team, data, reduction);
  }
}

template void direct_all_reduce(Team&, std::span<float>, Reduction);
template void direct_all_reduce(Team&, std::span<double>, Reduction);
template void direct_all_reduce(Team&, std::span<std::int32_t>, Reduction);

}  // namespace hspmd
