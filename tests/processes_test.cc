// Law 3 with one process a device: the same programs over shared memory.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "forked_ranks.h"
#include "hspmd/base/box.h"
#include "llama_run.h"
#include "random_strategy.h"

namespace hspmd {
namespace {

using testing::fork_ranks;
using testing::RandomStrategies;
using testing::run_llama;
using testing::RunResult;
using testing::RunSetting;
using testing::small_model;
using testing::stage;

constexpr double kTolerance = 1e-9;

// The largest difference of this device's parts of the state from one device's, in losses, norms and leaves.
double difference(const RunResult& one, const RunResult& here) {
  double most = one.losses.size() == here.losses.size() ? 0 : 1e300;
  for (std::size_t s = 0; s < here.losses.size(); ++s) {
    most = std::max(most, std::abs(one.losses[s] - here.losses[s]));
    most = std::max(most, std::abs(one.norms[s] - here.norms[s]) / 10);
  }
  return most;
}

double difference(const RunResult& one, const TrainState& here) {
  double most = 0;
  for (const auto& [name, tensor] : here.tensors) {
    for (const auto& [device, shard] : tensor.shards) {
      for (std::int64_t i = 0; i < volume(shard.box); ++i) {
        const auto at = static_cast<std::size_t>(global_index(shard.box, i, tensor.shape));
        most = std::max(most, std::abs(one.leaves.at(name)[at] - static_cast<const double*>(shard.data)[i]) / 10);
      }
    }
  }
  return most;
}

enum class Where { kOneHost, kTwoHosts };

// Two hosts: every other rank says that it is on the second; they reach each other over the loopback.
void expect_law(const Strategy& strategy, const LlamaConfig& model, Where where = Where::kOneHost) {
  SCOPED_TRACE(picture(strategy));
  RunSetting setting;
  setting.model = model;
  setting.interface = "lo";
  const RunResult one = run_llama(one_device(testing::kLayers, strategy.global_batch(), 2), setting);

  const std::vector<int> codes = fork_ranks(static_cast<int>(strategy.devices().size()), [&](Rendezvous& rendezvous) {
    if (where == Where::kTwoHosts) setenv("HSPMD_HOST", rendezvous.rank() % 2 == 0 ? "a" : "b", 1);
    double most = 0;
    const RunResult here =
        run_llama(strategy, setting, &rendezvous, [&](const TrainState& state) { most = difference(one, state); });
    most = std::max(most, difference(one, here));
    if (!(most < kTolerance)) std::fprintf(stderr, "rank %d differs by %g\n", rendezvous.rank(), most);
    return most < kTolerance ? 0 : 1;
  });

  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

TEST(Processes, OneDeviceAlone) {
  expect_law(one_device(testing::kLayers, 3, 2), small_model(TiedEmbeddings::kNo));
}

TEST(Processes, LargeTensorsOverTwoHosts) {
  expect_law({"unlike",
              ScheduleKind::kOneFOneB,
              {{{1, 1}, {stage({0, 1, 2}, 0, 4, 3)}},
               {{1}, {stage({3, 4}, 0, 2, 2), stage({5}, 2, 4, 1)}},
               {{2}, {stage({6, 7}, 0, 4, 1)}}}},
             testing::larger_model(TiedEmbeddings::kYes), Where::kTwoHosts);
}

TEST(Processes, Law3HoldsForRandomStrategiesOverTwoHosts) {
  RandomStrategies family(12);
  const char* fewer = std::getenv("HSPMD_LAW3_STRATEGIES");
  const int strategies = fewer == nullptr ? 10 : std::atoi(fewer);
  for (int i = 0; i < strategies; ++i) {
    const Strategy strategy = family.next();
    expect_law(strategy, small_model(family.draw_tied()), Where::kTwoHosts);
    if (HasFailure()) return;
  }
}

TEST(Processes, Law3HoldsForRandomStrategies) {
  RandomStrategies family(11);
  const char* fewer = std::getenv("HSPMD_LAW3_STRATEGIES");
  const int strategies = fewer == nullptr ? 20 : std::atoi(fewer);
  for (int i = 0; i < strategies; ++i) {
    const Strategy strategy = family.next();
    expect_law(strategy, small_model(family.draw_tied()));
    if (HasFailure()) return;
  }
}

TEST(Processes, AFailureOfOneEndsAll) {
  const Strategy strategy{"mixed",
                          ScheduleKind::kOneFOneB,
                          {{{1, 1}, {stage({0, 1}, 0, 2, 2), stage({2}, 2, 4, 1)}}, {{2}, {stage({3}, 0, 4, 1)}}}};
  RunSetting setting;
  setting.model = small_model(TiedEmbeddings::kNo);

  const std::vector<int> codes = fork_ranks(4, [&](Rendezvous& rendezvous) {
    try {
      (void)run_llama(strategy, setting, &rendezvous, [&](const TrainState&) {
        if (rendezvous.rank() == 2) rendezvous.abort("rank 2 gives up");
      });
      RunSetting endless = setting;
      endless.steps = 100000;  // never ends by itself
      (void)run_llama(strategy, endless, &rendezvous);
    } catch (const RuntimeFailure& failure) {
      return std::string(failure.what()).find("rank 2 gives up") != std::string::npos ? 7 : 1;
    }
    return 0;
  });

  EXPECT_EQ(codes, std::vector<int>(4, 7));
}

}  // namespace
}  // namespace hspmd
