// Ring all-gather. Each part travels once round the ring; a rank passes on what it got in the step before. With 3
// ranks:
//
//            rank 0          rank 1          rank 2
//   step 0   sends part 0    sends part 1    sends part 2
//   step 1   sends part 2    sends part 0    sends part 1
//
// Steps: n-1. Bytes sent by a rank: all parts but the next rank's.
#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void ring_all_gather(MessageGroup& group, std::span<const std::size_t> parts, std::span<T> data) {
  check_internal(
      parts.size() == static_cast<std::size_t>(group.size()) && begin_of_part(parts, group.size()) == data.size(),
      "an all-gather has a part for each rank");
  group.begin("ring all-gather");
  const auto part = [&](int p) { return data.subspan(begin_of_part(parts, p), parts[static_cast<std::size_t>(p)]); };

  for (int step = 0; step + 1 < group.size(); ++step) {
    const std::span<T> leaving = part(group.around(-step));
    const std::span<T> arriving = part(group.around(-step - 1));
    group.exchange(group.around(1), std::as_bytes(leaving), group.around(-1), std::as_writable_bytes(arriving));
  }
}

template void ring_all_gather(MessageGroup&, std::span<const std::size_t>, std::span<float>);
template void ring_all_gather(MessageGroup&, std::span<const std::size_t>, std::span<double>);
template void ring_all_gather(MessageGroup&, std::span<const std::size_t>, std::span<std::int32_t>);

}  // namespace hspmd
