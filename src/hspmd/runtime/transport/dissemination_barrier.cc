// Dissemination barrier. In the step of distance d a rank tells the rank d further on, and hears from the rank d
// before; after it, everybody has heard of the 2d ranks up to itself.
//
// Steps: log2 n, rounded up. Bytes sent by a rank: one a step.
#include "hspmd/runtime/transport/message_collectives.h"

namespace hspmd {

void dissemination_barrier(MessageGroup& group) {
  group.begin("barrier");
  const std::span<std::byte> scratch = group.scratch<std::byte>(2);

  for (int distance = 1; distance < group.size(); distance *= 2)
    group.exchange(group.around(distance), scratch.first(1), group.around(-distance), scratch.last(1));
}

}  // namespace hspmd
