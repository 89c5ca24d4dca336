// Sums that a kernel can make in place of storing:
//
//   t = dot(..); acc = accumulate(t)          ->  acc += dot(..)
//   a = dot(..); b = dot(..); s = add(a, b)   ->  a = dot(..); a += dot(..), and s is a
//
// Only where the term is read by nobody else and its operator can add into its result.
#pragma once

#include "hspmd/specialize/program.h"

namespace hspmd {

void fuse_sums(Program& program);

// Calls visit(slot) for every slot an instruction reads or writes; -1 where a transfer has no part.
template <typename Visit>
void for_each_slot(const Instruction& instruction, Visit visit) {
  if (const auto* compute = std::get_if<ComputeStep>(&instruction)) {
    for (const int slot : compute->operands) visit(slot);
    for (const int slot : compute->results) visit(slot);
    return;
  }
  for (const Transfer& transfer : std::get<ExchangeStep>(instruction).transfers) {
    visit(transfer.from_slot);
    visit(transfer.to_slot);
  }
}

}  // namespace hspmd
