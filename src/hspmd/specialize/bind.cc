#include "hspmd/specialize/bind.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "hspmd/specialize/fuse_sums.h"

namespace hspmd {
namespace {

// Offsets for buffers with overlapping lifetimes: the lowest gap that fits.
class Packer {
 public:
  std::size_t place(std::size_t bytes) {
    bytes = std::max(aligned(bytes), kAlignment);
    std::size_t offset = 0;
    for (const auto& [begin, end] : used_) {
      if (begin >= offset + bytes) break;
      offset = std::max(offset, end);
    }
    used_[offset] = offset + bytes;
    peak_ = std::max(peak_, offset + bytes);
    return offset;
  }
  void free(std::size_t offset) { used_.erase(offset); }
  [[nodiscard]] std::size_t peak() const { return peak_; }

 private:
  std::map<std::size_t, std::size_t> used_;  // begin -> end
  std::size_t peak_ = 0;
};

class Binder {
 public:
  Binder(const Program& program, const BindRequest& request) : program_(program), request_(request) {}

  BoundProgram run() {
    measure_slots();
    count_uses();
    for (const Section& section : program_.sections) {
      bound_.sections.push_back({section.kind, section.virtual_stage, {}});
      bind_section(section, bound_.sections.back());
    }
    return std::move(bound_);
  }

 private:
  [[nodiscard]] std::size_t element_bytes(const TensorType& type) const {
    return type.dtype == DType::kInt32 ? 4 : request_.float_bytes;
  }
  [[nodiscard]] std::size_t& region(Scope scope) { return bound_.bytes[static_cast<std::size_t>(scope)]; }
  [[nodiscard]] std::size_t bytes_of(int slot) const {
    return static_cast<std::size_t>(volume(bound_.boxes[static_cast<std::size_t>(slot)])) *
           element_bytes(program_.slots[static_cast<std::size_t>(slot)].type);
  }

  void measure_slots() {
    for (const Slot& slot : program_.slots) {
      const Shape shape = concrete(slot.type.shape, request_.sizes);
      const auto shard = owned(program_.layouts[static_cast<std::size_t>(slot.layout)], program_.device, shape);
      check_internal(shard.has_value(), "a slot's layout holds its device");
      bound_.boxes.push_back(shard->box);
      bound_.slots.push_back({slot.scope, 0});
    }
    for (std::size_t i = 0; i < program_.slots.size(); ++i) {
      const Scope scope = program_.slots[i].scope;
      if (scope != Scope::kSection) bound_.slots[i].offset = append(scope, bytes_of(static_cast<int>(i)));
    }
  }

  void count_uses() {
    uses_.assign(program_.slots.size(), 0);
    for (const Section& section : program_.sections) {
      for (const Instruction& instruction : section.instructions) {
        const auto* step = std::get_if<ComputeStep>(&instruction);
        for_each_slot(instruction, [&](int slot) {
          const bool adds = step != nullptr && std::count(step->results.begin(), step->results.end(), slot) > 0;
          if (slot >= 0 && !adds) ++uses_[static_cast<std::size_t>(slot)];
        });
      }
    }
    for (const auto& [name, slot] : program_.outputs) ++uses_[static_cast<std::size_t>(slot)];
  }

  std::size_t append(Scope scope, std::size_t bytes) {
    const std::size_t offset = region(scope);
    region(scope) += std::max(aligned(bytes), kAlignment);
    return offset;
  }

  void bind_section(const Section& section, BoundSection& bound) {
    std::map<int, std::size_t> last_use;
    for (std::size_t i = 0; i < section.instructions.size(); ++i) {
      for_each_slot(section.instructions[i], [&](int slot) {
        if (slot >= 0 && in_section(slot)) last_use[slot] = i;
      });
    }
    Packer packer;
    std::map<int, std::size_t> live;  // slot -> offset
    // Fed slots live from the start.
    for (const Feed& feed : program_.feeds) {
      if (last_use.contains(feed.slot)) place(feed.slot, packer, live);
    }
    for (std::size_t i = 0; i < section.instructions.size(); ++i) {
      const Instruction& instruction = section.instructions[i];
      std::vector<std::size_t> scratch;
      if (const auto* step = std::get_if<ComputeStep>(&instruction)) {
        place_results(*step, i, last_use, packer, live);
        bound.instructions.emplace_back(bind_compute(*step));
      } else {
        const auto& exchange = std::get<ExchangeStep>(instruction);
        BoundExchange made = bind_exchange(exchange);
        if (section.kind == SectionKind::kPost) settle_sums(made);
        for (const Transfer& t : exchange.transfers) {
          if (t.to_slot >= 0 && in_section(t.to_slot) && !live.contains(t.to_slot)) place(t.to_slot, packer, live);
        }
        place_states(made, packer, scratch);
        bound.instructions.emplace_back(std::move(made));
      }
      for (const std::size_t offset : scratch) packer.free(offset);
      for (auto it = live.begin(); it != live.end();) {
        const auto use = last_use.find(it->first);
        const bool dead = use == last_use.end() || use->second <= i;
        if (dead) packer.free(it->second);
        it = dead ? live.erase(it) : std::next(it);
      }
    }
    region(Scope::kSection) = std::max(region(Scope::kSection), packer.peak());
  }

  [[nodiscard]] bool in_section(int slot) const {
    return bound_.slots[static_cast<std::size_t>(slot)].scope == Scope::kSection;
  }

  void place(int slot, Packer& packer, std::map<int, std::size_t>& live) {
    const std::size_t offset = packer.place(bytes_of(slot));
    bound_.slots[static_cast<std::size_t>(slot)].offset = offset;
    live[slot] = offset;
  }

  void place_results(const ComputeStep& step, std::size_t i, const std::map<int, std::size_t>& last_use, Packer& packer,
                     std::map<int, std::size_t>& live) {
    for (std::size_t r = 0; r < step.results.size(); ++r) {
      const int slot = step.results[r];
      if (!in_section(slot) || live.contains(slot)) continue;
      const int overwritten = step.op->overwrites(static_cast<int>(r));
      const int operand = overwritten < 0 ? -1 : step.operands[static_cast<std::size_t>(overwritten)];
      const bool takes = operand >= 0 && live.contains(operand) && last_use.at(operand) == i &&
                         bytes_of(operand) == bytes_of(slot) &&
                         std::count(step.operands.begin(), step.operands.end(), operand) == 1;
      if (!takes) {
        place(slot, packer, live);
        continue;
      }
      live[slot] = live.at(operand);
      live.erase(operand);
      bound_.slots[static_cast<std::size_t>(slot)].offset = live.at(slot);
    }
  }

  BoundCompute bind_compute(const ComputeStep& step) {
    BoundCompute bound;
    bound.step = &step;
    for (const int slot : step.operands) {
      bound.operands.push_back(bound_.slots[static_cast<std::size_t>(slot)]);
      bound.operand_boxes.push_back(bound_.boxes[static_cast<std::size_t>(slot)]);
    }
    for (const int slot : step.results) {
      bound.results.push_back(bound_.slots[static_cast<std::size_t>(slot)]);
      bound.result_boxes.push_back(bound_.boxes[static_cast<std::size_t>(slot)]);
    }
    return bound;
  }

  // Places what an exchange of Post makes of sums over micro-batches.
  void settle_sums(BoundExchange& exchange) {
    exchange.can_start_early = exchange.step->crossing == Crossing::kWithin;
    for (const BoundTransfer& t : exchange.transfers) {
      const Transfer& transfer = *t.transfer;
      exchange.can_start_early = exchange.can_start_early && sums_micro_batches(transfer) && t.exchange.states == 2;
      if (!sums_micro_batches(transfer) || transfer.to_slot < 0 || !in_section(transfer.to_slot)) continue;
      Address& to = bound_.slots[static_cast<std::size_t>(transfer.to_slot)];
      const auto from = static_cast<std::size_t>(transfer.from_slot);
      const bool read_elsewhere = transfer.from_slot < 0 || uses_[from] > 1;
      to = !read_elsewhere && t.exchange.in_place
               ? bound_.slots[from]
               : Address{Scope::kStep, append(Scope::kStep, bytes_of(transfer.to_slot))};
    }
  }

  [[nodiscard]] bool sums_micro_batches(const Transfer& t) const {
    return t.from_slot < 0 || program_.slots[static_cast<std::size_t>(t.from_slot)].accumulates;
  }

  BoundExchange bind_exchange(const ExchangeStep& step) {
    BoundExchange bound{&step, 0, false, {}};
    for (const Transfer& transfer : step.transfers) {
      bound.transfers.push_back(bind_transfer(transfer));
      bound.rounds = std::max(bound.rounds, bound.transfers.back().exchange.rounds.size());
    }
    return bound;
  }

  // The buffer of each state of each transfer.
  void place_states(BoundExchange& bound, Packer& packer, std::vector<std::size_t>& scratch) {
    for (BoundTransfer& t : bound.transfers) {
      const Transfer& transfer = *t.transfer;
      for (int state = 0; state < t.exchange.states; ++state) {
        Address address;
        if (state == 0 && transfer.from_slot >= 0) address = bound_.slots[static_cast<std::size_t>(transfer.from_slot)];
        if (state + 1 == t.exchange.states && transfer.to_slot >= 0)
          address = bound_.slots[static_cast<std::size_t>(transfer.to_slot)];
        if (state > 0 && state + 1 < t.exchange.states) {
          const auto bytes =
              static_cast<std::size_t>(t.exchange.elements[static_cast<std::size_t>(state) - 1]) * t.element_bytes;
          if (bound.step->crossing == Crossing::kWithin) {
            scratch.push_back(packer.place(bytes));
            address = {Scope::kSection, scratch.back()};
          } else {
            address = {Scope::kOutbox, append(Scope::kOutbox, bytes)};
          }
        }
        t.states.push_back(address);
      }
    }
  }

  BoundTransfer bind_transfer(const Transfer& transfer) {
    const Annotation& from = program_.layouts[static_cast<std::size_t>(transfer.from_layout)];
    const Annotation& to = program_.layouts[static_cast<std::size_t>(transfer.to_layout)];
    const Shape shape = concrete(transfer.type.shape, request_.sizes);
    BoundTransfer bound;
    bound.transfer = &transfer;
    bound.element_bytes = element_bytes(transfer.type);
    bound.integers = transfer.type.dtype == DType::kInt32;
    const CommPlan plan = resolve_plan(from, to, shape, *request_.cluster, static_cast<int>(bound.element_bytes));
    bound.bytes = plan.bytes;
    bound.seconds = plan.finish_s;
    static const Hosts kOneHost;
    const Hosts& hosts = request_.hosts == nullptr ? kOneHost : *request_.hosts;
    bound.exchange = local_exchange(plan, from, to, shape, program_.device, hosts);
    for (const Device reader : far_readers(bound.exchange, hosts)) {
      const LocalExchange theirs = local_exchange(plan, from, to, shape, reader, hosts);
      for (std::size_t r = 0; r < theirs.rounds.size(); ++r) add_far_reads(bound, theirs.rounds[r], reader, r);
    }
    return bound;
  }

  [[nodiscard]] std::set<Device> far_readers(const LocalExchange& exchange, const Hosts& hosts) const {
    std::set<Device> far;
    if (hosts.empty()) return far;
    const std::uint64_t here = hosts[static_cast<std::size_t>(program_.device)];
    for (const Round& round : exchange.rounds) {
      for (const Device d : round.readers) {
        if (hosts[static_cast<std::size_t>(d)] != here) far.insert(d);
      }
    }
    return far;
  }

  void add_far_reads(BoundTransfer& bound, const Round& theirs, Device reader, std::size_t r) const {
    for (const Pull& pull : theirs.pulls) {
      for (const Source& source : pull.sources) {
        if (source.device == program_.device) bound.far_reads.push_back({reader, r, pull.box, source.piece});
      }
    }
  }

  const Program& program_;
  const BindRequest& request_;
  BoundProgram bound_;
  std::vector<int> uses_;  // by slot: instructions that read it, and outputs
};

}  // namespace

MemoryLayout lay_out_memory(const Program& program, const std::array<std::size_t, kScopes>& bytes, int in_flight) {
  MemoryLayout layout;
  for (std::size_t s = 0; s < kScopes; ++s) {
    std::size_t copies = 1;
    if (static_cast<Scope>(s) == Scope::kStash) copies = static_cast<std::size_t>(in_flight);
    if (static_cast<Scope>(s) == Scope::kOutbox)
      copies = 2 * (program.sections.size() - 2);  // two for each section of a micro-batch
    layout.begin[s] = layout.total;
    layout.total += aligned(bytes[s]) * copies;
  }
  return layout;
}

std::size_t table_bytes(const BoundExchange& exchange) {
  constexpr std::size_t kTimes = 2;  // this time's and the last's
  return aligned(kTimes * exchange.rounds * static_cast<std::size_t>(exchange.step->size) * sizeof(std::uint64_t));
}

std::size_t device_bytes(const MemoryLayout& regions, std::size_t workspace, std::size_t tables) {
  return std::max(regions.total + aligned(workspace) + aligned(tables), kAlignment);
}

Actions actions_of(const Program& program, ScheduleKind schedule, std::size_t micro_batches) {
  if (program.virtual_stages.empty()) return {};
  return actions(schedule, program.virtual_stages.front(), program.stages, static_cast<int>(micro_batches));
}

std::optional<std::string> why_too_large(const Cluster& cluster, Device device, std::size_t bytes) {
  const DeviceType& type = cluster.type_of(device);
  if (type.memory_bytes <= 0 || static_cast<double>(bytes) <= type.memory_bytes) return std::nullopt;
  constexpr double kGiB = 1 << 30;
  return fmt::format(
      "device {} ({}) must hold {} bytes ({:.3f} GiB), has {:.0f} ({:.3f} GiB); give it fewer layers, a larger tp or "
      "smaller micro-batches",
      device, type.name, bytes, static_cast<double>(bytes) / kGiB, std::floor(type.memory_bytes),
      type.memory_bytes / kGiB);
}

BoundProgram bind(const Program& program, const BindRequest& request) {
  return Binder(program, request).run();
}

}  // namespace hspmd
