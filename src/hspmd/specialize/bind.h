// bind: a program with its sizes made concrete and its memory planned.
//
// Every scope is a region of the device's memory; an address is a region and an offset in it. Slots of kSection share
// one region by their lifetimes; a result may overwrite an operand that nobody reads afterwards, where its operator
// says so. Persistent and step slots lie alike in every bind of one program.
//
// Sums of gradients: an all-reduce that nobody else reads before or after works in place; and what an exchange of Post
// makes of sums over micro-batches lives as long as the step, so that it can begin while the sections still run.
#pragma once

#include <array>
#include <optional>
#include <string>
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

// What a device of another host reads of this one's buffers.
struct FarRead {
  Device reader = 0;
  std::size_t round = 0;
  Box box;
  Piece piece;  // of the buffer shown in that round
};

struct BoundTransfer {
  const Transfer* transfer = nullptr;
  LocalExchange exchange;
  std::vector<FarRead> far_reads;  // by reader, in the order of its pulls
  std::vector<Address> states;     // the buffer of each state; meaningless where this device holds none
  std::size_t element_bytes = 4;
  bool integers = false;
  std::int64_t bytes = 0;  // what the plan moves in all
  double seconds = 0;      // predicted on the cluster's links
};

struct BoundExchange {
  const ExchangeStep* step = nullptr;
  std::size_t rounds = 0;  // the most of any transfer
  // Nothing it touches shares memory with the sections of a micro-batch: it may start while they run.
  bool can_start_early = false;
  std::vector<BoundTransfer> transfers;
};

using BoundInstruction = std::variant<BoundCompute, BoundExchange>;

struct BoundSection {
  SectionKind kind = SectionKind::kPre;
  int virtual_stage = 0;
  std::vector<BoundInstruction> instructions;
};

struct BoundProgram {
  std::vector<BoundSection> sections;  // as in the program
  std::vector<Address> slots;
  std::vector<Box> boxes;                       // of each slot, in global coordinates
  std::array<std::size_t, kScopes> bytes = {};  // of each region; of kStash and kOutbox one copy
};

// What a device needs in all: its regions one behind the other, each with its copies.
struct MemoryLayout {
  std::array<std::size_t, kScopes> begin = {};
  std::size_t total = 0;
};
[[nodiscard]] MemoryLayout lay_out_memory(const Program& program, const std::array<std::size_t, kScopes>& bytes,
                                          int in_flight);

// What a bound exchange's table takes: where its buffers lie, for the others to read.
[[nodiscard]] std::size_t table_bytes(const BoundExchange& exchange);

// The memory of a device: its regions, what its kernels work in, the tables of its exchanges.
[[nodiscard]] std::size_t device_bytes(const MemoryLayout& regions, std::size_t workspace, std::size_t tables);

// What the device's stage does under a schedule; nothing where its stage has no layers.
[[nodiscard]] Actions actions_of(const Program& program, ScheduleKind schedule, std::size_t micro_batches);

// Why so many bytes do not fit the device; nullopt when they do.
[[nodiscard]] std::optional<std::string> why_too_large(const Cluster& cluster, Device device, std::size_t bytes);

[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct BindRequest {
  Bindings sizes;
  std::size_t float_bytes = 4;
  const Cluster* cluster = nullptr;
  const Hosts* hosts = nullptr;  // null: all devices on one
};

// `program` must outlive the result.
[[nodiscard]] BoundProgram bind(const Program& program, const BindRequest& request);

}  // namespace hspmd
