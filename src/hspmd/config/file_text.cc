#include "hspmd/config/file_text.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{3};  // for somebody to open a named pipe

class OpenFile {
 public:
  // Without waiting: to open a named pipe would else last until somebody writes to it.
  explicit OpenFile(const std::string& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    if (descriptor_ < 0 && errno == ENXIO) refuse_kind();  // a socket
    if (descriptor_ < 0) invalid("{}: the file must exist and be readable", path_);
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void check_kind() const {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) refuse_reading();
    if (S_ISDIR(status.st_mode)) invalid("{}: must be a file, is a folder", path_);
    const bool terminal = S_ISCHR(status.st_mode) && isatty(descriptor_) != 0;
    if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode) && !terminal) refuse_kind();
  }

  [[nodiscard]] std::string text() const {
    std::string text;
    char buffer[1 << 16];
    const auto deadline = Clock::now() + kPatience;
    while (true) {
      const ssize_t bytes = read(descriptor_, buffer, sizeof buffer);
      if (bytes < 0 && errno != EAGAIN && errno != EINTR) refuse_reading();
      if (bytes == 0 && (!text.empty() || !awaits_writer())) return text;
      if (bytes == 0) await_writer(deadline);
      if (bytes < 0) wait(-1);  // for who holds the pipe, or sits at the terminal
      if (bytes > 0) text.append(buffer, static_cast<std::size_t>(bytes));
      if (text.size() > kMaxFileBytes) invalid("{}: a file may have at most 64 MiB", path_);
    }
  }

 private:
  [[noreturn]] void refuse_kind() const { invalid("{}: must be a file, a pipe or a terminal", path_); }
  [[noreturn]] void refuse_reading() const { invalid("{}: the file must be readable", path_); }

  // What poll says of it; 0 when the time is up.
  int wait(int milliseconds) const {
    pollfd at{descriptor_, POLLIN, 0};
    return poll(&at, 1, milliseconds) > 0 ? at.revents : 0;
  }

  // A pipe reads as ended before its first writer comes, too, but has not hung up then.
  [[nodiscard]] bool awaits_writer() const {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || !S_ISFIFO(status.st_mode)) return false;
    const int said = wait(0);
    return (said & POLLIN) != 0 || (said & POLLHUP) == 0;
  }

  void await_writer(Clock::time_point deadline) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) invalid("{}: somebody must write to this pipe; nobody has opened it", path_);
    wait(static_cast<int>(std::min<std::int64_t>(left, 50)));  // one that opens it and writes nothing wakes no poll
  }

  const std::string& path_;
  int descriptor_;
};

}  // namespace

std::string read_file_text(const std::string& path) {
  const OpenFile file(path);
  file.check_kind();
  return file.text();
}

}  // namespace hspmd
