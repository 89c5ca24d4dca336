// Executor: runs one device's program on planned memory.
//
// All memory of a device is one block, laid out at construction:
//   persistent | step | stash x micro-batches in flight | outbox x 2 a section | section | workspace | tables
// Kernels are made once for each distinct micro-batch size. A step allocates no tensor storage, makes no string and
// searches no map.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hspmd/runtime/kernels/kernel.h"
#include "hspmd/runtime/strided.h"
#include "hspmd/runtime/transport/arena.h"
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
};

// Fills a placeholder's local part: `box` in coordinates of the pipeline's micro-batch. Step inputs have
// micro_batch -1 and are of the run's precision.
struct FeedRequest {
  const Feed* feed = nullptr;
  int pipeline = 0;
  int micro_batch = -1;
  const Box* box = nullptr;
  void* data = nullptr;
};
using FeedFunction = std::function<void(const FeedRequest&)>;

// Where a value that is not finite appeared first on one device.
struct NonFinite {
  int micro_batch = 0;
  int virtual_stage = 0;
  std::string value;
};

class Executor {
 public:
  // program, generation and cluster must outlive it. The device's rank in the generation is given.
  // Throws InvalidArgument when the program needs more memory than the cluster gives the device.
  Executor(const Program& program, const ExecutorOptions& options, Generation& generation, int rank,
           const std::vector<int>& rank_of_device, const Cluster& cluster);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Leaves get their initial values, by the global index of each element.
  void initialise();
  // One step; outputs are read with `output`. Throws RuntimeFailure when a wait ends without its event.
  void step(const FeedFunction& feed);
  [[nodiscard]] double output(const std::string& name) const;
  [[nodiscard]] bool has_output(const std::string& name) const;

  // Runs the forward sections alone and says where the first value that is not finite is made here.
  // All devices of the run must call it together.
  [[nodiscard]] std::optional<NonFinite> find_non_finite(const FeedFunction& feed);

  // Local part of a leaf: where it lies and its box.
  struct LeafView {
    const LeafSlot* leaf = nullptr;
    const Annotation* layout = nullptr;
    Shape shape;  // of the whole tensor
    Box box;
    void* data = nullptr;
  };
  [[nodiscard]] std::vector<LeafView> leaves();

  [[nodiscard]] std::size_t memory_bytes() const { return memory_bytes_; }

 private:
  struct RunCompute;
  struct RunExchange;
  struct RunSection;
  struct Variant;
  struct ChannelState;

  // Memory beyond the program's regions.
  struct Extra {
    std::size_t workspace = 0;
    std::size_t tables = 0;
  };
  void bind_sizes(const Cluster& cluster);
  Extra make_steps(const Cluster& cluster);
  void map_memory(const Cluster& cluster, const Extra& extra);
  std::unique_ptr<RunCompute> make_compute(const BoundCompute& bound, const Cluster& cluster);
  std::unique_ptr<RunExchange> make_exchange(const BoundExchange& bound, std::size_t channel_state);
  void run_action(std::size_t a, const FeedFunction& feed);
  void run_section(std::size_t section, Variant& variant, const FeedFunction& feed, int micro_batch);
  void run_exchange(RunExchange& exchange);
  void show(RunExchange& exchange, std::size_t round);
  void guard_outbox(RunSection& section);
  void select_copies(std::size_t section, int micro_batch);
  [[nodiscard]] bool finite(const RunCompute& compute) const;
  [[nodiscard]] bool paced() const { return options_.backend == Backend::kPaced; }
  void pace(double seconds);  // the device's clock goes on
  void settle_pace();         // waits until the device's clock is reached
  [[nodiscard]] std::byte* at(const Address& address) const {
    return base_[static_cast<std::size_t>(address.scope)] + address.offset;
  }

  const Program& program_;
  ExecutorOptions options_;
  Generation& generation_;
  int rank_;
  const std::vector<int>& rank_of_device_;
  Actions actions_;
  std::vector<std::size_t> section_of_action_;
  int in_flight_ = 1;
  std::vector<std::unique_ptr<Variant>> variants_;  // by distinct micro-batch size
  std::vector<std::size_t> variant_of_micro_batch_;
  std::vector<std::unique_ptr<ChannelState>> channels_;  // of each exchange instruction
  std::vector<std::vector<std::size_t>> channel_of_;     // [section][instruction]
  std::vector<std::uint64_t> section_runs_;
  std::array<std::byte*, kScopes> base_ = {};
  std::array<std::byte*, kScopes> first_copy_ = {};
  std::array<std::size_t, kScopes> bytes_ = {};
  std::byte* memory_ = nullptr;
  std::byte* workspace_ = nullptr;
  std::size_t memory_bytes_ = 0;
  std::vector<const void*> source_pointers_;       // of the pull that runs: the buffers, then where a run reads
  std::vector<const std::uint64_t*> peer_tables_;  // by rank, of the round that runs
  std::chrono::steady_clock::time_point paced_until_;
  bool tracing_ = false;
  std::optional<NonFinite> found_;
};

// The element of a leaf's initial value at a global index: the same under every layout.
[[nodiscard]] double initial_element(const Initializer& initializer, std::uint64_t seed, const std::string& name,
                                     std::uint64_t index);

}  // namespace hspmd
