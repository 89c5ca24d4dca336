#include "hspmd/specialize/fuse_sums.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "hspmd/graph/sums.h"

namespace hspmd {
namespace {

class SumFuser {
 public:
  explicit SumFuser(Program& program) : program_(program), touches_(program.slots.size(), 0) {}

  void run() {
    for (const Section& section : program_.sections) {
      for (const Instruction& instruction : section.instructions) {
        for_each_slot(instruction, [&](int slot) {
          if (slot >= 0) ++touches_[static_cast<std::size_t>(slot)];
        });
      }
    }
    for (const auto& [name, slot] : program_.outputs) ++touches_[static_cast<std::size_t>(slot)];
    for (Section& section : program_.sections) fuse(section);
  }

 private:
  void fuse(Section& section) {
    makers_.clear();
    std::vector<bool> dropped(section.instructions.size(), false);
    for (std::size_t i = 0; i < section.instructions.size(); ++i) {
      auto* step = std::get_if<ComputeStep>(&section.instructions[i]);
      if (step == nullptr) continue;
      if (step->op == &accumulate_operator()) {
        dropped[i] = fuse_accumulation(section, *step);
      } else if (step->op == &add_operator()) {
        dropped[i] = fuse_addition(section, *step);
      }
      if (!dropped[i] && step->results.size() == 1) makers_[step->results.front()] = i;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < dropped.size(); ++i) {
      if (dropped[i]) continue;
      if (kept != i) section.instructions[kept] = std::move(section.instructions[i]);
      ++kept;
    }
    section.instructions.resize(kept);
  }

  // The instruction of this section that alone makes the slot, if only one other reads it.
  std::optional<std::size_t> sole_maker(int slot) const {
    const auto found = makers_.find(slot);
    if (found == makers_.end() || touches_[static_cast<std::size_t>(slot)] != 2) return std::nullopt;
    if (program_.slots[static_cast<std::size_t>(slot)].accumulates) return std::nullopt;
    return found->second;
  }

  static bool can_turn(const ComputeStep& step) { return step.op->can_add() && !step.adds; }

  bool fuse_accumulation(Section& section, const ComputeStep& sum) {
    const auto maker = sole_maker(sum.operands.front());
    if (!maker) return false;
    auto& term = std::get<ComputeStep>(section.instructions[*maker]);
    if (!can_turn(term)) return false;
    term.results = sum.results;
    term.adds = true;
    return true;
  }

  bool fuse_addition(Section& section, ComputeStep& sum) {
    std::vector<std::pair<std::size_t, int>> terms;  // maker, slot
    for (const int slot : sum.operands) {
      if (const auto maker = sole_maker(slot)) terms.emplace_back(*maker, slot);
    }
    if (terms.size() < 2) return false;
    std::sort(terms.begin(), terms.end());
    const int base = terms.front().second;
    std::vector<int> rest = {base};
    for (const int slot : sum.operands) {
      if (slot == base) continue;
      const auto term = std::find_if(terms.begin(), terms.end(), [&](const auto& t) { return t.second == slot; });
      ComputeStep* step = term == terms.end() ? nullptr : &std::get<ComputeStep>(section.instructions[term->first]);
      if (step == nullptr || !can_turn(*step)) {
        rest.push_back(slot);
        continue;
      }
      step->results = {base};
      step->adds = true;
    }
    sum.operands = rest;
    if (rest.size() > 1) return false;
    rename(sum.results.front(), base);
    return true;
  }

  void rename(int from, int to) {
    touches_[static_cast<std::size_t>(to)] = touches_[static_cast<std::size_t>(from)];
    for (Section& section : program_.sections) {
      for (Instruction& instruction : section.instructions) {
        if (auto* step = std::get_if<ComputeStep>(&instruction)) {
          std::replace(step->operands.begin(), step->operands.end(), from, to);
          continue;
        }
        for (Transfer& transfer : std::get<ExchangeStep>(instruction).transfers) {
          if (transfer.from_slot == from) transfer.from_slot = to;
        }
      }
    }
    for (auto& [name, slot] : program_.outputs) {
      if (slot == from) slot = to;
    }
  }

  Program& program_;
  std::vector<int> touches_;  // by slot: instructions that read or write it
  std::unordered_map<int, std::size_t> makers_;
};

}  // namespace

void fuse_sums(Program& program) {
  SumFuser(program).run();
}

}  // namespace hspmd
