// DeviceRun: the devices of a plan, ready to step. All as threads of this process, or one of them, when each device has
// a process of its own; one program each, one generation for all.
//
//   DeviceRun run(graph, plan, devices, options, cluster);               // threads
//   DeviceRun run(graph, plan, devices, options, cluster, rendezvous);   // this process is rank r: devices[r]
//   run.initialise();
//   run.step(feed);             // feed is called from the devices' threads
//   run.output("loss")
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hspmd/runtime/executor.h"
#include "hspmd/runtime/transport/rendezvous.h"
#include "hspmd/switching/train_state.h"

namespace hspmd {

struct RunOptions {
  Precision precision = Precision::kFp32;
  Backend backend = Backend::kAten;
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  std::int64_t sequence_length = 0;
  std::vector<std::vector<std::int64_t>> micro_batch_sizes;  // by pipeline
  std::uint64_t seed = 1;
  double timeout_s = 60;
  // Between hosts: the network interface ("eth0") and UCX's names of what it may use there.
  std::string interface;
  std::string transports = "tcp,self";
};

class DeviceRun {
 public:
  // Specialises and binds the devices that are here. Throws what they throw.
  DeviceRun(const Graph& graph, const Plan& plan, const std::vector<Device>& devices, const RunOptions& options,
            const Cluster& cluster);
  // Every process makes its own, with the same arguments, and meets the others. `name` tells the runs of a job apart;
  // the rendezvous must outlive it.
  DeviceRun(const Graph& graph, const Plan& plan, const std::vector<Device>& devices, const RunOptions& options,
            const Cluster& cluster, Rendezvous& rendezvous, const std::string& name);
  ~DeviceRun();

  void initialise();
  // One step on all devices. The first failure of any rank is rethrown; it ends the step of all others.
  void step(const FeedFunction& feed);
  [[nodiscard]] double output(const std::string& name) const;
  // Where a non-finite value appears first: the text for the message. Runs the forward sections again, on all devices.
  [[nodiscard]] std::string find_non_finite(const FeedFunction& feed);

  // Records what the devices do from now on; `trace_text` is the file for Perfetto, of all ranks on one clock. All
  // processes of a job call both together.
  void trace(std::size_t events_a_device);
  [[nodiscard]] std::string trace_text();

  // Of the devices that are here.
  [[nodiscard]] const std::vector<Program>& programs() const { return programs_; }
  [[nodiscard]] std::vector<std::unique_ptr<Executor>>& executors() { return executors_; }
  // Parameters and optimizer states, in place; shards of the devices that are here.
  [[nodiscard]] TrainState state();
  // By rank, of all devices.
  [[nodiscard]] const std::vector<std::size_t>& memory_bytes() const { return memory_bytes_; }
  [[nodiscard]] Generation& generation() { return *generation_; }

 private:
  void number(const std::vector<Device>& devices);
  void make_programs(const Graph& graph, const Plan& plan, const std::vector<Device>& here, ScheduleKind schedule);
  void make_executors(const RunOptions& options, const Cluster& cluster);
  void find_hosts(const std::vector<Device>& devices, const RunOptions& options);
  void connect_far(const RunOptions& options);
  void meet();
  // Runs a function for every executor on threads of their own; captures by rank, joins, rethrows the first.
  void on_all(const std::function<void(std::size_t)>& work);
  void fail(const std::string& reason);
  [[nodiscard]] std::int64_t clock_offset_ns();
  [[nodiscard]] std::vector<std::string> gather_long(const std::string& mine);

  std::vector<Device> devices_;  // here
  Precision precision_;
  std::int64_t steps_ = 0;
  Rendezvous* rendezvous_ = nullptr;
  std::optional<int> subscription_;  // to its abort
  std::string name_;
  std::vector<Program> programs_;
  std::vector<int> rank_of_device_;
  std::vector<std::uint64_t> host_of_rank_;
  Hosts hosts_;  // by device; empty: all on one
  std::unique_ptr<Generation> generation_;
  std::unique_ptr<Messages> messages_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::size_t> memory_bytes_;
};

}  // namespace hspmd
