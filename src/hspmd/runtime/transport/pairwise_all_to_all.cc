// Pairwise all-to-all. In step s a rank sends to the rank s further on and receives from the rank s before, so that
// nobody is sent to by two ranks at once.
//
// Steps: n-1, less those whose parts are empty. Bytes sent by a rank: all its parts but its own.
#include <algorithm>

#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void pairwise_all_to_all(MessageGroup& group, std::span<const T> from, std::span<const std::size_t> from_parts,
                         std::span<T> into, std::span<const std::size_t> into_parts) {
  const auto all = static_cast<std::size_t>(group.size());
  check_internal(from_parts.size() == all && into_parts.size() == all &&
                     begin_of_part(from_parts, group.size()) == from.size() &&
                     begin_of_part(into_parts, group.size()) == into.size(),
                 "an all-to-all has a part for each rank");
  group.begin("pairwise all-to-all");
  const auto leaving = [&](int p) {
    return from.subspan(begin_of_part(from_parts, p), from_parts[static_cast<std::size_t>(p)]);
  };
  const auto arriving = [&](int p) {
    return into.subspan(begin_of_part(into_parts, p), into_parts[static_cast<std::size_t>(p)]);
  };

  const std::span<const T> own = leaving(group.me());
  check_internal(own.size() == arriving(group.me()).size(), "what a rank sends itself is what it receives");
  std::copy(own.begin(), own.end(), arriving(group.me()).begin());
  for (int step = 1; step < group.size(); ++step) {
    const int to = group.around(step);
    const int source = group.around(-step);
    group.exchange(to, std::as_bytes(leaving(to)), source, std::as_writable_bytes(arriving(source)));
  }
}

template void pairwise_all_to_all(MessageGroup&, std::span<const float>, std::span<const std::size_t>, std::span<float>,
                                  std::span<const std::size_t>);
template void pairwise_all_to_all(MessageGroup&, std::span<const double>, std::span<const std::size_t>,
                                  std::span<double>, std::span<const std::size_t>);
template void pairwise_all_to_all(MessageGroup&, std::span<const std::int32_t>, std::span<const std::size_t>,
                                  std::span<std::int32_t>, std::span<const std::size_t>);

}  // namespace hspmd
