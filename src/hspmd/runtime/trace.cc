#include "hspmd/runtime/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace hspmd {
namespace {

constexpr int kComputing = 0;  // rows of a rank
constexpr int kFlying = 1;

const char* category(TraceKind kind) {
  switch (kind) {
    case TraceKind::kCompute:
      return "compute";
    case TraceKind::kExchange:
      return "exchange";
    case TraceKind::kFlight:
      return "flight";
  }
  return "";
}

}  // namespace

std::uint32_t Trace::number(std::string name) {
  const auto known = std::find(names_.begin(), names_.end(), name);
  if (known != names_.end()) return static_cast<std::uint32_t>(known - names_.begin());
  names_.push_back(std::move(name));
  return static_cast<std::uint32_t>(names_.size() - 1);
}

std::string Trace::lines(int rank, int device, std::int64_t offset_ns) const {
  constexpr double kNsPerUs = 1000;
  std::string text;
  const auto to = std::back_inserter(text);
  fmt::format_to(to,
                 R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}, device {}"}}}},)"
                 "\n",
                 rank, rank, device);
  std::uint64_t flight = 0;
  for (const TraceEvent& e : events_) {
    const double begin = static_cast<double>(e.begin_ns + offset_ns) / kNsPerUs;
    const double us = static_cast<double>(e.end_ns - e.begin_ns) / kNsPerUs;
    const std::string& name = names_[e.name];
    if (e.kind != TraceKind::kFlight) {
      fmt::format_to(
          to,
          R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"micro_batch":{}}}}},)"
          "\n",
          name, category(e.kind), rank, kComputing, begin, us, e.micro_batch);
      continue;
    }
    // Flights overlap each other: pairs of begin and end, numbered.
    ++flight;
    for (const bool first : {true, false}) {
      fmt::format_to(to,
                     R"({{"ph":"{}","name":"{}","cat":"flight","id":"{}.{}","pid":{},"tid":{},"ts":{:.3f}}},)"
                     "\n",
                     first ? "b" : "e", name, rank, flight, rank, kFlying, first ? begin : begin + us);
    }
  }
  return text;
}

std::string trace_file(const std::vector<std::string>& lines_by_rank) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const std::string& lines : lines_by_rank) text += lines;
  if (text.ends_with(",\n")) text.resize(text.size() - 2);
  return text + "\n]}\n";
}

std::int64_t wall_clock_offset_ns() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - Trace::now();
}

}  // namespace hspmd
