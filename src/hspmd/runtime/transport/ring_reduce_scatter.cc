// Ring reduce-scatter. Part p starts at rank p+1 and travels once round the ring; each rank adds its own data to what
// has arrived, and p, the last, keeps the sum. With 3 ranks:
//
//            rank 0              rank 1              rank 2
//   step 0   sends part 2        sends part 0        sends part 1
//   step 1   sends part 1 (2+0)  sends part 2 (0+1)  sends part 0 (1+2)
//   then     part 0 is 1+2+0     part 1 is 2+0+1     part 2 is 0+1+2
//
// Steps: n-1. Bytes sent by a rank: all parts but its own.
#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/combine.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void ring_reduce_scatter(MessageGroup& group, std::span<const T> data, std::span<const std::size_t> parts,
                         std::span<T> mine, Reduction reduction) {
  check_internal(parts.size() == static_cast<std::size_t>(group.size()) &&
                     begin_of_part(parts, group.size()) == data.size() &&
                     mine.size() == parts[static_cast<std::size_t>(group.me())],
                 "a reduce-scatter has a part for each rank");
  group.begin("ring reduce-scatter");
  const auto own = [&](int part) {
    return data.subspan(begin_of_part(parts, part), parts[static_cast<std::size_t>(part)]);
  };
  const std::size_t largest = *std::max_element(parts.begin(), parts.end());
  const std::span<T> scratch = group.scratch<T>(2 * largest);

  std::span<const T> leaving = own(group.around(-1));
  for (int step = 0; step + 1 < group.size(); ++step) {
    const int part = group.around(-2 - step);
    const std::span<const T> here = own(part);
    const std::span<T> arriving = scratch.subspan(step % 2 == 0 ? 0 : largest, here.size());
    group.exchange(group.around(1), std::as_bytes(leaving), group.around(-1), std::as_writable_bytes(arriving));
    const std::span<T> sum = part == group.me() ? mine : arriving;
    combine<T>(reduction, arriving, here, sum);
    leaving = sum;
  }
  if (group.size() == 1 && mine.data() != data.data()) std::copy(data.begin(), data.end(), mine.begin());
}

template void ring_reduce_scatter(MessageGroup&, std::span<const float>, std::span<const std::size_t>, std::span<float>,
                                  Reduction);
template void ring_reduce_scatter(MessageGroup&, std::span<const double>, std::span<const std::size_t>,
                                  std::span<double>, Reduction);
template void ring_reduce_scatter(MessageGroup&, std::span<const std::int32_t>, std::span<const std::size_t>,
                                  std::span<std::int32_t>, Reduction);

}  // namespace hspmd
