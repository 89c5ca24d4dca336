#include "hspmd/runtime/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hspmd/base/errors.h"

namespace hspmd {

Executor::Executor(const Program& program, const ExecutorOptions& options, Generation& generation, int rank,
                   const std::vector<int>& rank_of_device, const Cluster& cluster, Messages* messages)
    : program_(program),
      options_(options),
      exchanger_(generation, {program.device, rank, &rank_of_device}, base_, paced() ? &pace_ : nullptr, messages),
      made_(prepare(program, options_, exchanger_, cluster)),
      section_runs_(program.sections.size(), 0) {
  std::byte* memory = generation.make_segment(rank, made_.memory_bytes);
  for (std::size_t s = 0; s < kScopes; ++s) base_[s] = first_copy_[s] = memory + made_.regions.begin[s];
  workspace_ = memory + made_.regions.total;
  started_.reserve(made_.early.size());
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
  const BoundProgram& bound = made_.variants.front()->bound;
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
    const std::byte* data = at(made_.variants.front()->bound.slots[static_cast<std::size_t>(slot)]);
    return options_.precision == Precision::kFp64 ? *reinterpret_cast<const double*>(data)
                                                  : static_cast<double>(*reinterpret_cast<const float*>(data));
  }
  throw InternalError("[executor] an output that is read is one of the program");
}

void Executor::step(const FeedFunction& feed) {
  Variant& first = *made_.variants.front();
  for (std::size_t i = 0; i < program_.slots.size(); ++i) {
    if (!program_.slots[i].accumulates || paced()) continue;
    std::memset(at(first.bound.slots[i]), 0,
                static_cast<std::size_t>(volume(first.bound.boxes[i])) * element_bytes(options_.precision));
  }
  for (const Feed& f : program_.feeds) {
    if (f.time != Time::kStep || paced()) continue;
    const auto slot = static_cast<std::size_t>(f.slot);
    feed({&f, program_.pipeline, -1, &first.bound.boxes[slot], at(first.bound.slots[slot])});
  }
  next_early_ = 0;
  started_.clear();
  run_section(0, first, feed, kOnceAStep);
  for (std::size_t a = 0; a < made_.actions.size(); ++a) run_action(a, feed);
  run_section(program_.sections.size() - 1, first, feed, kOnceAStep);
}

void Executor::run_action(std::size_t a, const FeedFunction& feed) {
  const int micro_batch = made_.actions[a].micro_batch;
  action_ = a;
  expect_messages(a);
  if (a + 1 < made_.actions.size()) expect_messages(a + 1);
  run_section(made_.section_of_action[a],
              *made_.variants[made_.variant_of_micro_batch[static_cast<std::size_t>(micro_batch)]], feed, micro_batch);
}

// Of an action: its messages may come while the one before it computes.
void Executor::expect_messages(std::size_t a) {
  const auto micro_batch = static_cast<std::size_t>(made_.actions[a].micro_batch);
  Variant& variant = *made_.variants[made_.variant_of_micro_batch[micro_batch]];
  for (RunStep& step : variant.sections[made_.section_of_action[a]].steps) {
    if (step.exchange) exchanger_.expect(*step.exchange);
  }
}

void Executor::select_copies(std::size_t section, int micro_batch) {
  if (micro_batch < 0) return;
  const auto stash = static_cast<std::size_t>(Scope::kStash);
  const auto outbox = static_cast<std::size_t>(Scope::kOutbox);
  base_[stash] = first_copy_[stash] + static_cast<std::size_t>(micro_batch % made_.in_flight) * made_.bytes[stash];
  // Copies of its own for each section: the sizes of two micro-batches place their messages differently.
  base_[outbox] = first_copy_[outbox] + (2 * (section - 1) + section_runs_[section] % 2) * made_.bytes[outbox];
}

void Executor::run_section(std::size_t index, Variant& variant, const FeedFunction& feed, int micro_batch) {
  RunSection& section = variant.sections[index];
  select_copies(index, micro_batch);
  guard_outbox(section);
  if (program_.sections[index].kind == SectionKind::kForward) feed_micro_batch(variant, feed, micro_batch);
  for (std::size_t i = 0; i < section.steps.size(); ++i) {
    RunStep& step = section.steps[i];
    const std::int64_t begin = trace_ ? Trace::now() : 0;
    if (step.exchange) {
      const bool flying = std::erase(started_, step.exchange.get()) > 0;
      exchanger_.finish(*step.exchange);
      if (flying) record_flight(*step.exchange);
    } else {
      run_compute(*step.compute, index, micro_batch);
    }
    if (trace_) {
      const std::uint32_t name = step.exchange ? step.exchange->trace_name : step.compute->trace_name;
      const TraceKind kind = step.exchange ? TraceKind::kExchange : TraceKind::kCompute;
      trace_->add({begin, Trace::now(), name, kind, static_cast<std::int16_t>(micro_batch)});
    }
    if (micro_batch >= 0) start_early(i);
    exchanger_.progress();
    advance_early();
  }
  ++section_runs_[index];
}

void Executor::run_compute(RunCompute& compute, std::size_t section, int micro_batch) {
  if (paced()) {
    pace_.pass(compute.seconds);
    return;
  }
  for (std::size_t i = 0; i < compute.operands.size(); ++i) compute.operands[i] = at(compute.bound->operands[i]);
  for (std::size_t i = 0; i < compute.results.size(); ++i) compute.results[i] = at(compute.bound->results[i]);
  compute.kernel->run(compute.operands, compute.results, workspace_);
  if (seeking_ && !found_ && !finite(compute)) {
    found_ = NonFinite{micro_batch, program_.sections[section].virtual_stage,
                       fmt::format("{}#{}", compute.bound->step->op->name(), hspmd::index(compute.bound->step->value))};
  }
}

void Executor::feed_micro_batch(const Variant& variant, const FeedFunction& feed, int micro_batch) {
  for (const Feed& f : program_.feeds) {
    if (f.time != Time::kMicroBatch || paced()) continue;
    const auto slot = static_cast<std::size_t>(f.slot);
    feed({&f, program_.pipeline, micro_batch, &variant.bound.boxes[slot], at(variant.bound.slots[slot])});
  }
}

void Executor::start_early(std::size_t instruction) {
  while (next_early_ < made_.early.size()) {
    const EarlyStart& next = made_.early[next_early_];
    if (std::pair(next.action, next.instruction) > std::pair(action_, instruction) || seeking_) return;
    if (trace_) next.exchange->started_ns = Trace::now();
    exchanger_.start(*next.exchange);
    started_.push_back(next.exchange);
    ++next_early_;
  }
}

void Executor::advance_early() {
  std::erase_if(started_, [&](RunExchange* exchange) {
    const bool read = exchanger_.advance(*exchange);
    if (read) record_flight(*exchange);
    return read;
  });
}

void Executor::record_flight(const RunExchange& exchange) {
  if (trace_) trace_->add({exchange.started_ns, Trace::now(), exchange.trace_name, TraceKind::kFlight});
}

void Executor::trace(std::size_t capacity) {
  static constexpr const char* kVerbs[] = {"exchange", "send", "receive"};
  trace_ = std::make_unique<Trace>(capacity);
  for (const auto& variant : made_.variants) {
    for (RunSection& section : variant->sections) {
      for (RunStep& step : section.steps) {
        if (step.compute) {
          step.compute->trace_name = trace_->number(std::string(step.compute->bound->step->op->name()));
        } else {
          const auto crossing = static_cast<std::size_t>(step.exchange->bound->step->crossing);
          step.exchange->trace_name = trace_->number(fmt::format("{} {}", kVerbs[crossing], step.exchange->tensor));
        }
      }
    }
  }
}

void Executor::guard_outbox(RunSection& section) {
  for (RunStep& step : section.steps) {
    if (step.exchange) exchanger_.guard(*step.exchange);
  }
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
  seeking_ = true;
  found_.reset();
  run_section(0, *made_.variants.front(), feed, kOnceAStep);
  for (std::size_t a = 0; a < made_.actions.size(); ++a) {
    if (made_.actions[a].kind == ActionKind::kForward) run_action(a, feed);
  }
  seeking_ = false;
  return found_;
}

}  // namespace hspmd
