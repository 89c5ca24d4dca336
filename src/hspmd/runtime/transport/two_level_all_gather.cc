// All-gather over hosts. The i-th ranks of all hosts gather their parts by messages, then each host's ranks read them
// from each other, section by section.
//
// Steps: H-1 between hosts, H direct. A host receives B(H-1)/H. Where ranks do not lie regularly: a ring over all.
#include <algorithm>
#include <vector>

#include "hspmd/runtime/transport/collectives.h"
#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void all_gather(Group& group, std::span<const std::size_t> parts, std::span<T> data) {
  Team& team = group.team();
  if (group.one_host()) {
    direct_all_gather<T>(team, parts, data);
    return;
  }
  if (!group.regular()) {
    ring_all_gather<T>(group.flat(), parts, data);
    return;
  }
  const auto ranks = static_cast<std::size_t>(team.size());
  const auto hosts = static_cast<std::size_t>(group.hosts());
  const auto i = static_cast<std::size_t>(team.me());
  std::vector<std::size_t> own_parts(hosts);
  for (std::size_t h = 0; h < hosts; ++h) own_parts[h] = parts[h * ranks + i];
  const auto part = [&](std::size_t h) {
    return data.subspan(begin_of_part(parts, static_cast<int>(h * ranks + i)), own_parts[h]);
  };
  std::vector<T> gathered(begin_of_part(own_parts, static_cast<int>(hosts)));
  const auto place_of = [&](std::size_t h) {
    return gathered.begin() + static_cast<std::ptrdiff_t>(begin_of_part(own_parts, static_cast<int>(h)));
  };
  const auto me = static_cast<std::size_t>(group.host());
  std::copy(part(me).begin(), part(me).end(), place_of(me));
  ring_all_gather<T>(*group.across(), own_parts, gathered);
  std::size_t begin = 0;
  for (std::size_t h = 0; h < hosts; ++h) {
    std::copy_n(place_of(h), own_parts[h], part(h).begin());
    const auto section = parts.subspan(h * ranks, ranks);
    const std::size_t elements = begin_of_part(section, team.size());
    direct_all_gather<T>(team, section, data.subspan(begin, elements));
    begin += elements;
  }
}

template void all_gather(Group&, std::span<const std::size_t>, std::span<float>);
template void all_gather(Group&, std::span<const std::size_t>, std::span<double>);
template void all_gather(Group&, std::span<const std::size_t>, std::span<std::int32_t>);

}  // namespace hspmd
