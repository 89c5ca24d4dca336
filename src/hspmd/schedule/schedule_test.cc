#include "hspmd/schedule/schedule.h"

#include <gtest/gtest.h>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

std::vector<Actions> all_stages(ScheduleKind kind, int stages, int micro_batches) {
  std::vector<Actions> lists;
  for (int s = 0; s < stages; ++s) lists.push_back(actions(kind, s, stages, micro_batches));
  return lists;
}

TEST(Schedule, EveryScheduleIsCompleteAndFreeOfDeadlock) {
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kOneFOneB, ScheduleKind::kZeroBubble}) {
    for (int stages = 1; stages <= 7; ++stages) {
      for (int micro_batches = 0; micro_batches <= 9; ++micro_batches) {
        const auto lists = all_stages(kind, stages, micro_batches);

        EXPECT_EQ(why_invalid(lists, micro_batches), std::nullopt)
            << to_string(kind) << " " << stages << " " << micro_batches;
      }
    }
  }
}

TEST(Schedule, PrintsAndParses) {
  for (const char* text : {"", "F0", "F0 F1 B0 F2 B1 B2", "F0 1F0 1I0 1W0 B0"}) {
    EXPECT_EQ(to_string(parse_actions(text)), text);
  }
  for (const char* text : {"X0", "F", "F-1", "F0x", "-1F0", "F99999999999"}) {
    EXPECT_THROW((void)parse_actions(text), InvalidArgument) << text;
  }
}

TEST(Schedule, ReadsAsInTheLiterature) {
  EXPECT_EQ(to_string(actions(ScheduleKind::kGPipe, 1, 3, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(to_string(actions(ScheduleKind::kOneFOneB, 0, 2, 3)), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(to_string(actions(ScheduleKind::kOneFOneB, 1, 2, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(to_string(actions(ScheduleKind::kZeroBubble, 0, 2, 3)), "F0 F1 I0 W0 F2 I1 W1 I2 W2");
  EXPECT_EQ(to_string(actions(ScheduleKind::kZeroBubble, 1, 2, 3)), "F0 I0 F1 I1 W0 F2 I2 W1 W2");
  EXPECT_EQ(to_string(actions(ScheduleKind::kZeroBubble, 2, 3, 1)), "F0 I0 W0");
}

TEST(Schedule, KeepsFewMicroBatchesInFlight) {
  EXPECT_EQ(max_in_flight(actions(ScheduleKind::kGPipe, 0, 4, 8)), 8);
  EXPECT_EQ(max_in_flight(actions(ScheduleKind::kOneFOneB, 0, 4, 8)), 4);
  EXPECT_EQ(max_in_flight(actions(ScheduleKind::kOneFOneB, 3, 4, 8)), 1);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(max_in_flight(actions(ScheduleKind::kZeroBubble, stage, 4, 8)), 4) << stage;
}

TEST(Schedule, FaultsAreNamed) {
  struct Row {
    std::vector<const char*> stages;
    int micro_batches;
    const char* says;
  };
  const Row rows[] = {
      {{"F0 B0 F1"}, 2, "stage 0 does not finish micro-batch 1"},
      {{"B0 F0"}, 1, "stage 0 runs B0 out of order"},
      {{"F0 F0"}, 1, "stage 0 runs F0 out of order"},
      {{"F0 I0"}, 1, "stage 0 does not finish micro-batch 0"},
      {{"F0 W0 I0"}, 1, "stage 0 runs W0 out of order"},
      {{"F0 B0 W0"}, 1, "stage 0 runs W0 out of order"},
      {{"F0 I0 B0"}, 1, "stage 0 runs B0 out of order"},
      {{"F0 B0 F5 B5"}, 2, "stage 0 names micro-batch 5 of 2"},
      {{"F0 F1 B0 B1", "F1 F0 B0 B1"}, 2, "waits for ever"},
      {{"F0 B0 F1 B1", "F0 F1 B0 B1"}, 2, "waits for ever"},
  };
  for (const Row& row : rows) {
    std::vector<Actions> lists;
    for (const char* text : row.stages) lists.push_back(parse_actions(text));

    const auto why = why_invalid(lists, row.micro_batches);

    ASSERT_TRUE(why.has_value()) << row.says;
    EXPECT_NE(why->find(row.says), std::string::npos) << *why;
  }
}

}  // namespace
}  // namespace hspmd
