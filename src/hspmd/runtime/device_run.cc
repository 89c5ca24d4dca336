#include "hspmd/runtime/device_run.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include "hspmd/base/errors.h"
#include "hspmd/base/hex.h"

namespace hspmd {
DeviceRun::DeviceRun(const Graph& graph, const Plan& plan, const std::vector<Device>& devices,
                     const RunOptions& options, const Cluster& cluster)
    : devices_(devices), precision_(options.precision) {
  number(devices);
  make_programs(graph, plan, devices, options.schedule);
  generation_ = std::make_unique<Generation>(static_cast<int>(devices.size()), programs_.front().channels,
                                             std::chrono::duration<double>(options.timeout_s));
  make_executors(options, cluster);
  for (const auto& executor : executors_) memory_bytes_.push_back(executor->memory_bytes());
}

DeviceRun::DeviceRun(const Graph& graph, const Plan& plan, const std::vector<Device>& devices,
                     const RunOptions& options, const Cluster& cluster, Rendezvous& rendezvous, const std::string& name)
    : devices_({devices.at(static_cast<std::size_t>(rendezvous.rank()))}),
      precision_(options.precision),
      rendezvous_(&rendezvous),
      name_(name) {
  check_internal(rendezvous.ranks() == static_cast<int>(devices.size()), "every device has a process");
  number(devices);
  make_programs(graph, plan, devices_, options.schedule);
  find_hosts(devices, options);
  generation_ = std::make_unique<Generation>(Place{rendezvous.rank(), host_of_rank_}, programs_.front().channels,
                                             std::chrono::duration<double>(options.timeout_s));
  if (!hosts_.empty()) connect_far(options);
  make_executors(options, cluster);
  meet();
}

void DeviceRun::find_hosts(const std::vector<Device>& devices, const RunOptions& options) {
  for (const std::string& host : rendezvous_->all_gather(name_ + "/host", std::to_string(this_host())))
    host_of_rank_.push_back(std::strtoull(host.c_str(), nullptr, 10));
  const bool one =
      std::adjacent_find(host_of_rank_.begin(), host_of_rank_.end(), std::not_equal_to<>()) == host_of_rank_.end();
  if (one) return;
  if (options.interface.empty())
    invalid(
        "[transport] ranks on several hosts must know the network interface that joins them: set "
        "transport.interface, or --interface of hspmd launch");
  hosts_.resize(rank_of_device_.size());
  for (std::size_t r = 0; r < devices.size(); ++r) hosts_[static_cast<std::size_t>(devices[r])] = host_of_rank_[r];
}

void DeviceRun::connect_far(const RunOptions& options) {
  const int me = rendezvous_->rank();
  messages_ =
      std::make_unique<Messages>(MessagesOptions{options.interface, options.transports, me, rendezvous_->ranks()});
  const std::vector<std::string> addresses = rendezvous_->all_gather(name_ + "/address", to_hex(messages_->address()));
  for (int rank = 0; rank < rendezvous_->ranks(); ++rank) {
    if (!generation_->near(rank)) messages_->connect(rank, from_hex(addresses[static_cast<std::size_t>(rank)]));
  }
}

DeviceRun::~DeviceRun() {
  if (rendezvous_ == nullptr) return;
  if (messages_ && !generation_->aborted()) {
    // What was sent last is still on its way; nobody closes before all have it.
    try {
      (void)rendezvous_->all_gather(name_ + "/leave", "");
    } catch (const Error&) {  // somebody failed: then nothing more is to arrive
    }
  }
  if (subscription_) rendezvous_->forget(*subscription_);
}

void DeviceRun::number(const std::vector<Device>& devices) {
  rank_of_device_.assign(static_cast<std::size_t>(*std::max_element(devices.begin(), devices.end())) + 1, -1);
  for (std::size_t r = 0; r < devices.size(); ++r)
    rank_of_device_[static_cast<std::size_t>(devices[r])] = static_cast<int>(r);
}

void DeviceRun::make_programs(const Graph& graph, const Plan& plan, const std::vector<Device>& here,
                              ScheduleKind schedule) {
  for (const Device device : here) programs_.push_back(specialize(graph, plan, device, schedule));
}

void DeviceRun::make_executors(const RunOptions& options, const Cluster& cluster) {
  if (options.backend == Backend::kAten) limit_kernel_threads(1);
  for (const Program& program : programs_) {
    ExecutorOptions own;
    own.precision = options.precision;
    own.backend = options.backend;
    own.micro_batch_sizes = options.micro_batch_sizes.at(static_cast<std::size_t>(program.pipeline));
    own.sequence_length = options.sequence_length;
    own.schedule = options.schedule;
    own.seed = options.seed;
    own.hosts = hosts_;
    const int rank = rank_of_device_[static_cast<std::size_t>(program.device)];
    executors_.push_back(
        std::make_unique<Executor>(program, own, *generation_, rank, rank_of_device_, cluster, messages_.get()));
  }
}

void DeviceRun::meet() {
  generation_->meet(rendezvous_->all_gather(name_ + "/segment", generation_->introduction()));
  for (const std::string& bytes :
       rendezvous_->all_gather(name_ + "/memory", std::to_string(executors_.front()->memory_bytes())))
    memory_bytes_.push_back(std::strtoull(bytes.c_str(), nullptr, 10));
  subscription_ = rendezvous_->on_abort([this](const std::string& reason) { generation_->abort(reason); });
}

void DeviceRun::fail(const std::string& reason) {
  generation_->abort(reason);
  if (rendezvous_ != nullptr) rendezvous_->abort(reason);
}

void DeviceRun::on_all(const std::function<void(std::size_t)>& work) {
  std::exception_ptr first;
  std::mutex lock;
  const auto guarded = [&](std::size_t r) {
    try {
      work(r);
    } catch (const std::exception& error) {
      const std::lock_guard guard(lock);
      if (!first) first = std::current_exception();
      fail(error.what());
    }
  };
  if (executors_.size() == 1) {
    guarded(0);
  } else {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < executors_.size(); ++r) threads.emplace_back(guarded, r);
    for (std::thread& thread : threads) thread.join();
  }
  if (first) std::rethrow_exception(first);
}

void DeviceRun::initialise() {
  on_all([&](std::size_t r) { executors_[r]->initialise(); });
}

void DeviceRun::step(const FeedFunction& feed) {
  on_all([&](std::size_t r) { executors_[r]->step(feed); });
  ++steps_;
}

void DeviceRun::trace(std::size_t events_a_device) {
  for (const auto& executor : executors_) executor->trace(events_a_device);
}

std::string DeviceRun::trace_text() {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < executors_.size(); ++r) {
    const int rank = rank_of_device_[static_cast<std::size_t>(devices_[r])];
    lines.push_back(executors_[r]->trace()->lines(rank, devices_[r], clock_offset_ns()));
  }
  return trace_file(rendezvous_ == nullptr ? lines : gather_long(lines.front()));
}

// On one host the steady clock is everybody's; between hosts the wall clock of each host's first rank serves.
std::int64_t DeviceRun::clock_offset_ns() {
  if (rendezvous_ == nullptr) return 0;
  const std::vector<std::string> offsets =
      rendezvous_->all_gather(name_ + "/clock", std::to_string(wall_clock_offset_ns()));
  const auto me = static_cast<std::size_t>(rendezvous_->rank());
  const auto first = std::find(host_of_rank_.begin(), host_of_rank_.end(), host_of_rank_[me]) - host_of_rank_.begin();
  return std::strtoll(offsets[static_cast<std::size_t>(first)].c_str(), nullptr, 10) -
         std::strtoll(offsets.front().c_str(), nullptr, 10);
}

// Everybody's text, in pieces that a rendezvous takes.
std::vector<std::string> DeviceRun::gather_long(const std::string& mine) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::size_t most = 0;
  for (const std::string& size : rendezvous_->all_gather(name_ + "/trace/size", std::to_string(mine.size())))
    most = std::max<std::size_t>(most, std::strtoull(size.c_str(), nullptr, 10));
  std::vector<std::string> all(static_cast<std::size_t>(rendezvous_->ranks()));
  for (std::size_t begin = 0; begin < most; begin += kPiece) {
    const std::string piece = begin < mine.size() ? mine.substr(begin, kPiece) : "";
    const std::vector<std::string> pieces =
        rendezvous_->all_gather(fmt::format("{}/trace/{}", name_, begin / kPiece), piece);
    for (std::size_t r = 0; r < all.size(); ++r) all[r] += pieces[r];
  }
  return all;
}

TrainState DeviceRun::state() {
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

double DeviceRun::output(const std::string& name) const {
  for (const auto& executor : executors_) {
    if (executor->has_output(name)) return executor->output(name);
  }
  throw InternalError("[run] an output that is read is one of the graph");
}

std::string DeviceRun::find_non_finite(const FeedFunction& feed) {
  std::vector<std::optional<NonFinite>> found(executors_.size());
  on_all([&](std::size_t r) { found[r] = executors_[r]->find_non_finite(feed); });
  // "stage micro-batch device value" of each device that found one; the least stage, then micro-batch, was first.
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < found.size(); ++r) {
    if (found[r])
      lines.push_back(fmt::format("{:08} {:08} {} {}", found[r]->virtual_stage, found[r]->micro_batch, devices_[r],
                                  found[r]->value));
  }
  if (rendezvous_ != nullptr) {
    lines = rendezvous_->all_gather(name_ + "/not_finite", lines.empty() ? "" : lines.front());
    std::erase(lines, "");
  }
  if (lines.empty()) return "all forward values are finite; it appeared in the backward pass";
  std::istringstream words(*std::min_element(lines.begin(), lines.end()));
  int stage = 0;
  int micro_batch = 0;
  Device device = 0;
  std::string value;
  words >> stage >> micro_batch >> device >> value;
  return fmt::format("it appeared first in {} on device {}, stage {}, micro-batch {}", value, device, stage,
                     micro_batch);
}

}  // namespace hspmd
