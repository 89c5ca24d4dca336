#include "hspmd/runtime/thread_run.h"

#include <algorithm>
#include <exception>

namespace hspmd {

ThreadRun::ThreadRun(const Graph& graph, const Plan& plan, const std::vector<Device>& devices,
                     const ThreadRunOptions& options, const Cluster& cluster)
    : devices_(devices), precision_(options.precision) {
  rank_of_device_.assign(static_cast<std::size_t>(*std::max_element(devices.begin(), devices.end())) + 1, -1);
  int channels = 0;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    programs_.push_back(specialize(graph, plan, devices[r], options.schedule));
    rank_of_device_[static_cast<std::size_t>(devices[r])] = static_cast<int>(r);
    channels = std::max(channels, programs_.back().channels);
  }
  generation_ = std::make_unique<Generation>(static_cast<int>(devices.size()), channels,
                                             std::chrono::duration<double>(options.timeout_s));
  if (options.backend == Backend::kAten) limit_kernel_threads(1);
  for (std::size_t r = 0; r < devices.size(); ++r) {
    ExecutorOptions own;
    own.precision = options.precision;
    own.backend = options.backend;
    own.micro_batch_sizes = options.micro_batch_sizes.at(static_cast<std::size_t>(programs_[r].pipeline));
    own.sequence_length = options.sequence_length;
    own.schedule = options.schedule;
    own.seed = options.seed;
    executors_.push_back(
        std::make_unique<Executor>(programs_[r], own, *generation_, static_cast<int>(r), rank_of_device_, cluster));
  }
}

void ThreadRun::on_all(const std::function<void(std::size_t)>& work, Generation& generation) {
  std::vector<std::exception_ptr> failures(executors_.size());
  std::exception_ptr first;
  std::mutex lock;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < executors_.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (const std::exception& error) {
        const std::lock_guard guard(lock);
        if (!first) first = std::current_exception();
        generation.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void ThreadRun::initialise() {
  on_all([&](std::size_t r) { executors_[r]->initialise(); }, *generation_);
}

void ThreadRun::step(const FeedFunction& feed) {
  on_all([&](std::size_t r) { executors_[r]->step(feed); }, *generation_);
  ++steps_;
}

TrainState ThreadRun::state() {
  TrainState state{steps_, element_bytes(precision_), {}};
  for (std::size_t r = 0; r < executors_.size(); ++r) {
    for (const Executor::LeafView& view : executors_[r]->leaves()) {
      if (view.leaf->kind == LeafKind::kConstant) continue;
      const auto known =
          state.tensors.try_emplace(view.leaf->name, StateTensor{view.leaf->name, *view.layout, view.shape, {}}).first;
      known->second.shards[devices_[r]] = {view.box, view.data};
    }
  }
  return state;
}

double ThreadRun::output(const std::string& name) const {
  for (const auto& executor : executors_) {
    if (executor->has_output(name)) return executor->output(name);
  }
  throw InternalError("[run] an output that is read is one of the graph");
}

std::string ThreadRun::find_non_finite(const FeedFunction& feed) {
  std::vector<std::optional<NonFinite>> found(executors_.size());
  on_all([&](std::size_t r) { found[r] = executors_[r]->find_non_finite(feed); }, *generation_);
  const NonFinite* first = nullptr;
  Device device = 0;
  for (std::size_t r = 0; r < found.size(); ++r) {
    if (!found[r]) continue;
    const auto key = [](const NonFinite& n) { return std::pair(n.virtual_stage, n.micro_batch); };
    if (first != nullptr && key(*first) <= key(*found[r])) continue;
    first = &*found[r];
    device = devices_[r];
  }
  if (first == nullptr) return "all forward values are finite; it appeared in the backward pass";
  return fmt::format("it appeared first in {} on device {}, stage {}, micro-batch {}", first->value, device,
                     first->virtual_stage, first->micro_batch);
}

std::vector<std::size_t> ThreadRun::memory_bytes() const {
  std::vector<std::size_t> bytes;
  for (const auto& executor : executors_) bytes.push_back(executor->memory_bytes());
  return bytes;
}

}  // namespace hspmd
