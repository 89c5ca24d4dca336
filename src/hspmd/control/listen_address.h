// The address that a server shall listen on, tried before gRPC takes it, for gRPC does not say why it cannot.
#pragma once

#include <string>

namespace hspmd {

// "127.0.0.1:4711" or "[::1]:4711", in numbers; port 0 stays. Throws InvalidArgument when the name is none, is not of
// this host, or the port is not allowed, and RuntimeFailure when the port is in use.
[[nodiscard]] std::string free_address(const std::string& host, int port);

// "127.0.0.1:4711" of the same with another port.
[[nodiscard]] std::string with_port(const std::string& address, int port);

}  // namespace hspmd
