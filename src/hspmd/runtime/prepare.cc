#include "hspmd/runtime/prepare.h"

#include <algorithm>
#include <map>

#include "hspmd/base/errors.h"
#include "hspmd/cost/roofline.h"

namespace hspmd {
namespace {

std::unique_ptr<Kernel> make_backend_kernel(Backend backend, Precision precision, const BoundCompute& bound) {
  const KernelRequest request{bound.step->op,      &bound.step->attributes,
                              bound.operand_boxes, bound.result_boxes,
                              precision,           bound.step->adds ? Write::kAdd : Write::kSet};
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

class Preparer {
 public:
  Preparer(const Program& program, const ExecutorOptions& options, const Exchanger& exchanger, const Cluster& cluster)
      : program_(program), options_(options), exchanger_(exchanger), cluster_(cluster) {}

  Prepared run() {
    made_.actions = actions_of(program_, options_.schedule, options_.micro_batch_sizes.size());
    for (const Action& action : made_.actions) made_.section_of_action.push_back(section_of(program_, action));
    made_.in_flight = std::max(1, max_in_flight(made_.actions));
    bind_sizes();
    number_channels();
    for (const auto& variant : made_.variants) make_sections(*variant);
    lay_out();
    find_early_starts();
    return std::move(made_);
  }

 private:
  // One variant for each distinct micro-batch size.
  void bind_sizes() {
    for (const std::int64_t size : options_.micro_batch_sizes) {
      std::size_t v = 0;
      while (v < made_.variants.size() && made_.variants[v]->micro_batch_size != size) ++v;
      if (v == made_.variants.size()) made_.variants.push_back(bound_for(size));
      made_.variant_of_micro_batch.push_back(v);
    }
    if (made_.variants.empty()) made_.variants.push_back(bound_for(0));
  }

  std::unique_ptr<Variant> bound_for(std::int64_t size) {
    auto variant = std::make_unique<Variant>();
    variant->micro_batch_size = size;
    const BindRequest request{{{kBatch, size}, {kSequence, options_.sequence_length}},
                              element_bytes(options_.precision),
                              &cluster_,
                              options_.hosts.empty() ? nullptr : &options_.hosts};
    variant->bound = bind(program_, request);
    for (std::size_t s = 0; s < kScopes; ++s)
      made_.bytes[s] = std::max(made_.bytes[s], aligned(variant->bound.bytes[s]));
    return variant;
  }

  void number_channels() {
    for (const Section& section : program_.sections) {
      channel_of_.emplace_back();
      for (const Instruction& instruction : section.instructions) {
        channel_of_.back().push_back(made_.channels.size());
        if (std::holds_alternative<ExchangeStep>(instruction))
          made_.channels.push_back(std::make_unique<ChannelState>());
      }
    }
  }

  // Pre and Post do not depend on the micro-batch: the first variant's serve all.
  void make_sections(Variant& variant) {
    variant.sections.resize(program_.sections.size());
    for (std::size_t s = 0; s < program_.sections.size(); ++s) {
      if (!each_micro_batch(program_.sections[s].kind) && &variant != made_.variants.front().get()) continue;
      const auto& instructions = variant.bound.sections[s].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i)
        variant.sections[s].steps.push_back(make_step(instructions[i], channel_of_[s][i]));
    }
  }

  RunStep make_step(const BoundInstruction& instruction, std::size_t channel) {
    RunStep step;
    if (const auto* compute = std::get_if<BoundCompute>(&instruction)) {
      step.compute = make_compute(*compute);
      if (step.compute->kernel) workspace_ = std::max(workspace_, step.compute->kernel->workspace_bytes());
      return step;
    }
    step.exchange = std::make_unique<RunExchange>(
        exchanger_.prepare(std::get<BoundExchange>(instruction), *made_.channels[channel]));
    step.exchange->table = tables_;  // from 0 on, until the memory is laid out
    tables_ += table_bytes(*step.exchange->bound) + step.exchange->message_bytes;
    return step;
  }

  std::unique_ptr<RunCompute> make_compute(const BoundCompute& bound) {
    auto run = std::make_unique<RunCompute>();
    run->bound = &bound;
    run->operands.resize(bound.operands.size());
    run->results.resize(bound.results.size());
    if (options_.backend == Backend::kPaced) {
      run->seconds = modelled_seconds(bound);
      return run;
    }
    run->kernel = make_backend_kernel(options_.backend, options_.precision, bound);
    return run;
  }

  double modelled_seconds(const BoundCompute& bound) const {
    std::vector<Shape> operands, results;
    for (const Box& box : bound.operand_boxes) operands.push_back(extents(box));
    for (const Box& box : bound.result_boxes) results.push_back(extents(box));
    return roofline_seconds(bound.step->op->cost(bound.step->attributes, operands, results),
                            cluster_.type_of(program_.device), precision_name(options_.precision));
  }

  void lay_out() {
    made_.regions = lay_out_memory(program_, made_.bytes, made_.in_flight);
    const std::size_t tables = made_.regions.total + aligned(workspace_);
    made_.memory_bytes = device_bytes(made_.regions, workspace_, tables_);
    if (const auto why = why_too_large(cluster_, program_.device, made_.memory_bytes)) invalid("[memory] {}", *why);
    for (const auto& variant : made_.variants) {
      for (RunSection& section : variant->sections) {
        for (RunStep& step : section.steps) {
          if (step.exchange) step.exchange->table += tables;
        }
      }
    }
  }

  // When each sum over micro-batches is final: the last action and instruction that adds to it.
  struct Moment {
    std::size_t action = 0;
    std::size_t instruction = 0;
    auto operator<=>(const Moment&) const = default;
  };
  std::map<int, Moment> last_writes() const {
    std::map<int, Moment> last;
    for (std::size_t a = 0; a < made_.actions.size(); ++a) {
      const auto& instructions = program_.sections[made_.section_of_action[a]].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const auto* step = std::get_if<ComputeStep>(&instructions[i]);
        if (step == nullptr) continue;
        for (const int slot : step->results) last[slot] = {a, i};
      }
    }
    return last;
  }

  void find_early_starts() {
    const std::map<int, Moment> last = last_writes();
    for (RunStep& step : made_.variants.front()->sections.back().steps) {
      if (!step.exchange || !step.exchange->bound->can_start_early) continue;
      Moment ready;
      bool known = !made_.actions.empty();
      for (const Transfer& t : step.exchange->bound->step->transfers) {
        if (t.from_slot < 0) continue;
        const auto write = last.find(t.from_slot);
        known = known && write != last.end();
        if (known) ready = std::max(ready, write->second);
      }
      if (known) made_.early.push_back({ready.action, ready.instruction, step.exchange.get()});
    }
    std::stable_sort(made_.early.begin(), made_.early.end(), [](const EarlyStart& a, const EarlyStart& b) {
      return std::pair(a.action, a.instruction) < std::pair(b.action, b.instruction);
    });
  }

  const Program& program_;
  const ExecutorOptions& options_;
  const Exchanger& exchanger_;
  const Cluster& cluster_;
  Prepared made_;
  std::vector<std::vector<std::size_t>> channel_of_;  // [section][instruction]
  std::size_t workspace_ = 0;
  std::size_t tables_ = 0;
};

}  // namespace

std::size_t workspace_bytes(Backend backend, Precision precision, const BoundCompute& bound) {
  return backend == Backend::kPaced ? 0 : make_backend_kernel(backend, precision, bound)->workspace_bytes();
}

Prepared prepare(const Program& program, const ExecutorOptions& options, const Exchanger& exchanger,
                 const Cluster& cluster) {
  return Preparer(program, options, exchanger, cluster).run();
}

}  // namespace hspmd
