// Ring all-reduce: a ring reduce-scatter of even parts, then a ring all-gather of the sums. One rank alone computes
// each part, so all hold the same bits.
//
// Steps: 2(n-1). Bytes sent by a rank: 2B(n-1)/n, the least there can be.
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void ring_all_reduce(MessageGroup& group, std::span<T> data, Reduction reduction) {
  const std::span<const std::size_t> parts = group.even_parts(data.size());
  const auto mine = data.subspan(begin_of_part(parts, group.me()), parts[static_cast<std::size_t>(group.me())]);
  ring_reduce_scatter<T>(group, data, parts, mine, reduction);
  ring_all_gather<T>(group, parts, data);
}

template void ring_all_reduce(MessageGroup&, std::span<float>, Reduction);
template void ring_all_reduce(MessageGroup&, std::span<double>, Reduction);
template void ring_all_reduce(MessageGroup&, std::span<std::int32_t>, Reduction);

}  // namespace hspmd
