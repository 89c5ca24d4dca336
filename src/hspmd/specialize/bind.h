// bind: a program with its sizes made concrete and its memory planned.
//
// Every scope is a region of the device's memory; an address is a region and an offset in it. Slots of kSection share
// one region by their lifetimes; a result may overwrite an operand that nobody reads afterwards, where its operator
// says so. Persistent and step slots lie alike in every bind of one program.
#pragma once

#include <array>
#include <variant>
#include <vector>

#include "hspmd/specialize/exchange.h"
#include "hspmd/specialize/program.h"

namespace hspmd {

inline constexpr std::size_t kScopes = 5;
inline constexpr std::size_t kAlignment = 64;

struct Address {
  Scope scope = Scope::kSection;
  std::size_t offset = 0;  // bytes from the start of the region
};

struct BoundCompute {
  const ComputeStep* step = nullptr;
  std::vector<Address> operands;
  std::vector<Address> results;
  std::vector<Box> operand_boxes;
  std::vector<Box> result_boxes;
};

struct BoundTransfer {
  const Transfer* transfer = nullptr;
  LocalExchange exchange;
  std::vector<Address> states;  // the buffer of each state; meaningless where this device holds none
  std::size_t element_bytes = 4;
  bool integers = false;
  std::int64_t bytes = 0;       // what the plan moves in all
  double seconds = 0;           // predicted on the cluster's links
};

struct BoundExchange {
  const ExchangeStep* step = nullptr;
  std::size_t rounds = 0;  // the most of any transfer
  std::vector<BoundTransfer> transfers;
};

using BoundInstruction = std::variant<BoundCompute, BoundExchange>;

struct BoundSection {
  SectionKind kind = SectionKind::kPre;
  int virtual_stage = 0;
  std::vector<BoundInstruction> instructions;
};

struct BoundProgram {
  std::vector<BoundSection> sections;           // as in the program
  std::vector<Address> slots;
  std::vector<Box> boxes;                       // of each slot, in global coordinates
  std::array<std::size_t, kScopes> bytes = {};  // of each region; of kStash and kOutbox one copy
};

struct BindRequest {
  Bindings sizes;
  std::size_t float_bytes = 4;
  const Cluster* cluster = nullptr;
};

// `program` must outlive the result.
[[nodiscard]] BoundProgram bind(const Program& program, const BindRequest& request);

}  // namespace hspmd
