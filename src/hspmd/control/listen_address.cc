#include "hspmd/control/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (host.empty() || error != 0)
    invalid(
        "[control] the address to listen on must be one of this host's. Received \"{}\": {}. Use 127.0.0.1, or the "
        "address of the network that the ranks share.",
        host, host.empty() ? "nothing" : gai_strerror(error));
  return {found, freeaddrinfo};
}

std::string numeric(const addrinfo& address) {
  char text[NI_MAXHOST] = {};
  getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return address.ai_family == AF_INET6 ? fmt::format("[{}]", text) : text;
}

[[noreturn]] void refuse(int error, const std::string& host, int port) {
  if (error == EADDRINUSE)  // the state of the machine, not a wrong input
    throw RuntimeFailure(
        fmt::format("[control] port {} of {} must be free. Received one that is in use. Choose another, or 0 for any.",
                    port, host));
  if (error == EADDRNOTAVAIL)
    invalid(
        "[control] the address to listen on must be one of this host's. Received {}. Use 127.0.0.1, or the address "
        "of the network that the ranks share.",
        host);
  invalid("[control] the control plane must be able to listen on {} port {}. Received: {}. Choose another.", host, port,
          std::strerror(error));
}

}  // namespace

std::string free_address(const std::string& host, int port) {
  if (port < 0 || port > 65535)
    invalid("[control] a port must lie in 0 to 65535. Received {}. Choose another, or 0 for any.", port);
  const AddressList address = look_up(host, port);
  const int probe = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool free = probe >= 0 && bind(probe, address->ai_addr, address->ai_addrlen) == 0 && listen(probe, 1) == 0;
  const int error = errno;
  if (probe >= 0) close(probe);
  if (!free) refuse(error, host, port);
  return fmt::format("{}:{}", numeric(*address), port);
}

std::string with_port(const std::string& address, int port) {
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

}  // namespace hspmd
