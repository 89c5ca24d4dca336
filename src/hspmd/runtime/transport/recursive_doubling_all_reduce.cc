// Recursive doubling all-reduce. Blocks of ranks that hold one sum double in each step: a rank swaps its sum with the
// rank at the same place of the neighbouring block. Both compute lower block + upper block, in this order, so that by
// induction all ranks of a block hold the same bits. With n not a power of two, n = p + r, the first 2r ranks go in
// pairs: the odd one gives its data to the even one before, and gets the result after. With 6 ranks (p = 4, r = 2):
//
//   fold     1 -> 0   3 -> 2
//   step 0   (0,2)    (4,5)
//   step 1   (0,4)    (2,5)
//   unfold   0 -> 1   2 -> 3
//
// Steps: log2 p, and 2 more unless n is a power of two. Bytes sent by a rank: B log2 p, and B more by one that unfolds.
#include <bit>

#include "hspmd/runtime/transport/combine.h"
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

template <typename T>
void recursive_doubling_all_reduce(MessageGroup& group, std::span<T> data, Reduction reduction) {
  group.begin("recursive doubling all-reduce");
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size())));
  const int pairs = group.size() - power;
  const bool paired = group.me() < 2 * pairs;
  if (paired && group.me() % 2 == 1) {
    group.send(group.me() - 1, std::as_bytes(data));
    group.receive(group.me() - 1, std::as_writable_bytes(data));
    return;
  }

  const std::span<T> theirs = group.scratch<T>(data.size());
  if (paired) {
    group.receive(group.me() + 1, std::as_writable_bytes(theirs));
    combine<T>(reduction, data, theirs, data);
  }
  const int mine = paired ? group.me() / 2 : group.me() - pairs;  // among the `power` ranks that go on
  for (int distance = 1; distance < power; distance *= 2) {
    const int its = mine ^ distance;
    const int partner = its < pairs ? 2 * its : its + pairs;
    group.exchange(partner, std::as_bytes(data), partner, std::as_writable_bytes(theirs));
    if (mine < its) {
      combine<T>(reduction, data, theirs, data);
    } else {
      combine<T>(reduction, theirs, data, data);
    }
  }
  if (paired) group.send(group.me() + 1, std::as_bytes(data));
}

template void recursive_doubling_all_reduce(MessageGroup&, std::span<float>, Reduction);
template void recursive_doubling_all_reduce(MessageGroup&, std::span<double>, Reduction);
template void recursive_doubling_all_reduce(MessageGroup&, std::span<std::int32_t>, Reduction);

}  // namespace hspmd
