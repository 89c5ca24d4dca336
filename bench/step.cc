// A worker of bench/step: builds preset `small` under one strategy, then runs one training step for each line it reads
// and answers with its seconds. `bench_step gemm` answers with the GFLOP/s of one matrix product on one core instead.
#include <cblas.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "hspmd/runtime/kernels/kernel.h"
#include "hspmd/train/trainer.h"

namespace hspmd::bench {
namespace {

constexpr std::int64_t kSequences = 16;
constexpr std::int64_t kLength = 512;

StageSpec stage(std::vector<Device> devices, int begin, int end, int tp) {
  StageSpec s;
  s.devices = std::move(devices);
  s.layers = {begin, end};
  s.tp = tp;
  return s;
}

Strategy strategy_named(const std::string& mode) {
  const std::vector<std::int64_t> fours(4, 4), twos(2, 4), ones(kSequences, 1);
  if (mode == "one") return {mode, ScheduleKind::kOneFOneB, {{fours, {stage({0}, 0, 8, 1)}}}};
  if (mode == "dp2")
    return {mode, ScheduleKind::kOneFOneB, {{twos, {stage({0}, 0, 8, 1)}}, {twos, {stage({1}, 0, 8, 1)}}}};
  if (mode == "tp2") return {mode, ScheduleKind::kOneFOneB, {{fours, {stage({0, 1}, 0, 8, 2)}}}};
  if (mode == "pp2") return {mode, ScheduleKind::kZeroBubble, {{ones, {stage({0}, 0, 4, 1), stage({1}, 4, 8, 1)}}}};
  invalid("[bench] the mode must be one, dp2, tp2, pp2 or gemm. Received \"{}\".", mode);
}

double gemm_gflops() {
  constexpr int kSize = 1024;
  limit_kernel_threads(1);
  std::vector<float> a(kSize * kSize, 1), b(kSize * kSize, 1), c(kSize * kSize);
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1, a.data(), kSize, b.data(), kSize, 0,
                c.data(), kSize);
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * kSize * kSize * kSize / s / 1e9);
  }
  return best;
}

int run(const std::string& mode, const std::string& text) {
  if (mode == "gemm") {
    std::printf("%.2f\n", gemm_gflops());
    return 0;
  }
  TrainConfig config;
  config.model = llama_preset("small");
  config.data.paths = {text};
  config.data.sequence_length = kLength;
  config.steps = 1000;
  config.strategy = strategy_named(mode);
  Trainer trainer(config);
  std::int64_t number = 0;
  std::string line;
  std::printf("ready %.0f\n", config.model.flops_per_token(kLength));
  std::fflush(stdout);
  while (std::getline(std::cin, line)) {
    const StepRecord record = trainer.step(++number);
    std::printf("%.6f %.6f\n", record.step_s, record.loss);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace hspmd::bench

int main(int argc, char** argv) {
  try {
    return hspmd::bench::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
