#include "hspmd/runtime/executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>

#include "hspmd/cost/roofline.h"

namespace hspmd {

struct Executor::RunCompute {
  const BoundCompute* bound = nullptr;
  std::unique_ptr<Kernel> kernel;
  std::vector<const void*> operands;
  std::vector<void*> results;
  double seconds = 0;  // paced: what it takes
};

// What an exchange instruction keeps from run to run, whatever the micro-batch size.
struct Executor::ChannelState {
  std::uint64_t times = 0;
  std::array<std::uint64_t, kRoundsPerChannel> expected = {};         // releases of my shows so far
  std::array<std::uint64_t, kRoundsPerChannel> expected_before = {};  // but for the last time
};

struct Executor::RunExchange {
  const BoundExchange* bound = nullptr;
  ChannelState* state = nullptr;
  int channel = 0;
  std::size_t table = 0;  // offset in my segment of [2 times][round][ordinal]
  std::string tensor;     // for messages, made once
  std::int64_t bytes = 0;
  double seconds = 0;  // paced: what it takes
  struct Round {
    std::vector<std::pair<int, Address>> shows;  // ordinal, buffer
    std::uint64_t readers = 0;                   // distinct ranks that read this round
    struct Reading {
      int ordinal = 0;
      StridedPull pull;
      Address mine;
      Address own_source;  // where my own part of a sum lies
      ElementType type = ElementType::kFp32;
      Reduction reduction = Reduction::kSum;
    };
    std::vector<Reading> readings;
    std::vector<int> peers;  // ranks read from
  };
  std::vector<Round> rounds;
};

struct Executor::RunSection {
  // One of the two is set.
  struct Step {
    std::unique_ptr<RunCompute> compute;
    std::unique_ptr<RunExchange> exchange;
  };
  std::vector<Step> steps;
};

struct Executor::Variant {
  std::int64_t micro_batch_size = 0;
  BoundProgram bound;
  std::vector<RunSection> sections;
};

namespace {

ElementType element_type(const BoundTransfer& t) {
  if (t.integers) return ElementType::kInt32;
  return t.element_bytes == 8 ? ElementType::kFp64 : ElementType::kFp32;
}

std::unique_ptr<Kernel> make_backend_kernel(Backend backend, const KernelRequest& request) {
  switch (backend) {
    case Backend::kAten:
      return make_aten_kernel(request);
    case Backend::kReference:
      return make_reference_kernel(request);
    case Backend::kPaced:
      break;
  }
  throw InternalError("[executor] the paced backend has no kernels");
}

}  // namespace

Executor::Executor(const Program& program, const ExecutorOptions& options, Generation& generation, int rank,
                   const std::vector<int>& rank_of_device, const Cluster& cluster)
    : program_(program), options_(options), generation_(generation), rank_(rank), rank_of_device_(rank_of_device) {
  actions_ = actions_of(program, options.schedule, options.micro_batch_sizes.size());
  for (const Action& action : actions_) section_of_action_.push_back(section_of(program, action));
  in_flight_ = std::max(1, max_in_flight(actions_));
  section_runs_.assign(program.sections.size(), 0);
  bind_sizes(cluster);
  const Extra extra = make_steps(cluster);
  map_memory(cluster, extra);
}

Executor::~Executor() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

// One variant for each distinct micro-batch size.
void Executor::bind_sizes(const Cluster& cluster) {
  const std::size_t float_bytes = element_bytes(options_.precision);
  const auto bound_for = [&](std::int64_t size) {
    auto variant = std::make_unique<Variant>();
    variant->micro_batch_size = size;
    BindRequest request{{{kBatch, size}, {kSequence, options_.sequence_length}}, float_bytes, &cluster};
    variant->bound = bind(program_, request);
    return variant;
  };
  for (const std::int64_t size : options_.micro_batch_sizes) {
    std::size_t v = 0;
    while (v < variants_.size() && variants_[v]->micro_batch_size != size) ++v;
    if (v == variants_.size()) variants_.push_back(bound_for(size));
    variant_of_micro_batch_.push_back(v);
  }
  if (variants_.empty()) variants_.push_back(bound_for(0));
}

// Kernels and exchanges of all variants; tables are placed from 0 on until the memory is mapped.
Executor::Extra Executor::make_steps(const Cluster& cluster) {
  for (const Section& section : program_.sections) {
    channel_of_.emplace_back();
    for (const Instruction& instruction : section.instructions) {
      channel_of_.back().push_back(channels_.size());
      if (std::holds_alternative<ExchangeStep>(instruction)) channels_.push_back(std::make_unique<ChannelState>());
    }
  }
  Extra extra;
  for (const auto& variant : variants_) {
    for (std::size_t s = 0; s < kScopes; ++s) bytes_[s] = std::max(bytes_[s], aligned(variant->bound.bytes[s]));
    variant->sections.resize(program_.sections.size());
    for (std::size_t s = 0; s < program_.sections.size(); ++s) {
      // Pre and Post do not depend on the micro-batch: the first variant's serve all.
      if (!each_micro_batch(program_.sections[s].kind) && variant != variants_.front()) continue;
      const auto& instructions = variant->bound.sections[s].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        RunSection::Step step;
        if (const auto* compute = std::get_if<BoundCompute>(&instructions[i])) {
          step.compute = make_compute(*compute, cluster);
          if (step.compute->kernel)
            extra.workspace = std::max(extra.workspace, step.compute->kernel->workspace_bytes());
        } else {
          step.exchange = make_exchange(std::get<BoundExchange>(instructions[i]), channel_of_[s][i]);
          step.exchange->table = extra.tables;
          extra.tables += aligned(2 * step.exchange->rounds.size() *
                                  static_cast<std::size_t>(step.exchange->bound->step->size) * sizeof(std::uint64_t));
        }
        variant->sections[s].steps.push_back(std::move(step));
      }
    }
  }
  return extra;
}

void Executor::map_memory(const Cluster& cluster, const Extra& extra) {
  const MemoryLayout layout = lay_out_memory(program_, bytes_, in_flight_);
  const std::size_t tables_begin = layout.total + aligned(extra.workspace);
  memory_bytes_ = std::max(tables_begin + aligned(extra.tables), kAlignment);
  if (const auto why = why_too_large(cluster, program_.device, memory_bytes_)) invalid("[memory] {}", *why);
  void* mapped = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw RuntimeFailure({rank_, "plan memory", std::nullopt, "", static_cast<long>(memory_bytes_)},
                         "the system has not that much memory");
  madvise(mapped, memory_bytes_, MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(mapped);
  for (std::size_t s = 0; s < kScopes; ++s) base_[s] = first_copy_[s] = memory_ + layout.begin[s];
  workspace_ = memory_ + layout.total;
  for (const auto& variant : variants_) {
    for (RunSection& section : variant->sections) {
      for (RunSection::Step& step : section.steps) {
        if (step.exchange) step.exchange->table += tables_begin;
      }
    }
  }
  peer_tables_.resize(static_cast<std::size_t>(generation_.ranks()));
  source_pointers_.resize(2 * static_cast<std::size_t>(generation_.ranks()));
  generation_.set_segment(rank_, memory_);
}

std::unique_ptr<Executor::RunCompute> Executor::make_compute(const BoundCompute& bound, const Cluster& cluster) {
  auto run = std::make_unique<RunCompute>();
  run->bound = &bound;
  run->operands.resize(bound.operands.size());
  run->results.resize(bound.results.size());
  if (paced()) {
    std::vector<Shape> operands, results;
    for (const Box& box : bound.operand_boxes) operands.push_back(extents(box));
    for (const Box& box : bound.result_boxes) results.push_back(extents(box));
    const char* precision = options_.precision == Precision::kFp64 ? "fp64" : "fp32";
    run->seconds = roofline_seconds(bound.step->op->cost(bound.step->attributes, operands, results),
                                    cluster.type_of(program_.device), precision);
    return run;
  }
  KernelRequest request{bound.step->op,     &bound.step->attributes, bound.operand_boxes,
                        bound.result_boxes, options_.precision,      bound.step->adds ? Write::kAdd : Write::kSet};
  run->kernel = make_backend_kernel(options_.backend, request);
  return run;
}

std::unique_ptr<Executor::RunExchange> Executor::make_exchange(const BoundExchange& bound, std::size_t channel_state) {
  auto run = std::make_unique<RunExchange>();
  run->bound = &bound;
  run->state = channels_[channel_state].get();
  run->channel = bound.step->channel;
  run->tensor = bound.step->transfers.front().name;
  run->rounds.resize(bound.rounds);
  check_internal(bound.rounds <= kRoundsPerChannel, "an exchange has at most 8 rounds");
  for (std::size_t r = 0; r < bound.rounds; ++r) {
    RunExchange::Round& round = run->rounds[r];
    std::set<int> readers;
    std::set<int> peers;
    for (const BoundTransfer& t : bound.transfers) {
      if (r >= t.exchange.rounds.size()) continue;
      const Round& local = t.exchange.rounds[r];
      if (r == 0) {
        run->bytes += t.bytes;
        run->seconds = std::max(run->seconds, t.seconds);
      }
      for (const Device d : local.readers) readers.insert(rank_of_device_[static_cast<std::size_t>(d)]);
      if (local.shows >= 0)
        round.shows.emplace_back(t.transfer->ordinal, t.states[static_cast<std::size_t>(local.shows)]);
      for (const Pull& pull : local.pulls) {
        // In the second half of an all-reduce the buffer read is the one filled: state `fills` of the peer.
        const bool second = r % 2 == 1;
        const auto source_state = static_cast<std::size_t>(second ? local.fills : local.fills - 1);
        RunExchange::Round::Reading reading{
            t.transfer->ordinal,    make_strided(pull), t.states[static_cast<std::size_t>(local.fills)],
            t.states[source_state], element_type(t),    t.exchange.reduction};
        for (const Device d : reading.pull.devices) {
          if (d != program_.device) peers.insert(rank_of_device_[static_cast<std::size_t>(d)]);
        }
        round.readings.push_back(std::move(reading));
      }
    }
    round.readers = readers.size();
    round.peers.assign(peers.begin(), peers.end());
  }
  return run;
}

void Executor::initialise() {
  if (paced()) return;  // no arithmetic, no values
  for (const LeafView& view : leaves()) {
    const std::int64_t n = volume(view.box);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto index = static_cast<std::uint64_t>(global_index(view.box, i, view.shape));
      const bool constant = view.leaf->kind == LeafKind::kConstant;
      const double value =
          constant ? view.leaf->constant : initial_element(view.leaf->initial, options_.seed, view.leaf->name, index);
      if (options_.precision == Precision::kFp64) {
        static_cast<double*>(view.data)[i] = value;
      } else {
        static_cast<float*>(view.data)[i] = static_cast<float>(value);
      }
    }
  }
}

std::vector<Executor::LeafView> Executor::leaves() {
  std::vector<LeafView> views;
  const BoundProgram& bound = variants_.front()->bound;
  for (const LeafSlot& leaf : program_.leaves) {
    const auto slot = static_cast<std::size_t>(leaf.slot);
    views.push_back({&leaf, &program_.layouts[static_cast<std::size_t>(program_.slots[slot].layout)],
                     concrete(program_.slots[slot].type.shape, Bindings{}), bound.boxes[slot], at(bound.slots[slot])});
  }
  return views;
}

bool Executor::has_output(const std::string& name) const {
  return std::any_of(program_.outputs.begin(), program_.outputs.end(), [&](const auto& o) { return o.first == name; });
}

double Executor::output(const std::string& name) const {
  for (const auto& [known, slot] : program_.outputs) {
    if (known != name) continue;
    const std::byte* data = at(variants_.front()->bound.slots[static_cast<std::size_t>(slot)]);
    return options_.precision == Precision::kFp64 ? *reinterpret_cast<const double*>(data)
                                                  : static_cast<double>(*reinterpret_cast<const float*>(data));
  }
  throw InternalError("[executor] an output that is read is one of the program");
}

void Executor::step(const FeedFunction& feed) {
  const BoundProgram& bound = variants_.front()->bound;
  for (std::size_t i = 0; i < program_.slots.size(); ++i) {
    if (!program_.slots[i].accumulates || paced()) continue;
    std::memset(at(bound.slots[i]), 0,
                static_cast<std::size_t>(volume(bound.boxes[i])) * element_bytes(options_.precision));
  }
  for (const Feed& f : program_.feeds) {
    if (f.time != Time::kStep || paced()) continue;
    const auto slot = static_cast<std::size_t>(f.slot);
    feed({&f, program_.pipeline, -1, &bound.boxes[slot], at(bound.slots[slot])});
  }
  run_section(0, *variants_.front(), feed, -1);
  for (std::size_t a = 0; a < actions_.size(); ++a) run_action(a, feed);
  run_section(program_.sections.size() - 1, *variants_.front(), feed, -1);
}

void Executor::run_action(std::size_t a, const FeedFunction& feed) {
  const int micro_batch = actions_[a].micro_batch;
  Variant& variant = *variants_[variant_of_micro_batch_[static_cast<std::size_t>(micro_batch)]];
  run_section(section_of_action_[a], variant, feed, micro_batch);
}

void Executor::select_copies(std::size_t section, int micro_batch) {
  if (micro_batch < 0) return;
  const auto stash = static_cast<std::size_t>(Scope::kStash);
  const auto outbox = static_cast<std::size_t>(Scope::kOutbox);
  base_[stash] = first_copy_[stash] + static_cast<std::size_t>(micro_batch % in_flight_) * bytes_[stash];
  // Copies of its own for each section: the sizes of two micro-batches place their messages differently.
  base_[outbox] = first_copy_[outbox] + (2 * (section - 1) + section_runs_[section] % 2) * bytes_[outbox];
}

void Executor::run_section(std::size_t index, Variant& variant, const FeedFunction& feed, int micro_batch) {
  RunSection& section = variant.sections[index];
  select_copies(index, micro_batch);
  guard_outbox(section);
  if (micro_batch >= 0 && program_.sections[index].kind == SectionKind::kForward && !paced()) {
    for (const Feed& f : program_.feeds) {
      if (f.time != Time::kMicroBatch) continue;
      const auto slot = static_cast<std::size_t>(f.slot);
      feed({&f, program_.pipeline, micro_batch, &variant.bound.boxes[slot], at(variant.bound.slots[slot])});
    }
  }
  for (RunSection::Step& step : section.steps) {
    if (step.exchange) {
      run_exchange(*step.exchange);
      continue;
    }
    RunCompute& compute = *step.compute;
    if (paced()) {
      pace(compute.seconds);
      continue;
    }
    for (std::size_t i = 0; i < compute.operands.size(); ++i) compute.operands[i] = at(compute.bound->operands[i]);
    for (std::size_t i = 0; i < compute.results.size(); ++i) compute.results[i] = at(compute.bound->results[i]);
    compute.kernel->run(compute.operands, compute.results, workspace_);
    if (tracing_ && !found_ && !finite(compute)) {
      found_ =
          NonFinite{micro_batch, program_.sections[index].virtual_stage,
                    fmt::format("{}#{}", compute.bound->step->op->name(), hspmd::index(compute.bound->step->value))};
    }
  }
  ++section_runs_[index];
}

// Before a section overwrites what it sent the time before last, that must have been read.
void Executor::guard_outbox(RunSection& section) {
  for (RunSection::Step& step : section.steps) {
    if (!step.exchange || step.exchange->bound->step->crossing != Crossing::kSends) continue;
    RunExchange& exchange = *step.exchange;
    for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
      const std::uint64_t before = exchange.state->expected_before[r];
      if (before > 0)
        generation_.wait_released(
            exchange.channel, static_cast<int>(r), before,
            {rank_, "wait for readers of what was sent", exchange.tensor.c_str(), exchange.bytes});
    }
  }
}

void Executor::show(RunExchange& exchange, std::size_t r) {
  RunExchange::Round& round = exchange.rounds[r];
  exchange.state->expected_before[r] = exchange.state->expected[r];
  if (round.readers == 0) return;
  const std::size_t size = static_cast<std::size_t>(exchange.bound->step->size);
  const std::size_t offset =
      exchange.table + ((exchange.state->times % 2) * exchange.rounds.size() + r) * size * sizeof(std::uint64_t);
  auto* table = reinterpret_cast<std::uint64_t*>(memory_ + offset);
  for (const auto& [ordinal, address] : round.shows) table[ordinal] = static_cast<std::uint64_t>(at(address) - memory_);
  exchange.state->expected[r] += round.readers;
  generation_.post(rank_, exchange.channel, static_cast<int>(r), exchange.state->times + 1, offset);
}

void Executor::run_exchange(RunExchange& exchange) {
  const WaitSite site{rank_, "exchange", exchange.tensor.c_str(), exchange.bytes};
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    RunExchange::Round& round = exchange.rounds[r];
    settle_pace();
    show(exchange, r);
    for (const int peer : round.peers) {
      peer_tables_[static_cast<std::size_t>(peer)] =
          generation_.acquire(peer, exchange.channel, static_cast<int>(r), exchange.state->times + 1, site);
    }
    if (paced() && !round.peers.empty()) {
      pace(exchange.seconds / static_cast<double>(exchange.rounds.size()));
      settle_pace();
    }
    for (RunExchange::Round::Reading& reading : round.readings) {
      if (paced()) break;
      for (std::size_t s = 0; s < reading.pull.devices.size(); ++s) {
        const Device device = reading.pull.devices[s];
        const int peer = rank_of_device_[static_cast<std::size_t>(device)];
        const bool own = device == program_.device;
        source_pointers_[s] =
            own ? at(reading.own_source)
                : generation_.segment(peer) + peer_tables_[static_cast<std::size_t>(peer)][reading.ordinal];
      }
      run_strided(reading.pull, reading.type, reading.reduction, at(reading.mine),
                  {source_pointers_.data(), source_pointers_.data() + reading.pull.devices.size()});
    }
    for (const int peer : round.peers) generation_.release(peer, exchange.channel, static_cast<int>(r));
  }
  ++exchange.state->times;
  if (exchange.bound->step->crossing != Crossing::kWithin) return;
  for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
    if (exchange.rounds[r].readers > 0)
      generation_.wait_released(exchange.channel, static_cast<int>(r), exchange.state->expected[r], site);
  }
}

void Executor::pace(double seconds) {
  const auto now = std::chrono::steady_clock::now();
  paced_until_ = std::max(paced_until_, now) + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  constexpr auto kWorthASleep = std::chrono::microseconds(200);
  if (paced_until_ - now > kWorthASleep) std::this_thread::sleep_until(paced_until_);
}

void Executor::settle_pace() {
  if (paced()) std::this_thread::sleep_until(paced_until_);
}

bool Executor::finite(const RunCompute& compute) const {
  for (std::size_t i = 0; i < compute.results.size(); ++i) {
    const std::int64_t n = volume(compute.bound->result_boxes[i]);
    for (std::int64_t e = 0; e < n; ++e) {
      const double value = options_.precision == Precision::kFp64
                               ? static_cast<const double*>(compute.results[i])[e]
                               : static_cast<double>(static_cast<const float*>(compute.results[i])[e]);
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

std::optional<NonFinite> Executor::find_non_finite(const FeedFunction& feed) {
  tracing_ = true;
  found_.reset();
  run_section(0, *variants_.front(), feed, -1);
  for (std::size_t a = 0; a < actions_.size(); ++a) {
    if (actions_[a].kind == ActionKind::kForward) run_action(a, feed);
  }
  tracing_ = false;
  return found_;
}

}  // namespace hspmd
