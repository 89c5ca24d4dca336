#include "hspmd/runtime/trace.h"

#include <gtest/gtest.h>

namespace hspmd {
namespace {

TEST(Trace, IsAFileForPerfetto) {
  Trace trace(3);
  const std::uint32_t dot = trace.number("dot");
  EXPECT_EQ(trace.number("dot"), dot);
  trace.add({1000, 3500, dot, TraceKind::kCompute, 2});
  trace.add({2000, 4000, trace.number("exchange x"), TraceKind::kFlight, -1});

  const std::string file = trace_file({trace.lines(1, 5, 500)});

  EXPECT_EQ(
      file,
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"rank 1, device 5\"}},\n"
      "{\"ph\":\"X\",\"name\":\"dot\",\"cat\":\"compute\",\"pid\":1,\"tid\":0,\"ts\":1.500,\"dur\":2.500,"
      "\"args\":{\"micro_batch\":2}},\n"
      "{\"ph\":\"b\",\"name\":\"exchange x\",\"cat\":\"flight\",\"id\":\"1.1\",\"pid\":1,\"tid\":1,\"ts\":2.500},\n"
      "{\"ph\":\"e\",\"name\":\"exchange x\",\"cat\":\"flight\",\"id\":\"1.1\",\"pid\":1,\"tid\":1,\"ts\":4.500}\n"
      "]}\n");
}

TEST(Trace, CountsWhatDoesNotFit) {
  Trace trace(2);
  for (int i = 0; i < 5; ++i) trace.add({});

  EXPECT_EQ(trace.events().size(), 2U);
  EXPECT_EQ(trace.dropped(), 3U);
}

}  // namespace
}  // namespace hspmd
