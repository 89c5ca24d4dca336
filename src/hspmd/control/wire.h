// What both ends of the wire agree upon besides control.proto. The only header here that shows gRPC.
#pragma once

#include <grpc/support/log.h>

#include <cstdlib>

#include "hspmd/control/limits.h"

namespace hspmd {

inline constexpr const char* kTokenMetadata = "hspmd-token";
inline constexpr int kMostMessageBytes =
    static_cast<int>(kMostValueBytes) + (1 << 20);  // a value and what is around it

// gRPC writes nothing to the user's terminal, unless GRPC_VERBOSITY asks for it.
inline void quiet_grpc() {
  constexpr auto kNothing = static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_verbosity(kNothing);
}

}  // namespace hspmd
