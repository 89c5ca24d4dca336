#include "hspmd/cost/roofline.h"

#include <gtest/gtest.h>

namespace hspmd {
namespace {

DeviceType device(std::map<std::string, double> peak_flops, double memory_bytes_per_s) {
  DeviceType type;
  type.peak_flops = std::move(peak_flops);
  type.memory_bytes_per_s = memory_bytes_per_s;
  return type;
}

TEST(Roofline, TakesTheLongerOfArithmeticAndMemory) {
  const DeviceType both = device({{"bf16", 8e12}, {"fp32", 1e12}, {"fp64", 5e11}}, 1e11);
  const DeviceType no_memory = device({{"fp32", 1e12}}, 0);
  const DeviceType no_peak = device({}, 1e11);
  struct Row {
    const char* name;
    Cost cost;
    DeviceType type;
    const char* precision;
    double seconds;
  };
  const Row rows[] = {
      {"arithmetic bound", {4e12, 1e11}, both, "fp32", 4},
      {"memory bound", {1e12, 3e11}, both, "fp32", 3},
      {"at the ridge", {2e12, 2e11}, both, "fp32", 2},
      {"the same operator in half the speed", {4e12, 1e11}, both, "fp64", 8},
      {"so fast that memory binds", {4e12, 1e11}, both, "bf16", 1},
      {"no work", {0, 0}, both, "fp32", 0},
      {"an empty part still reads", {0, 5e10}, both, "fp32", 0.5},
      {"memory not modelled", {3e12, 9e15}, no_memory, "fp32", 3},
      {"a precision without a peak: memory alone", {3e12, 1e11}, no_memory, "bf16", 0},
      {"no peaks", {9e15, 7e11}, no_peak, "fp32", 7},
      {"nothing known", {9e15, 9e15}, device({}, 0), "fp32", 0},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);

    EXPECT_DOUBLE_EQ(roofline_seconds(row.cost, row.type, row.precision), row.seconds);
  }
}

}  // namespace
}  // namespace hspmd
