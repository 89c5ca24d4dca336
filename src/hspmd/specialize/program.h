// Program: what one device runs. Made from graph and plan alone, without communication; every rank that shares an
// exchange finds the same channel and the same order, since both come from the graph.
//
//   Pre        once a step: gathers of parameters
//   Forward    once a micro-batch and virtual stage
//   Backward   once a micro-batch and virtual stage
//   Weight     likewise, where the schedule splits the backward pass: what no other stage waits for
//   Post       once a step: synchronisation of gradients, optimizer
//
// A section is a flat list of instructions over numbered slots. A slot is one value's local part; values that an
// Identity joins share one slot. Sizes are symbolic until `bind`.
#pragma once

#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "hspmd/graph/graph.h"
#include "hspmd/graph/plan.h"
#include "hspmd/schedule/schedule.h"

namespace hspmd {

enum class SectionKind { kPre, kForward, kBackward, kWeight, kPost };
[[nodiscard]] constexpr bool each_micro_batch(SectionKind kind) {
  return kind != SectionKind::kPre && kind != SectionKind::kPost;
}

// How long a slot's memory lives.
enum class Scope {
  kPersistent,  // leaves: parameters, optimizer states, constants, step inputs
  kStep,        // once-a-step values and sums over micro-batches
  kStash,       // made in one section of a micro-batch, needed in a later one: one copy for each micro-batch in flight
  kOutbox,      // sent to another stage: two copies, so that a send does not wait for its receive
  kSection,     // within one section
};

struct Slot {
  ValueId value{};  // the first value that lies here
  TensorType type;
  int layout = 0;  // index into Program::layouts
  Scope scope = Scope::kSection;
  bool accumulates = false;  // zeroed when a step begins
};

struct ComputeStep {
  const Operator* op = nullptr;
  Attributes attributes;
  std::vector<int> operands;  // slots
  std::vector<int> results;
  bool adds = false;  // adds into its result
  ValueId value{};    // its first result, for messages
};

// One tensor of an exchange. Slots are -1 where this device has no part on that side.
struct Transfer {
  std::string name;  // of the Reshard
  int ordinal = 0;   // place in the exchange, alike on all devices
  int from_slot = -1;
  int to_slot = -1;
  int from_layout = 0;
  int to_layout = 0;
  TensorType type;
};

enum class Crossing {
  kWithin,  // all take part at once
  kSends,   // to another stage; the receiver takes part when its own section comes
  kReceives,
};

// Reshards that stand in a row and do not depend on each other travel together.
struct ExchangeStep {
  int channel = 0;  // the first Reshard's node
  int size = 0;     // transfers of all devices
  Crossing crossing = Crossing::kWithin;
  std::vector<Transfer> transfers;
};

using Instruction = std::variant<ComputeStep, ExchangeStep>;

struct Section {
  SectionKind kind = SectionKind::kPre;
  int virtual_stage = 0;
  std::vector<Instruction> instructions;
};

struct Feed {
  std::string name;  // of the placeholder
  int slot = 0;
  Time time = Time::kMicroBatch;
};

struct LeafSlot {
  std::string name;
  int slot = 0;
  LeafKind kind = LeafKind::kParameter;
  Initializer initial;
  double constant = 0;
};

struct Program {
  Device device = 0;
  int pipeline = 0;                 // index of its subgroup in the layouts of activations
  int stages = 1;                   // virtual stages of its pipeline
  std::vector<int> virtual_stages;  // its own
  std::deque<Annotation> layouts;
  std::vector<Slot> slots;
  std::vector<Section> sections;  // Pre, then Forward, Backward (and Weight) by virtual stage, then Post
  std::vector<Feed> feeds;
  std::vector<LeafSlot> leaves;
  std::vector<std::pair<std::string, int>> outputs;  // name, slot: scalars read after the step
  int channels = 0;                                  // of the whole graph
};

// The device's program. Throws InvalidArgument from deduction, where activations of two pipelines would meet, or where
// a device gets two virtual stages (interleaved schedules are not built yet).
// A schedule that splits the backward pass makes programs with Weight sections.
[[nodiscard]] Program specialize(const Graph& graph, const Plan& plan, Device device,
                                 ScheduleKind schedule = ScheduleKind::kOneFOneB);

// The section that an action runs. kInput runs Backward.
[[nodiscard]] std::size_t section_of(const Program& program, const Action& action);

// Its text: the golden form of tests, and what `hspmd check --print` shows.
[[nodiscard]] std::string to_string(const Program& program);

}  // namespace hspmd
