// Executor: runs one device's program on planned memory.
//
// Everything a step needs is prepared at construction (prepare.h): a step allocates no tensor storage, makes no string
// and searches no map. Sums of gradients start to travel as soon as the last micro-batch has added its part; between
// the instructions that follow, what has arrived is summed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hspmd/runtime/pace.h"
#include "hspmd/runtime/prepare.h"
#include "hspmd/runtime/trace.h"
#include "hspmd/runtime/transport/arena.h"

namespace hspmd {

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
  // program, generation and cluster must outlive it. The device's rank in the generation is given; its memory is made
  // there.
  // Throws InvalidArgument when the program needs more memory than the cluster gives the device.
  // `messages` only where some rank is of another host.
  Executor(const Program& program, const ExecutorOptions& options, Generation& generation, int rank,
           const std::vector<int>& rank_of_device, const Cluster& cluster, Messages* messages = nullptr);
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

  // Records from now on, at most so many events.
  void trace(std::size_t capacity);
  [[nodiscard]] const Trace* trace() const { return trace_.get(); }

  [[nodiscard]] std::size_t memory_bytes() const { return made_.memory_bytes; }

 private:
  static constexpr int kOnceAStep = -1;  // no micro-batch

  void run_action(std::size_t a, const FeedFunction& feed);
  void expect_messages(std::size_t a);
  void run_section(std::size_t section, Variant& variant, const FeedFunction& feed, int micro_batch);
  void run_compute(RunCompute& compute, std::size_t section, int micro_batch);
  void feed_micro_batch(const Variant& variant, const FeedFunction& feed, int micro_batch);
  void start_early(std::size_t instruction);
  void advance_early();
  void record_flight(const RunExchange& exchange);
  void guard_outbox(RunSection& section);
  void select_copies(std::size_t section, int micro_batch);
  [[nodiscard]] bool finite(const RunCompute& compute) const;
  [[nodiscard]] bool paced() const { return options_.backend == Backend::kPaced; }
  [[nodiscard]] std::byte* at(const Address& address) const {
    return base_[static_cast<std::size_t>(address.scope)] + address.offset;
  }

  const Program& program_;
  ExecutorOptions options_;
  Pace pace_;
  std::array<std::byte*, kScopes> base_ = {};        // where the scopes lie now
  std::array<std::byte*, kScopes> first_copy_ = {};  // the first copy of each
  Exchanger exchanger_;
  Prepared made_;
  std::byte* workspace_ = nullptr;
  std::vector<std::uint64_t> section_runs_;
  std::size_t action_ = 0;             // that runs
  std::size_t next_early_ = 0;         // of the step: the first that has not started
  std::vector<RunExchange*> started_;  // and not wholly read
  std::unique_ptr<Trace> trace_;       // null: not recorded
  bool seeking_ = false;               // what is not finite
  std::optional<NonFinite> found_;
};

// The element of a leaf's initial value at a global index: the same under every layout.
[[nodiscard]] double initial_element(const Initializer& initializer, std::uint64_t seed, const std::string& name,
                                     std::uint64_t index);

}  // namespace hspmd
