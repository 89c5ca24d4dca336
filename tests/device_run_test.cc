// The runtime's promises: no tensor storage in the steady state, waits that end, memory limits, paced devices, the same
// bits again.
#include <gtest/gtest.h>

#include "llama_run.h"

#ifdef HSPMD_HAS_ATEN
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#endif

namespace hspmd {
namespace {

using testing::run_llama;
using testing::RunSetting;

LlamaConfig tiny() {
  LlamaConfig c = llama_preset("tiny");
  c.layers = 2;
  c.hidden = 32;  // the reference kernels under a sanitizer are slow
  c.head_dim = 8;
  c.ffn = 44;
  return c;
}

Strategy two_pipelines() {
  StageSpec a, b, c;
  a.devices = {0, 1};
  a.layers = {0, 2};
  a.tp = 2;
  b.devices = {2};
  b.layers = {0, 1};
  c.devices = {3};
  c.layers = {1, 2};
  return {"two", ScheduleKind::kOneFOneB, {{{2, 1}, {a}}, {{1, 1, 1}, {b, c}}}};
}

#ifdef HSPMD_HAS_ATEN
constexpr Backend kFast = Backend::kAten;
#else
constexpr Backend kFast = Backend::kReference;
#endif

struct Built {
  Graph graph;
  Plan plan;
  RunOptions options;
};

Built build(const Strategy& strategy, Backend backend) {
  Built built;
  ModelRoles roles = llama_roles(tiny());
  const ModelOutputs outputs = build_llama(built.graph, tiny());
  build_training_step(built.graph, {outputs.loss, outputs.tokens}, {}, roles);
  built.plan = expand(strategy, roles);
  built.options.backend = backend;
  built.options.sequence_length = 8;
  built.options.schedule = strategy.schedule;
  for (const PipelineSpec& p : strategy.pipelines) built.options.micro_batch_sizes.push_back(p.micro_batch_sizes);
  return built;
}

#ifdef HSPMD_HAS_ATEN
// Counts what libtorch allocates for tensors.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) const override {
    ++count;
    return c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  mutable std::atomic<int> count{0};
};

TEST(Runtime, AllocatesNoTensorStorageInTheSteadyState) {
  const Strategy strategy = two_pipelines();
  const Built built = build(strategy, Backend::kAten);
  const Cluster cluster = Cluster::uniform(4);
  DeviceRun run(built.graph, built.plan, strategy.devices(), built.options, cluster);
  run.initialise();
  RunSetting setting;
  setting.model = tiny();
  setting.precision = Precision::kFp32;
  const auto step = [&](int number) {
    run.step([&](const FeedRequest& r) { testing::feed_tokens(strategy, setting, number, r); });
  };
  step(0);
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, 100);
  { const c10::DataPtr probe = c10::GetAllocator(c10::kCPU)->allocate(8); }
  const int before = allocator.count;

  for (int number = 1; number < 4; ++number) step(number);

  EXPECT_EQ(before, 1) << "the counter must see allocations";
  EXPECT_EQ(allocator.count, before);
}
#endif

TEST(Runtime, RepeatsBitByBit) {
  RunSetting setting;
  setting.model = tiny();
  setting.precision = Precision::kFp32;
  const auto first = run_llama(two_pipelines(), setting);
  const auto second = run_llama(two_pipelines(), setting);

  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.leaves, second.leaves);
}

TEST(Runtime, AFailureOnOneDeviceEndsAllAndSaysWhere) {
  const Strategy strategy = two_pipelines();
  Built built = build(strategy, Backend::kReference);
  built.options.timeout_s = 30;
  const Cluster cluster = Cluster::uniform(4);
  DeviceRun run(built.graph, built.plan, strategy.devices(), built.options, cluster);
  run.initialise();
  const auto feed = [&](const FeedRequest& r) {
    if (r.pipeline == 1 && r.micro_batch == 2)
      throw RuntimeFailure({3, "read data", std::nullopt, "ids"}, "the disk is gone");
    if (r.micro_batch >= 0) std::memset(r.data, 0, static_cast<std::size_t>(volume(*r.box)) * 4);
  };

  try {
    run.step(feed);
    FAIL() << "the step must fail";
  } catch (const RuntimeFailure& failure) {
    EXPECT_NE(std::string(failure.what()).find("the disk is gone"), std::string::npos) << failure.what();
  }
}

Cluster slow_cluster(double flops, double memory_bytes) {
  DeviceType type;
  type.name = "slow";
  type.peak_flops["fp32"] = flops;
  type.memory_bytes = memory_bytes;
  return {{type}, {{"n", 0, 4, {1e9, 1e-6}, {1e9, 1e-6}}}};
}

TEST(Runtime, APacedDeviceTakesItsModelledTime) {
  const Strategy strategy = two_pipelines();
  const Built built = build(strategy, Backend::kPaced);
  const Cluster cluster = slow_cluster(1e7, 0);
  DeviceRun run(built.graph, built.plan, strategy.devices(), built.options, cluster);
  run.initialise();
  // Device 3 holds one layer of 3 sequences of 8 tokens, forward and backward: 6 flops a weight and token.
  const double weights = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 44;
  const double least = 6 * weights * 24 / 1e7;

  const auto begin = std::chrono::steady_clock::now();
  run.step([](const FeedRequest&) {});

  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), least);
}

TEST(Runtime, AModelThatDoesNotFitIsRefused) {
  const Strategy strategy = two_pipelines();
  const Built built = build(strategy, Backend::kPaced);
  const Cluster cluster = slow_cluster(1e9, 1e4);

  EXPECT_THROW(DeviceRun(built.graph, built.plan, strategy.devices(), built.options, cluster), InvalidArgument);
  EXPECT_FALSE(check({&built.graph, &built.plan, &strategy, &cluster, 8, 4}).empty());
}

TEST(Runtime, CheckCountsTheMemoryThatARunPlans) {
  const Strategy strategy = two_pipelines();
  for (const Backend backend : {Backend::kReference, kFast, Backend::kPaced}) {
    const Built built = build(strategy, backend);
    const Cluster unlimited = slow_cluster(1e9, 0);
    const DeviceRun run(built.graph, built.plan, strategy.devices(), built.options, unlimited);
    const std::size_t most = *std::max_element(run.memory_bytes().begin(), run.memory_bytes().end());
    for (const std::size_t limit : {most, most - 1}) {
      const Cluster cluster = slow_cluster(1e9, static_cast<double>(limit));
      CheckRequest request{&built.graph, &built.plan, &strategy, &cluster, 8, 4};
      request.workspace = [&](const BoundCompute& b) { return workspace_bytes(backend, Precision::kFp32, b); };

      EXPECT_EQ(check(request).empty(), limit == most);
    }
  }
}

TEST(Runtime, CheckProvesGoodPlansAndNamesBadOnes) {
  const Strategy strategy = two_pipelines();
  Built built = build(strategy, Backend::kReference);
  const Cluster cluster = Cluster::uniform(4);
  const auto found = [&] { return check({&built.graph, &built.plan, &strategy, &cluster, 8, 4}); };
  EXPECT_TRUE(found().empty());

  built.plan.set_reshard("model.layers.1.mlp.input", parse_annotation("top S0 {0-1: S2x2 | 3:}"));
  const auto problems = found();

  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.front().find("Mend it by a Reshard"), std::string::npos) << problems.front();
}

}  // namespace
}  // namespace hspmd
