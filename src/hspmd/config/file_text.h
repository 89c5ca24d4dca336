// The text of a file that nobody vouches for: a run, a strategy, a plan, a cluster, a model.
//
//   read_file_text("run.yaml")      "format: hspmd-train/1\n..."
//   read_file_text("/dev/stdin")    what stands before a |
//   read_file_text("/dev/fd/63")    a shell's <(...)
//
// A regular file, a pipe or a terminal, of at most 64 MiB: all of them end. A pipe is read to its end, however slowly
// it is written; a named one that nobody opens for writing is given up after 3 seconds. A folder, a socket and every
// other device are refused, before a byte is read. A pipe can be read only once.
#pragma once

#include <cstddef>
#include <string>

namespace hspmd {

inline constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

// Throws InvalidArgument that begins with the path.
[[nodiscard]] std::string read_file_text(const std::string& path);

}  // namespace hspmd
