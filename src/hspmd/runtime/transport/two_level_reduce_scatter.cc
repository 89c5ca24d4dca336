// Reduce-scatter over hosts. With r ranks a host, rank i of a host first sums part i of every host's section over its
// host (into the place of that part, which it alone touches), then the i-th ranks reduce-scatter these by messages.
//
//   parts of host 0: a0 a1 | of host 1: b0 b1       rank 0 of each host sums a0 and b0, then they exchange them
//
// Steps: H direct, H-1 between hosts. A host receives B(H-1)/H. Where ranks do not lie regularly: a ring over all.
#include <cstring>
#include <vector>

#include "hspmd/runtime/transport/collectives.h"
#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void reduce_scatter(Group& group, std::span<const T> data, std::span<const std::size_t> parts, std::span<T> mine,
                    Reduction reduction) {
  Team& team = group.team();
  if (group.one_host()) {
    direct_reduce_scatter<T>(team, data, parts, mine, reduction);
    return;
  }
  if (!group.regular()) {
    ring_reduce_scatter<T>(group.flat(), data, parts, mine, reduction);
    return;
  }
  const auto ranks = static_cast<std::size_t>(team.size());
  const auto hosts = static_cast<std::size_t>(group.hosts());
  const auto i = static_cast<std::size_t>(team.me());
  std::vector<std::size_t> own_parts(hosts);
  for (std::size_t h = 0; h < hosts; ++h) own_parts[h] = parts[h * ranks + i];
  // All sums of this host first: they may lie where others still read until every section is through.
  std::vector<T> sums(begin_of_part(own_parts, static_cast<int>(hosts)));
  std::size_t at = 0;
  std::size_t begin = 0;
  for (std::size_t h = 0; h < hosts; ++h) {
    const auto section = parts.subspan(h * ranks, ranks);
    const std::size_t elements = begin_of_part(section, team.size());
    direct_reduce_scatter<T>(team, data.subspan(begin, elements), section, std::span(sums).subspan(at, own_parts[h]),
                             reduction);
    at += own_parts[h];
    begin += elements;
  }
  ring_reduce_scatter<T>(*group.across(), sums, own_parts, mine, reduction);
}

template void reduce_scatter(Group&, std::span<const float>, std::span<const std::size_t>, std::span<float>, Reduction);
template void reduce_scatter(Group&, std::span<const double>, std::span<const std::size_t>, std::span<double>,
                             Reduction);
template void reduce_scatter(Group&, std::span<const std::int32_t>, std::span<const std::size_t>,
                             std::span<std::int32_t>, Reduction);

}  // namespace hspmd
