// All-reduce over hosts: the ranks of a host reduce-scatter directly among its owners, owners of the same part
// all-reduce by messages, the ranks of a host gather directly. Small data have one owner.
//
// Steps: 2 direct, and those of the ring (2(H-1)) or of recursive doubling (log2 H) between hosts. A host receives
// 2B(H-1)/H by the ring, B log2 H by doubling, which is chosen up to 64 KiB.
#include "hspmd/runtime/transport/collectives.h"
#include "hspmd/runtime/transport/direct_collectives.h"
#include "hspmd/runtime/transport/message_collectives.h"
#include "hspmd/runtime/transport/places.h"

namespace hspmd {
namespace {

constexpr std::size_t kSmall = std::size_t{64} << 10;  // bytes

}  // namespace

template <typename T>
void all_reduce(Group& group, std::span<T> data, Reduction reduction) {
  Team& team = group.team();
  if (group.one_host()) {
    direct_all_reduce<T>(team, data, reduction);
    return;
  }
  const bool small = data.size_bytes() <= kSmall;
  const auto owners = static_cast<std::size_t>(small ? 1 : group.owners());
  PerPlace<std::size_t> parts(team.size());
  for (int place = 0; place < team.size(); ++place) {
    const auto i = static_cast<std::size_t>(place);
    parts[place] = i < owners ? data.size() * (i + 1) / owners - data.size() * i / owners : 0;
  }
  const auto mine = data.subspan(begin_of_part(parts.span(), team.me()), parts[team.me()]);
  direct_reduce_scatter<T>(team, data, parts.span(), mine, reduction);
  if (static_cast<std::size_t>(team.me()) < owners) {
    if (small) {
      recursive_doubling_all_reduce<T>(*group.across(), mine, reduction);
    } else {
      ring_all_reduce<T>(*group.across(), mine, reduction);
    }
  }
  direct_all_gather<T>(team, parts.span(), data);
}

template void all_reduce(Group&, std::span<float>, Reduction);
template void all_reduce(Group&, std::span<double>, Reduction);
template void all_reduce(Group&, std::span<std::int32_t>, Reduction);

}  // namespace hspmd
