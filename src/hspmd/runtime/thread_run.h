// ThreadRun: all devices of a plan as threads of this process. One program each, one generation for all.
//
//   ThreadRun run(graph, plan, options);
//   run.initialise();
//   run.step(feed);             // feed is called from the devices' threads
//   run.output("loss")
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "hspmd/runtime/executor.h"
#include "hspmd/switching/train_state.h"

namespace hspmd {

struct ThreadRunOptions {
  Precision precision = Precision::kFp32;
  Backend backend = Backend::kAten;
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  std::int64_t sequence_length = 0;
  std::vector<std::vector<std::int64_t>> micro_batch_sizes;  // by pipeline
  std::uint64_t seed = 1;
  double timeout_s = 60;
};

class ThreadRun {
 public:
  // Specialises and binds all devices. Throws what they throw.
  ThreadRun(const Graph& graph, const Plan& plan, const std::vector<Device>& devices, const ThreadRunOptions& options,
            const Cluster& cluster);

  void initialise();
  // One step on all devices. The first failure of any rank is rethrown, naming all that failed.
  void step(const FeedFunction& feed);
  [[nodiscard]] double output(const std::string& name) const;
  // Where a non-finite value appears first: the text for the message. Runs the forward sections again.
  [[nodiscard]] std::string find_non_finite(const FeedFunction& feed);

  [[nodiscard]] const std::vector<Program>& programs() const { return programs_; }
  [[nodiscard]] std::vector<std::unique_ptr<Executor>>& executors() { return executors_; }
  [[nodiscard]] std::vector<std::size_t> memory_bytes() const;
  // Parameters and optimizer states, in place.
  [[nodiscard]] TrainState state();
  [[nodiscard]] Generation& generation() { return *generation_; }

 private:
  // Runs a function for every rank on threads of their own; captures by rank, joins, rethrows the first.
  void on_all(const std::function<void(std::size_t)>& work, Generation& generation);

  std::vector<Device> devices_;
  Precision precision_;
  std::int64_t steps_ = 0;
  std::vector<Program> programs_;
  std::vector<int> rank_of_device_;
  std::unique_ptr<Generation> generation_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace hspmd
