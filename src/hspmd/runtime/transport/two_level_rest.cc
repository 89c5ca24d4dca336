// Broadcast over hosts: inside the root's host, between the first ranks of the hosts, inside the others. A host
// receives B once. Barrier over hosts: a host's ranks meet, the first ranks meet, a host's ranks meet. All-to-all over
// hosts: one level, by messages among all; what goes to a rank goes nowhere else, so two levels would save nothing.
#include "hspmd/runtime/transport/collectives.h"
#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void broadcast(Group& group, std::span<T> data, int root) {
  Team& team = group.team();
  const bool roots_host = group.host() == group.host_of(root);
  if (roots_host) direct_broadcast<T>(team, data, group.local(root));
  if (group.one_host()) return;
  if (team.me() == 0) binomial_broadcast<T>(*group.across(), data, group.host_of(root));
  if (!roots_host) direct_broadcast<T>(team, data, 0);
}

template void broadcast(Group&, std::span<float>, int);
template void broadcast(Group&, std::span<double>, int);
template void broadcast(Group&, std::span<std::int32_t>, int);

void barrier(Group& group) {
  direct_barrier(group.team());
  if (group.one_host()) return;
  if (group.team().me() == 0) dissemination_barrier(*group.across());
  direct_barrier(group.team());
}

template <typename T>
void all_to_all(Group& group, std::span<const T> from, std::span<const std::size_t> from_parts, std::span<T> into,
                std::span<const std::size_t> into_parts) {
  if (group.one_host()) {
    direct_all_to_all<T>(group.team(), from, from_parts, into, into_parts);
  } else {
    pairwise_all_to_all<T>(group.flat(), from, from_parts, into, into_parts);
  }
}

template void all_to_all(Group&, std::span<const float>, std::span<const std::size_t>, std::span<float>,
                         std::span<const std::size_t>);
template void all_to_all(Group&, std::span<const double>, std::span<const std::size_t>, std::span<double>,
                         std::span<const std::size_t>);
template void all_to_all(Group&, std::span<const std::int32_t>, std::span<const std::size_t>, std::span<std::int32_t>,
                         std::span<const std::size_t>);

}  // namespace hspmd
