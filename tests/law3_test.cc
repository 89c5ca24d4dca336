// Law 3: every strategy gives the losses, gradients and parameters of one device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "llama_run.h"

namespace hspmd {
namespace {

using testing::run_llama;
using testing::RunResult;
using testing::RunSetting;

LlamaConfig small_model(TiedEmbeddings tied) {
  LlamaConfig c;
  c.vocabulary = 23;
  c.hidden = 12;
  c.layers = 4;
  c.heads = 6;
  c.kv_heads = 3;
  c.head_dim = 4;
  c.ffn = 10;
  c.tied = tied;
  return c;
}

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

StageSpec stage(std::vector<Device> devices, int begin, int end, int tp) {
  StageSpec s;
  s.devices = std::move(devices);
  s.layers = {begin, end};
  s.tp = tp;
  s.cp = static_cast<int>(s.devices.size()) / tp;
  return s;
}

void expect_law(const Strategy& strategy, TiedEmbeddings tied) {
  SCOPED_TRACE(picture(strategy));
  RunSetting setting;
  setting.model = small_model(tied);
  const RunResult one = run_llama(one_device(4, strategy.global_batch(), 2), setting);

  const RunResult many = run_llama(strategy, setting);

  expect_equal(one, many, 1e-9);
}

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
  std::mt19937 random(5);
  const auto draw = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  // Sanitizers are slow: they ask for fewer.
  const char* fewer = std::getenv("HSPMD_LAW3_STRATEGIES");
  const int strategies = fewer == nullptr ? 48 : std::atoi(fewer);
  for (int i = 0; i < strategies; ++i) {
    std::vector<Device> devices = {0, 1, 2, 3, 4, 5, 6, 7};
    std::shuffle(devices.begin(), devices.end(), random);
    std::size_t at = 0;
    Strategy strategy{"random", static_cast<ScheduleKind>(draw(0, 2)), {}};
    const int pipelines = draw(1, 3);
    for (int p = 0; p < pipelines && at < devices.size(); ++p) {
      PipelineSpec pipeline;
      const int micro_batches = draw(1, 4);
      for (int m = 0; m < micro_batches; ++m) pipeline.micro_batch_sizes.push_back(draw(1, 3));
      int layer = 0;
      const int stages = draw(1, 3);
      for (int s = 0; s < stages && at < devices.size(); ++s) {
        const auto size = static_cast<std::size_t>(std::min<int>(draw(1, 5), static_cast<int>(devices.size() - at)));
        std::vector<Device> own(devices.begin() + static_cast<long>(at),
                                devices.begin() + static_cast<long>(at + size));
        at += size;
        const bool last = s + 1 == stages || at == devices.size();
        const int end = last ? 4 : draw(layer, 4);
        int tp = static_cast<int>(size);
        if (size == 4 && draw(0, 1) == 0) tp = 2;
        if (size <= 3 && draw(0, 3) == 0) tp = 1;
        StageSpec spec = stage(own, layer, end, tp);
        if (draw(0, 2) == 0) spec.sequence_parallel = SequenceParallel::kOff;
        if (tp > 1 && draw(0, 2) == 0) {
          for (int w = 0; w < tp; ++w) spec.tp_weights.push_back(draw(w == 0 ? 1 : 0, 3));
        }
        pipeline.stages.push_back(spec);
        layer = end;
      }
      strategy.pipelines.push_back(pipeline);
    }
    expect_law(strategy, draw(0, 1) == 0 ? TiedEmbeddings::kNo : TiedEmbeddings::kYes);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hspmd
