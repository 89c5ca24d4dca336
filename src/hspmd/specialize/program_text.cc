#include "hspmd/specialize/program.h"

namespace hspmd {
namespace {

std::string slots_text(const std::vector<int>& slots) {
  std::string text;
  for (const int slot : slots) text += fmt::format("{}%{}", text.empty() ? "" : ", ", slot);
  return text;
}

std::string section_name(const Section& section) {
  switch (section.kind) {
    case SectionKind::kPre:
      return "Pre";
    case SectionKind::kForward:
      return fmt::format("Forward {}", section.virtual_stage);
    case SectionKind::kBackward:
      return fmt::format("Backward {}", section.virtual_stage);
    case SectionKind::kWeight:
      return fmt::format("Weight {}", section.virtual_stage);
    case SectionKind::kPost:
      return "Post";
  }
  return "";
}

std::string instruction_text(const Program& program, const ComputeStep& step) {
  const Slot& result = program.slots[static_cast<std::size_t>(step.results.front())];
  return fmt::format("{} {} {}({})  {}", slots_text(step.results), step.adds ? "+=" : "=", step.op->name(),
                     slots_text(step.operands), to_string(program.layouts[static_cast<std::size_t>(result.layout)]));
}

std::string instruction_text(const Program& program, const ExchangeStep& step) {
  static constexpr const char* kVerbs[] = {"exchange", "send", "receive"};
  std::string text = kVerbs[static_cast<std::size_t>(step.crossing)];
  for (const Transfer& t : step.transfers) {
    const auto side = [](int slot) { return slot < 0 ? std::string("-") : fmt::format("%{}", slot); };
    text += fmt::format(" [{} {} -> {}: {} -> {}]", t.name, side(t.from_slot), side(t.to_slot),
                        to_string(program.layouts[static_cast<std::size_t>(t.from_layout)]),
                        to_string(program.layouts[static_cast<std::size_t>(t.to_layout)]));
  }
  return text;
}

}  // namespace

std::string to_string(const Program& program) {
  std::string text = fmt::format("device {}, pipeline {}, virtual stages {} of {}\n", program.device, program.pipeline,
                                 fmt::join(program.virtual_stages, ","), program.stages);
  for (const Section& section : program.sections) {
    text += section_name(section) + "\n";
    for (const Instruction& instruction : section.instructions) {
      text += "  " + std::visit([&](const auto& step) { return instruction_text(program, step); }, instruction) + "\n";
    }
  }
  return text;
}

}  // namespace hspmd
