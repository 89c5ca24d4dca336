// Segment: one rank's memory that the other ranks of its host can reach.
//
//   Segment mine = Segment::in_process(bytes)           threads: all see it anyway
//   Segment mine = Segment::shared(bytes)               processes: an anonymous file in memory
//   publish(to_string(mine.name()))                     "4711:5:1048576:9f0c..."
//   Segment theirs = Segment::of_peer(parse_segment_name(text))
//
// A shared segment has no name in any file system: peers open it through /proc/PID/fd, which the kernel allows to the
// same user alone, and it is gone with the last process that maps it, however that ends. A cookie at its head tells a
// peer that the process behind the number is still the one that published it.
// All pages are zero at first and cost nothing until they are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hspmd {

struct SegmentName {
  std::int64_t process = 0;
  int file = 0;
  std::size_t bytes = 0;  // of data()
  std::uint64_t cookie = 0;
  friend bool operator==(const SegmentName&, const SegmentName&) = default;
};
[[nodiscard]] std::string to_string(const SegmentName& name);
// Throws RuntimeFailure: a peer published it, not the user.
[[nodiscard]] SegmentName parse_segment_name(std::string_view text);

class Segment {
 public:
  Segment() = default;
  // Both throw RuntimeFailure when the system has not that much memory.
  static Segment in_process(std::size_t bytes);
  static Segment shared(std::size_t bytes);
  // Throws RuntimeFailure when the process is gone or of another user, or the segment is not what the name says.
  static Segment of_peer(const SegmentName& name);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Of a shared segment; stays true while this object lives.
  [[nodiscard]] SegmentName name() const;

 private:
  static constexpr int kNoFile = -1;
  void release() noexcept;

  std::byte* mapped_ = nullptr;  // a page for the cookie where shared, then the data
  std::byte* data_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::size_t bytes_ = 0;
  int file_ = kNoFile;
};

}  // namespace hspmd
