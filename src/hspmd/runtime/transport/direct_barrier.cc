// Direct barrier: everybody arrives and waits for everybody. Meets: 1.
#include "hspmd/runtime/transport/direct_collectives.h"

namespace hspmd {

void direct_barrier(Team& team) {
  team.begin("direct barrier", 0);
  team.arrive();
  for (int place = 0; place < team.size(); ++place) (void)team.slot_of(place);
}

}  // namespace hspmd
