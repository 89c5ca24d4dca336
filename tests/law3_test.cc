// Law 3: every strategy gives the losses, gradients and parameters of one device.
#include <gtest/gtest.h>

#include <cstdlib>

#include "llama_run.h"
#include "random_strategy.h"

namespace hspmd {
namespace {

using testing::larger_model;
using testing::RandomStrategies;
using testing::run_llama;
using testing::RunResult;
using testing::RunSetting;
using testing::small_model;
using testing::stage;

void expect_equal(const RunResult& one, const RunResult& many, double tolerance) {
  for (std::size_t s = 0; s < one.losses.size(); ++s) {
    ASSERT_NEAR(one.losses[s], many.losses[s], tolerance) << "step " << s + 1;
    ASSERT_NEAR(one.norms[s], many.norms[s], tolerance * 10) << "step " << s + 1;
  }
  ASSERT_EQ(one.leaves.size(), many.leaves.size());
  for (const auto& [name, tensor] : one.leaves) {
    const auto& other = many.leaves.at(name);
    for (std::size_t i = 0; i < tensor.size(); ++i)
      ASSERT_NEAR(tensor[i], other[i], tolerance * 10) << name << " element " << i;
  }
}

void expect_law(const Strategy& strategy, const LlamaConfig& model) {
  SCOPED_TRACE(picture(strategy));
  RunSetting setting;
  setting.model = model;
  const RunResult one = run_llama(one_device(4, strategy.global_batch(), 2), setting);

  const RunResult many = run_llama(strategy, setting);

  expect_equal(one, many, 1e-9);
}
void expect_law(const Strategy& strategy, TiedEmbeddings tied) {
  expect_law(strategy, small_model(tied));
}

#ifdef HSPMD_HAS_ATEN
// Losses alone, with the kernels that people train with.
void expect_single_precision_law(const Strategy& strategy, TiedEmbeddings tied) {
  SCOPED_TRACE(picture(strategy));
  RunSetting setting;
  setting.model = small_model(tied);
  const RunResult one = run_llama(one_device(4, strategy.global_batch(), 2), setting);
  setting.backend = Backend::kAten;
  setting.precision = Precision::kFp32;

  const RunResult many = run_llama(strategy, setting);

  for (std::size_t s = 0; s < one.losses.size(); ++s)
    EXPECT_NEAR(one.losses[s], many.losses[s], 1e-5) << "step " << s + 1;
}
#endif

TEST(Law3, DataParallel) {
  expect_law({"dp", ScheduleKind::kGPipe, {{{1, 2}, {stage({0}, 0, 4, 1)}}, {{2}, {stage({1}, 0, 4, 1)}}}},
             TiedEmbeddings::kNo);
}
TEST(Law3, TensorParallel) {
  expect_law({"tp", ScheduleKind::kOneFOneB, {{{2, 1}, {stage({0, 1}, 0, 4, 2)}}}}, TiedEmbeddings::kNo);
}
TEST(Law3, TensorParallelThree) {
  expect_law({"tp", ScheduleKind::kOneFOneB, {{{2, 1}, {stage({2, 0, 1}, 0, 4, 3)}}}}, TiedEmbeddings::kYes);
}
TEST(Law3, PipelineParallel) {
  expect_law({"pp", ScheduleKind::kOneFOneB, {{{1, 1, 2}, {stage({0}, 0, 1, 1), stage({1}, 1, 4, 1)}}}},
             TiedEmbeddings::kYes);
}
TEST(Law3, LargeTensorsOverThree) {
  const LlamaConfig model = larger_model(TiedEmbeddings::kNo);
  expect_law({"dp 3",
              ScheduleKind::kOneFOneB,
              {{{1}, {stage({0}, 0, 4, 1)}}, {{1}, {stage({1}, 0, 4, 1)}}, {{1}, {stage({2}, 0, 4, 1)}}}},
             model);
  expect_law({"cp 3", ScheduleKind::kOneFOneB, {{{2}, {stage({2, 0, 1}, 0, 4, 1)}}}}, model);
  expect_law({"unlike",
              ScheduleKind::kZeroBubble,
              {{{1, 1}, {stage({0, 1, 2}, 0, 4, 3)}},
               {{1}, {stage({3, 4}, 0, 2, 2), stage({5}, 2, 4, 1)}},
               {{2}, {stage({6, 7}, 0, 4, 1)}}}},
             larger_model(TiedEmbeddings::kYes));
}
TEST(Law3, ZeroBubble) {
  expect_law({"zb",
              ScheduleKind::kZeroBubble,
              {{{1, 2, 1, 1}, {stage({0}, 0, 1, 1), stage({1, 2}, 1, 2, 2), stage({3}, 2, 4, 1)}},
               {{3}, {stage({4}, 0, 4, 1)}}}},
             TiedEmbeddings::kYes);
}
TEST(Law3, ContextParallel) {
  expect_law({"cp", ScheduleKind::kOneFOneB, {{{1, 2}, {stage({0, 1, 2}, 0, 4, 1)}}}}, TiedEmbeddings::kNo);
}

#ifdef HSPMD_HAS_ATEN
TEST(Law3, AtenKernelsAgreeWithReference) {
  const Strategy strategy{
      "mixed",
      ScheduleKind::kOneFOneB,
      {{{2, 1, 2}, {stage({0, 1, 2}, 0, 2, 3), stage({3}, 2, 4, 1)}}, {{1, 3}, {stage({4, 5}, 0, 4, 2)}}}};
  RunSetting setting;
  setting.model = small_model(TiedEmbeddings::kNo);
  setting.sequence_length = 11;
  const RunResult one = run_llama(one_device(4, strategy.global_batch(), 2), setting);
  setting.backend = Backend::kAten;

  expect_equal(one, run_llama(strategy, setting), 1e-9);

  setting.precision = Precision::kFp32;
  const RunResult single = run_llama(strategy, setting);
  for (std::size_t s = 0; s < one.losses.size(); ++s) EXPECT_NEAR(one.losses[s], single.losses[s], 1e-5);
}
#endif

TEST(Law3, HoldsForRandomStrategies) {
  RandomStrategies family(5);
  // Sanitizers are slow: they ask for fewer.
  const char* fewer = std::getenv("HSPMD_LAW3_STRATEGIES");
  const int strategies = fewer == nullptr ? 48 : std::atoi(fewer);
  for (int i = 0; i < strategies; ++i) {
    const Strategy strategy = family.next();
    const TiedEmbeddings tied = family.draw_tied();
    expect_law(strategy, tied);
#ifdef HSPMD_HAS_ATEN
    if (i % 4 == 0) expect_single_precision_law(strategy, tied);
#endif
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hspmd
