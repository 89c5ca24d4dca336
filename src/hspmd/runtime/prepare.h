// Prepared: a program made ready to run. Kernels are made, exchanges know their rounds, all memory has its place; what
// is left for a step is to run lists.
//
// One variant for each distinct micro-batch size; all share the regions of the device's memory:
//   persistent | step | stash x micro-batches in flight | outbox x 2 a section | section | workspace | tables
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hspmd/runtime/exchanger.h"
#include "hspmd/runtime/kernels/kernel.h"
#include "hspmd/specialize/bind.h"
#include "hspmd/specialize/program.h"

namespace hspmd {

enum class Backend { kAten, kReference, kPaced };

struct ExecutorOptions {
  Precision precision = Precision::kFp32;
  Backend backend = Backend::kAten;
  std::vector<std::int64_t> micro_batch_sizes;  // of the device's pipeline
  std::int64_t sequence_length = 0;
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  std::uint64_t seed = 1;
  Hosts hosts;  // by device; empty: all on one
};

struct RunCompute {
  const BoundCompute* bound = nullptr;
  std::unique_ptr<Kernel> kernel;  // null on a paced device
  std::vector<const void*> operands;
  std::vector<void*> results;
  double seconds = 0;  // paced: what it takes
  std::uint32_t trace_name = 0;
};

// One of the two is set.
struct RunStep {
  std::unique_ptr<RunCompute> compute;
  std::unique_ptr<RunExchange> exchange;
};

struct RunSection {
  std::vector<RunStep> steps;
};

struct Variant {
  std::int64_t micro_batch_size = 0;
  BoundProgram bound;
  std::vector<RunSection> sections;  // Pre and Post of the first variant serve all
};

// An exchange of Post that can start while the last micro-batch still runs: what it sums is final after that action's
// instruction.
struct EarlyStart {
  std::size_t action = 0;
  std::size_t instruction = 0;
  RunExchange* exchange = nullptr;
};

struct Prepared {
  Actions actions;
  std::vector<std::size_t> section_of_action;
  int in_flight = 1;
  std::vector<std::unique_ptr<Variant>> variants;
  std::vector<std::size_t> variant_of_micro_batch;
  std::vector<std::unique_ptr<ChannelState>> channels;
  std::vector<EarlyStart> early;  // by action, then instruction
  MemoryLayout regions;
  std::array<std::size_t, kScopes> bytes = {};  // of each region; of kStash and kOutbox one copy
  std::size_t memory_bytes = 0;
};

// What the kernel of an instruction works in. Throws InvalidArgument when the backend has no kernel of its operator.
[[nodiscard]] std::size_t workspace_bytes(Backend backend, Precision precision, const BoundCompute& bound);

// Throws InvalidArgument when a backend has no kernel of an operator, or the program needs more memory than the cluster
// gives the device.
[[nodiscard]] Prepared prepare(const Program& program, const ExecutorOptions& options, const Exchanger& exchanger,
                               const Cluster& cluster);

}  // namespace hspmd
