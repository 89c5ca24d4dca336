#include <algorithm>
#include <map>
#include <unordered_map>

#include "hspmd/specialize/fuse_sums.h"
#include "hspmd/specialize/pipelines.h"
#include "hspmd/specialize/program.h"

namespace hspmd {
namespace {

constexpr int kNone = -1;

// Gradients travel in buckets of at most so many elements (but for larger tensors): large enough to be worth a
// rendezvous, small enough that the first travel while the rest is still computed.
constexpr std::int64_t kBucketElements = std::int64_t{1} << 22;

class Specializer {
 public:
  Specializer(const Graph& graph, const Plan& plan, Device device, ScheduleKind schedule)
      : graph_(graph), layouts_(graph, plan), device_(device), splits_(schedule == ScheduleKind::kZeroBubble) {
    slot_of_.assign(static_cast<std::size_t>(graph.value_count()), kNone);
  }

  Program run() {
    program_.device = device_;
    mark_live();
    find_pipeline();
    find_awaited();
    find_runs();
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (live_[n]) place(n);
    }
    order_sections();
    bind_outputs();
    fuse_sums(program_);
    assign_scopes();
    return std::move(program_);
  }

 private:
  // ---- what is needed at all ----

  void mark_live() {
    live_.assign(graph_.nodes().size(), false);
    const auto mark = [&](ValueId value) { live_[static_cast<std::size_t>(graph_.value(value).producer)] = true; };
    for (const Update& update : graph_.updates()) mark(update.value);
    for (const auto& [name, value] : graph_.outputs()) mark(value);
    for (std::size_t n = graph_.nodes().size(); n-- > 0;) {
      if (!live_[n]) continue;
      for (const ValueId input : graph_.nodes()[n].inputs) mark(input);
    }
    for (const Update& update : graph_.updates()) updated_[index(update.value)] = update.leaf;
  }

  // The subgroup of the anchor that holds this device, or kNone.
  int subgroup_here(const Annotation& annotation) {
    const auto [found, fresh] = here_.try_emplace(&annotation, kNone);
    if (fresh) found->second = subgroup_of(annotation, device_).value_or(kNone);
    return found->second;
  }
  bool local(ValueId value) { return subgroup_here(layouts_.anchor(value)) != kNone; }

  void find_pipeline() {
    program_.pipeline = kNone;
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (!live_[n] || node.time != Time::kMicroBatch || node.phase != Phase::kForward) continue;
      const int here = subgroup_here(layouts_.anchor(node.outputs.front()));
      if (here == kNone) continue;
      if (program_.pipeline != kNone && here != program_.pipeline) {
        invalid("[specialize] device {} must belong to one pipeline; {} puts it into pipeline {}, others into {}",
                device_, graph_.label(node.outputs.front()), here, program_.pipeline);
      }
      program_.pipeline = here;
    }
    if (program_.pipeline == kNone) invalid("[specialize] device {} must take part in the plan", device_);
    view_ = view_pipeline(graph_, layouts_, program_.pipeline);
    program_.stages = view_.stages;
  }

  // Backward nodes that a stage before waits for: the messages between stages, and what they are made from. The first
  // stage sends nothing; its whole backward pass counts.
  void find_awaited() {
    awaited_.assign(graph_.nodes().size(), !splits_);
    for (std::size_t n = graph_.nodes().size(); splits_ && n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      if (!live_[n] || node.phase != Phase::kBackward || !runs_each_micro_batch(graph_, node)) continue;
      if (view_.crosses[n] || view_.virtual_stage[n] == 0) awaited_[n] = true;
      if (!awaited_[n]) continue;
      for (const ValueId input : node.inputs) awaited_[static_cast<std::size_t>(graph_.value(input).producer)] = true;
    }
  }

  // ---- Reshards in a row: they travel together ----

  [[nodiscard]] SectionKind section_kind(std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    const bool forward = node.phase == Phase::kForward;
    if (!runs_each_micro_batch(graph_, node)) return forward ? SectionKind::kPre : SectionKind::kPost;
    if (forward) return SectionKind::kForward;
    return awaited_[n] ? SectionKind::kBackward : SectionKind::kWeight;
  }

  // Of the whole tensor; what stands in Post has no symbolic dims.
  [[nodiscard]] std::int64_t elements_of(const Node& node) const {
    return volume(concrete(graph_.value(node.outputs.front()).type.shape, Bindings{}));
  }

  void find_runs() {
    run_.assign(graph_.nodes().size(), kNone);
    ordinal_.assign(graph_.nodes().size(), 0);
    int run = kNone;  // the first node of the run that is open
    std::int64_t in_run = 0;
    std::size_t last = 0;
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (!live_[n]) continue;
      const Node& node = graph_.nodes()[n];
      if (!std::holds_alternative<Reshard>(node.what)) {
        run = kNone;
        continue;
      }
      const std::size_t source = static_cast<std::size_t>(graph_.value(node.inputs.front()).producer);
      const std::int64_t elements = section_kind(n) == SectionKind::kPost ? elements_of(node) : 0;
      const bool joins = run != kNone && in_run + elements <= kBucketElements &&
                         section_kind(last) == section_kind(n) && view_.crosses[last] == view_.crosses[n] &&
                         view_.virtual_stage[last] == view_.virtual_stage[n] && run_[source] != run;
      if (!joins) run = static_cast<int>(n);
      in_run = joins ? in_run + elements : elements;
      run_[n] = run;
      ordinal_[n] = joins ? ordinal_[last] + 1 : 0;
      run_size_[run] = ordinal_[n] + 1;
      last = n;
    }
    program_.channels = static_cast<int>(graph_.nodes().size());
  }

  // ---- nodes to instructions ----

  void place(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    if (const auto* leaf = std::get_if<Leaf>(&node.what)) {
      if (local(node.outputs.front())) place_leaf(node, *leaf, n);
    } else if (const auto* reshard = std::get_if<Reshard>(&node.what)) {
      if (local(node.inputs.front()) || local(node.outputs.front())) place_reshard(node, *reshard, n);
    } else if (local(node.outputs.front())) {
      place_compute(node, std::get<Compute>(node.what), n);
    }
  }

  void place_leaf(const Node& node, const Leaf& leaf, std::size_t n) {
    const ValueId value = node.outputs.front();
    const int slot = new_slot(value, node);
    if (leaf.kind == LeafKind::kPlaceholder) {
      program_.feeds.push_back({leaf.name, slot, node.time});
      if (node.time == Time::kMicroBatch) {
        fed_at_[slot] = view_.virtual_stage[n];
        return;
      }
    } else {
      program_.leaves.push_back({leaf.name, slot, leaf.kind, leaf.initial, leaf.constant});
    }
    program_.slots[static_cast<std::size_t>(slot)].scope = Scope::kPersistent;
  }

  void place_compute(const Node& node, const Compute& compute, std::size_t n) {
    ComputeStep step{compute.op, compute.attributes, {}, {}, false, node.outputs.front()};
    for (const ValueId input : node.inputs) step.operands.push_back(slot_of(input, node));
    for (std::size_t r = 0; r < node.outputs.size(); ++r) step.results.push_back(result_slot(node, compute, r));
    if (compute.op->accumulates()) {
      program_.slots[static_cast<std::size_t>(step.results.front())].accumulates = true;
      step.adds = true;
    }
    section(section_kind(n), view_.virtual_stage[n]).instructions.emplace_back(std::move(step));
  }

  // A leaf's new value lies where the leaf lies.
  int result_slot(const Node& node, const Compute& compute, std::size_t r) {
    const ValueId value = node.outputs[r];
    const auto update = updated_.find(index(value));
    if (update == updated_.end()) return new_slot(value, node);
    const ValueId leaf = update->second;
    const int overwritten = compute.op->overwrites(static_cast<int>(r));
    const bool in_place = overwritten >= 0 && node.inputs[static_cast<std::size_t>(overwritten)] == leaf;
    check_internal(in_place, "a leaf's update is computed by an operator that overwrites it");
    if (layouts_.of(value) != layouts_.of(leaf)) {
      invalid("[specialize] the update of {} must be laid out as the leaf: {} against {}", graph_.label(leaf),
              to_string(layouts_.of(value)), to_string(layouts_.of(leaf)));
    }
    return slot_of_[static_cast<std::size_t>(value)] = slot_of(leaf, node);
  }

  void place_reshard(const Node& node, const Reshard& reshard, std::size_t n) {
    const ValueId from = node.inputs.front();
    const ValueId to = node.outputs.front();
    const SectionKind kind = section_kind(n);
    const bool each = each_micro_batch(kind);
    const bool here = local(from);
    const bool there = local(to);
    if (layouts_.of(from) == layouts_.of(to)) {
      slot_of_[static_cast<std::size_t>(to)] = slot_of(from, node);
      return;
    }
    if (each) check_within_pipeline(node, reshard);
    if (!there && everybody_has_it(from, to)) return;
    Crossing crossing = Crossing::kWithin;
    int stage = view_.virtual_stage[n];
    if (each && view_.crosses[n]) {
      crossing = here ? Crossing::kSends : Crossing::kReceives;
      // Forward the receiver's stage is the node's, backward the sender's.
      const bool other = (kind == SectionKind::kForward) == here;
      if (other) --stage;
    }
    Transfer transfer;
    transfer.name = reshard.name;
    transfer.ordinal = ordinal_[n];
    transfer.type = graph_.value(to).type;
    transfer.from_layout = layout_index(from, node);
    transfer.to_layout = layout_index(to, node);
    if (here) transfer.from_slot = slot_of(from, node);
    if (there) transfer.to_slot = new_slot(to, node);
    exchange(section(kind, stage), n, crossing).transfers.push_back(std::move(transfer));
  }

  // Whole copies on every device of the target: each slices its own, nobody sends.
  bool everybody_has_it(ValueId from, ValueId to) {
    const Annotation& copies = layouts_.of(from);
    const bool whole = std::all_of(copies.subgroups().begin(), copies.subgroups().end(), [](const Subgroup& s) {
      return std::all_of(s.axes().begin(), s.axes().end(), [](const Axis& a) { return is_duplicate(a.placement); });
    });
    const Annotation& target = layouts_.of(to);
    const bool same_top = copies.top() == target.top() && copies.subgroups().size() == target.subgroups().size();
    if (!whole || !(same_top || !copies.top() || is_duplicate(copies.top()->placement))) return false;
    std::vector<Device> holders = devices_of(copies);
    std::sort(holders.begin(), holders.end());
    const std::vector<Device> receivers = devices_of(target);
    return std::all_of(receivers.begin(), receivers.end(),
                       [&](Device d) { return std::binary_search(holders.begin(), holders.end(), d); });
  }

  void check_within_pipeline(const Node& node, const Reshard& reshard) {
    const Annotation& from = layouts_.of(node.inputs.front());
    const Annotation& to = layouts_.of(node.outputs.front());
    const bool alike = from.subgroups().size() == to.subgroups().size() && from.top() == to.top();
    if (!alike) {
      invalid(
          "[specialize] the Reshard {} must stay within its pipelines in the forward and backward sections; they meet "
          "only in Pre and Post. "
          "Received {} -> {}.",
          reshard.name, to_string(from), to_string(to));
    }
  }

  ExchangeStep& exchange(Section& section, std::size_t n, Crossing crossing) {
    if (!section.instructions.empty()) {
      auto* last = std::get_if<ExchangeStep>(&section.instructions.back());
      if (last != nullptr && last->channel == run_[n] && last->crossing == crossing) return *last;
    }
    section.instructions.emplace_back(ExchangeStep{run_[n], run_size_[run_[n]], crossing, {}});
    return std::get<ExchangeStep>(section.instructions.back());
  }

  // ---- slots and layouts ----

  int slot_of(ValueId value, const Node& user) {
    const int slot = slot_of_[static_cast<std::size_t>(value)];
    if (slot == kNone) {
      (void)layouts_.of(user.outputs.front());  // says which operands do not lie together
      invalid("[specialize] device {} must hold {}, which {} reads there", device_, graph_.label(value),
              graph_.label(user.outputs.front()));
    }
    return slot;
  }

  int new_slot(ValueId value, const Node& node) {
    const int slot = static_cast<int>(program_.slots.size());
    program_.slots.push_back({value, graph_.value(value).type, layout_index(value, node)});
    slot_of_[static_cast<std::size_t>(value)] = slot;
    return slot;
  }

  // Within micro-batches a device sees its own pipeline alone; the top tier gave the pipeline its batch.
  int layout_index(ValueId value, const Node& node) {
    const Annotation& whole = layouts_.of(value);
    const bool each = node.time == Time::kMicroBatch;
    const auto key = std::pair(&whole, each);
    const auto [found, fresh] = layout_index_.try_emplace(key, static_cast<int>(program_.layouts.size()));
    if (fresh) program_.layouts.push_back(each ? project(whole, program_.pipeline) : whole);
    return found->second;
  }

  // ---- sections ----

  Section& section(SectionKind kind, int stage) {
    auto& slot = sections_[{kind, stage}];
    slot.kind = kind;
    slot.virtual_stage = stage;
    return slot;
  }

  void order_sections() {
    for (const auto& [key, unused] : sections_) {
      const int stage = key.second;
      const bool each = each_micro_batch(key.first);
      const auto& own = program_.virtual_stages;
      if (each && std::find(own.begin(), own.end(), stage) == own.end()) program_.virtual_stages.push_back(stage);
    }
    std::sort(program_.virtual_stages.begin(), program_.virtual_stages.end());
    if (program_.virtual_stages.size() > 1) {
      invalid(
          "[specialize] device {} must have one stage of pipeline {}; the plan gives it the virtual stages {}, and "
          "interleaved schedules are not built yet",
          device_, program_.pipeline, fmt::join(program_.virtual_stages, ", "));
    }
    (void)section(SectionKind::kPre, 0);
    (void)section(SectionKind::kPost, 0);
    for (const int stage : program_.virtual_stages) {
      (void)section(SectionKind::kForward, stage);
      (void)section(SectionKind::kBackward, stage);
      if (splits_) (void)section(SectionKind::kWeight, stage);
    }
    const auto take = [&](SectionKind kind, int stage) {
      program_.sections.push_back(std::move(sections_[{kind, stage}]));
    };
    take(SectionKind::kPre, 0);
    for (const int stage : program_.virtual_stages) {
      take(SectionKind::kForward, stage);
      take(SectionKind::kBackward, stage);
      if (splits_) take(SectionKind::kWeight, stage);
    }
    take(SectionKind::kPost, 0);
  }

  void bind_outputs() {
    for (const auto& [name, value] : graph_.outputs()) {
      const int slot = slot_of_[static_cast<std::size_t>(value)];
      if (slot != kNone) program_.outputs.emplace_back(name, slot);
    }
  }

  void assign_scopes() {
    const std::size_t count = program_.slots.size();
    std::vector<std::vector<int>> touched(count);  // sections that make or read the slot
    std::vector<bool> sent(count, false);
    const auto touch = [&](int slot, int s) {
      if (slot == kNone) return;
      auto& list = touched[static_cast<std::size_t>(slot)];
      if (list.empty() || list.back() != s) list.push_back(s);
    };
    for (std::size_t s = 0; s < program_.sections.size(); ++s) {
      for (const auto& [slot, stage] : fed_at_) {
        if (program_.sections[s].kind == SectionKind::kForward && program_.sections[s].virtual_stage == stage)
          touch(slot, static_cast<int>(s));
      }
      for (const Instruction& instruction : program_.sections[s].instructions) {
        for_each_slot(instruction, [&](int slot) { touch(slot, static_cast<int>(s)); });
        const auto* exchange = std::get_if<ExchangeStep>(&instruction);
        if (exchange == nullptr || exchange->crossing != Crossing::kSends) continue;
        for (const Transfer& t : exchange->transfers) sent[static_cast<std::size_t>(t.from_slot)] = true;
      }
    }
    std::erase_if(program_.feeds, [&](const Feed& feed) {
      const bool used = !touched[static_cast<std::size_t>(feed.slot)].empty();
      return feed.time == Time::kMicroBatch && !used;
    });
    for (std::size_t i = 0; i < count; ++i) {
      Slot& slot = program_.slots[i];
      if (slot.scope == Scope::kPersistent || touched[i].empty()) continue;
      const bool each = std::all_of(touched[i].begin(), touched[i].end(), [&](int s) {
        return each_micro_batch(program_.sections[static_cast<std::size_t>(s)].kind);
      });
      const bool several = touched[i].size() > 1;
      if (slot.accumulates || (several && !each)) {
        slot.scope = Scope::kStep;
      } else if (several) {
        slot.scope = Scope::kStash;
      } else if (sent[i]) {
        slot.scope = Scope::kOutbox;
      }
    }
    for (const auto& [name, slot] : program_.outputs) {
      Slot& output = program_.slots[static_cast<std::size_t>(slot)];
      if (output.scope == Scope::kSection) output.scope = Scope::kStep;
    }
  }

  const Graph& graph_;
  Layouts layouts_;
  Device device_;
  bool splits_;
  Program program_;
  PipelineView view_;
  std::vector<bool> live_;
  std::vector<bool> awaited_;  // by node
  std::vector<int> run_;       // by node: the first Reshard of its run
  std::vector<int> ordinal_;   // by node: its place there
  std::unordered_map<int, int> run_size_;
  std::vector<int> slot_of_;  // by value
  std::unordered_map<int, ValueId> updated_;
  std::unordered_map<const Annotation*, int> here_;
  std::map<std::pair<const Annotation*, bool>, int> layout_index_;
  std::map<std::pair<SectionKind, int>, Section> sections_;
  std::map<int, int> fed_at_;  // fed slots: the virtual stage whose forward section they are fed before
};

}  // namespace

Program specialize(const Graph& graph, const Plan& plan, Device device, ScheduleKind schedule) {
  return Specializer(graph, plan, device, schedule).run();
}

std::size_t section_of(const Program& program, const Action& action) {
  SectionKind kind = SectionKind::kForward;
  if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kInput) kind = SectionKind::kBackward;
  if (action.kind == ActionKind::kWeight) kind = SectionKind::kWeight;
  const int stage = program.virtual_stages[static_cast<std::size_t>(action.virtual_stage)];
  const auto found = std::find_if(program.sections.begin(), program.sections.end(),
                                  [&](const Section& s) { return s.kind == kind && s.virtual_stage == stage; });
  check_internal(found != program.sections.end(), "a program has the sections that its schedule runs");
  return static_cast<std::size_t>(found - program.sections.begin());
}

}  // namespace hspmd
