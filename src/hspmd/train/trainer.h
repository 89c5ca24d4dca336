// Trainer: a training run, of all devices as threads of this process or of one of them in a job of processes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hspmd/data/stream.h"
#include "hspmd/graph/graph.h"
#include "hspmd/runtime/device_run.h"
#include "hspmd/train/config.h"
#include "hspmd/train/job.h"

namespace hspmd {

// What one step gave. `loss` is the mean over the step's real tokens, before the update; `grad_norm` before clipping.
struct StepRecord {
  std::int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;
  double step_s = 0;
  double tokens_per_s = 0;
  double tflops = 0;
  std::optional<double> mfu;  // of the sum of the devices' peaks; unknown without a cluster
  std::vector<std::size_t> peak_memory_bytes;
  std::string strategy;
};

// One line each: JSON that reads back to the same doubles, and for people.
[[nodiscard]] std::string to_json(const StepRecord& record);
[[nodiscard]] std::string to_line(const StepRecord& record, std::int64_t steps);

enum class Finish { kDone, kInterrupted };

class Trainer {
 public:
  // Builds graph, plan and programs. Throws InvalidArgument; nothing is written yet.
  // With a job this process is one device of the run; all ranks must bring the same program and inputs. The job must
  // outlive it.
  explicit Trainer(TrainConfig config, JoinedJob* job = nullptr);
  ~Trainer();

  // What a run tells while it goes on: `line` every log.every steps, `progress` after every step, `note` for events.
  struct Listeners {
    std::function<void(const StepRecord&)> line;
    std::function<void(const StepRecord&)> progress;
    std::function<void(const std::string&)> note;
  };
  // Runs to the configured step, or until `interrupted` is set, on any rank. Begins log.json anew, on rank 0: throws
  // InvalidArgument where it cannot be written. Throws RuntimeFailure when the loss is not finite (it says where that
  // appeared first) or a device fails.
  Finish run(const std::atomic<bool>& interrupted, const Listeners& listeners);

  // One step; public for comparisons and benches.
  StepRecord step(std::int64_t number);
  [[nodiscard]] double evaluate();
  [[nodiscard]] const Strategy& strategy() const { return strategy_; }
  [[nodiscard]] std::int64_t data_tokens() const;
  [[nodiscard]] DeviceRun& devices() { return *run_; }

 private:
  void check_memory() const;
  void agree() const;
  [[nodiscard]] std::unique_ptr<DeviceRun> devices_for(const Graph& graph, const Plan& plan,
                                                       const std::string& name) const;
  [[nodiscard]] bool stops(const std::atomic<bool>& interrupted, std::int64_t number) const;
  void feed(const Stream& stream, std::int64_t first_sequence, std::int64_t sequences, std::int64_t step,
            const FeedRequest& request) const;

  TrainConfig config_;
  JoinedJob* job_;
  Strategy strategy_;
  std::vector<std::int64_t> first_of_pipeline_;
  std::optional<double> peak_flops_;  // of all devices, where the cluster file says
  Cluster cluster_;
  Graph graph_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> validation_;
  std::unique_ptr<DeviceRun> run_;
  Graph evaluation_graph_;
  std::unique_ptr<DeviceRun> evaluation_;
};

// The model's step as graph and plan: what train, check and the benches run. Throws InvalidArgument where the plan file
// says what does not fit model and strategy (plan_problems.h), with the file's name.
struct StepProgram {
  Graph graph;
  Plan plan;
};
[[nodiscard]] StepProgram build_step(const LlamaConfig& model, const Strategy& strategy,
                                     const OptimizerConfig& optimizer, const std::optional<PlanFile>& plan);
// Forward alone, with every parameter laid out as in the step.
[[nodiscard]] StepProgram build_evaluation(const LlamaConfig& model, const Strategy& strategy,
                                           const std::optional<PlanFile>& plan);

}  // namespace hspmd
