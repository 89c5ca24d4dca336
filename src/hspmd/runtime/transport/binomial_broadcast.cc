// Binomial broadcast. Counted from the root, those that hold the data double in each step: in the step of distance d,
// the ranks below d send to the rank d further on. With 6 ranks:
//
//   d = 1   0 -> 1
//   d = 2   0 -> 2   1 -> 3
//   d = 4   0 -> 4   1 -> 5
//
// Steps: log2 n, rounded up. Bytes sent: by the root B in each step, by all together B(n-1).
#include "hspmd/base/errors.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void binomial_broadcast(MessageGroup& group, std::span<T> data, int root) {
  check_internal(root >= 0 && root < group.size(), "the root of a broadcast is one of the group");
  group.begin("binomial broadcast");
  const int mine = group.around(-root);  // counted from the root

  for (int distance = 1; distance < group.size(); distance *= 2) {
    if (mine < distance && mine + distance < group.size()) {
      group.send(group.around(distance), std::as_bytes(data));
    } else if (mine >= distance && mine < 2 * distance) {
      group.receive(group.around(-distance), std::as_writable_bytes(data));
    }
  }
}

template void binomial_broadcast(MessageGroup&, std::span<float>, int);
template void binomial_broadcast(MessageGroup&, std::span<double>, int);
template void binomial_broadcast(MessageGroup&, std::span<std::int32_t>, int);

}  // namespace hspmd
