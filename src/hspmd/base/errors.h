// The four exceptions of HSPMD, and how their texts read.
//
//   InvalidArgument   the user's mistake (a file, a flag, a strategy): exit code 2
//   RuntimeFailure    the world's mistake (a dead peer, a time-out, a full disk): exit code 1
//   InternalError     ours
//
// A text says what must hold, what came, and what would mend it:
//   [annotation] the axes must multiply to the 4 devices. Received {0-3: S0x2}.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace hspmd {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// Where a run failed. Every field that is known is part of the text.
struct FailureSite {
  int rank = -1;
  std::string action;              // "wait for head.sum", "all-reduce", ...
  std::optional<int> peer = {};    // the rank waited for
  std::string tensor = {};         // the Reshard or tensor concerned
  std::optional<long> bytes = {};  // what was to move
};

class RuntimeFailure : public Error {
 public:
  explicit RuntimeFailure(const std::string& text) : Error(text) {}
  RuntimeFailure(FailureSite site, const std::string& reason);

  [[nodiscard]] const FailureSite& site() const { return site_; }

 private:
  FailureSite site_;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> text, Args&&... args) {
  throw InvalidArgument(fmt::format(text, std::forward<Args>(args)...));
}

// Throws InternalError when a promise between our own functions is broken.
void check_internal(bool holds, const char* promise);

}  // namespace hspmd
