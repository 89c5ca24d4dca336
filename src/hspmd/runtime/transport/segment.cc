#include "hspmd/runtime/transport/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

constexpr std::size_t kHead = 4096;  // the cookie, and the data begins on a page

[[noreturn]] void no_memory(std::size_t bytes) {
  throw RuntimeFailure(
      fmt::format("[segment] the system must have {} bytes to share. Received: {}. Close other "
                  "programs, or raise the memory limit of this one.",
                  bytes, std::strerror(errno)));
}

std::byte* map(std::size_t bytes, int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(mapped);
}

std::uint64_t random_cookie() {
  std::uint64_t cookie = 0;
  if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
    throw RuntimeFailure("[segment] the system must give random numbers");
  return cookie;
}

}  // namespace

std::string to_string(const SegmentName& name) {
  return fmt::format("{}:{}:{}:{}", name.process, name.file, name.bytes, name.cookie);
}

SegmentName parse_segment_name(std::string_view text) {
  std::uint64_t fields[4] = {};
  const char* at = text.data();
  const char* end = at + text.size();
  for (int i = 0; i < 4; ++i) {
    const auto [next, error] = std::from_chars(at, end, fields[i]);
    const bool closed = i == 3 ? next == end : next != end && *next == ':';
    if (error != std::errc{} || !closed)
      throw RuntimeFailure(fmt::format("[segment] a name must read like 4711:5:1048576:99. Received \"{}\".", text));
    at = closed && i < 3 ? next + 1 : next;
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 47;
  if (fields[0] > kMost || fields[1] > (1U << 30) || fields[2] > kMost)
    throw RuntimeFailure(fmt::format("[segment] a name must hold numbers in range. Received \"{}\".", text));
  return {static_cast<std::int64_t>(fields[0]), static_cast<int>(fields[1]), fields[2], fields[3]};
}

Segment Segment::in_process(std::size_t bytes) {
  Segment segment;
  segment.mapped_bytes_ = bytes == 0 ? 1 : bytes;
  segment.mapped_ = map(segment.mapped_bytes_, kNoFile);
  if (segment.mapped_ == nullptr) no_memory(bytes);
  segment.data_ = segment.mapped_;
  segment.bytes_ = bytes;
  return segment;
}

Segment Segment::shared(std::size_t bytes) {
  Segment segment;
  segment.file_ = memfd_create("hspmd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  segment.mapped_bytes_ = kHead + bytes;
  if (segment.file_ < 0 || ftruncate(segment.file_, static_cast<off_t>(segment.mapped_bytes_)) != 0) no_memory(bytes);
  fchmod(segment.file_, S_IRUSR | S_IWUSR);
  // Nobody can shrink it under a peer that reads.
  fcntl(segment.file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  segment.mapped_ = map(segment.mapped_bytes_, segment.file_);
  if (segment.mapped_ == nullptr) no_memory(bytes);
  segment.data_ = segment.mapped_ + kHead;
  segment.bytes_ = bytes;
  const std::uint64_t cookie = random_cookie();
  std::memcpy(segment.mapped_, &cookie, sizeof(cookie));
  return segment;
}

Segment Segment::of_peer(const SegmentName& name) {
  const auto fail = [&](const char* why) {
    throw RuntimeFailure(
        fmt::format("[segment] process {} must still hold the memory that it published: {}", name.process, why));
  };
  Segment segment;
  const std::string path = fmt::format("/proc/{}/fd/{}", name.process, name.file);
  segment.file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (segment.file_ < 0) fail(std::strerror(errno));
  struct stat info {};
  segment.mapped_bytes_ = kHead + name.bytes;
  if (fstat(segment.file_, &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size != static_cast<off_t>(segment.mapped_bytes_))
    fail("it is of another size");
  segment.mapped_ = map(segment.mapped_bytes_, segment.file_);
  if (segment.mapped_ == nullptr) fail(std::strerror(errno));
  if (std::memcmp(segment.mapped_, &name.cookie, sizeof(name.cookie)) != 0) fail("its cookie differs");
  segment.data_ = segment.mapped_ + kHead;
  segment.bytes_ = name.bytes;
  return segment;
}

SegmentName Segment::name() const {
  check_internal(file_ != kNoFile, "only a shared segment has a name");
  SegmentName name{getpid(), file_, bytes_, 0};
  std::memcpy(&name.cookie, mapped_, sizeof(name.cookie));
  return name;
}

Segment::Segment(Segment&& other) noexcept {
  *this = std::move(other);
}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this == &other) return *this;
  release();
  mapped_ = std::exchange(other.mapped_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  file_ = std::exchange(other.file_, kNoFile);
  return *this;
}

Segment::~Segment() {
  release();
}

void Segment::release() noexcept {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  if (file_ != kNoFile) close(file_);
}

}  // namespace hspmd
