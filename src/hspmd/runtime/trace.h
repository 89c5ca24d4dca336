// Trace: what a device did, and when. Opens in Perfetto (ui.perfetto.dev) as Chrome's trace format.
//
//   compute   an operator                                    category "compute"
//   exchange  from its beginning until it has its data       category "exchange"; most of it is often waiting
//   flight    a sum of gradients that began early, from then until it was read, beside what is computed meanwhile
//
// Recording allocates nothing and makes no string: names are numbered before, and what does not fit any more is
// counted. Times are of the host's steady clock; `offset_ns` moves them onto one clock for all hosts.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hspmd {

enum class TraceKind : std::uint16_t { kCompute, kExchange, kFlight };

struct TraceEvent {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint32_t name = 0;
  TraceKind kind = TraceKind::kCompute;
  std::int16_t micro_batch = -1;  // -1: once a step
};

class Trace {
 public:
  explicit Trace(std::size_t capacity) { events_.reserve(capacity); }

  [[nodiscard]] std::uint32_t number(std::string name);
  [[nodiscard]] static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void add(const TraceEvent& event) {
    if (events_.size() < events_.capacity()) {
      events_.push_back(event);
    } else {
      ++dropped_;
    }
  }

  [[nodiscard]] const std::vector<TraceEvent>& events() const { return events_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

  // The events as lines of Chrome's format, of a process that stands for the rank.
  [[nodiscard]] std::string lines(int rank, int device, std::int64_t offset_ns) const;

 private:
  std::vector<TraceEvent> events_;
  std::vector<std::string> names_;
  std::uint64_t dropped_ = 0;
};

// The whole file from the lines of all ranks.
[[nodiscard]] std::string trace_file(const std::vector<std::string>& lines_by_rank);

// What moves this host's steady clock onto the wall clock.
[[nodiscard]] std::int64_t wall_clock_offset_ns();

}  // namespace hspmd
