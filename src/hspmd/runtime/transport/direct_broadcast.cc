// Direct broadcast: everybody copies the root's data.
//
// Meets: 2. A rank reads and writes B.
#include "hspmd/runtime/transport/copy.h"
#include "hspmd/runtime/transport/direct_collectives.h"

namespace hspmd {

template <typename T>
void direct_broadcast(Team& team, std::span<T> data, int root) {
  team.begin("direct broadcast", data.size_bytes());
  if (team.me() == root) {
    team.show(data.data());
  } else {
    team.arrive();
    const std::byte* theirs = team.data_of(root);
    const bool beyond_caches = data.size_bytes() * static_cast<std::size_t>(team.size()) >= kBeyondCaches;
    (beyond_caches ? copy_beyond_caches : copy)(data.data(), theirs, data.size_bytes());
  }
  team.depart();
  // All wait, not the root alone: who comes to the next collective but one must know that nobody is still here.
  team.wait_departed();
}

template void direct_broadcast(Team&, std::span<float>, int);
template void direct_broadcast(Team&, std::span<double>, int);
template void direct_broadcast(Team&, std::span<std::int32_t>, int);

}  // namespace hspmd
