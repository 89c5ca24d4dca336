// An exchange as one device sees it: rounds of {show my buffers, read from others'}. Made from CommPlans by pure
// functions, so that each side of a message computes the same thing.
//
//   {0-1: Px2} -> {0-1: Dx2} of 8 rows, device 0
//     round 0   show my addend; rows [0,4): mine + device 1's addend
//     round 1   show my sum;    rows [4,8): device 1's sum
//
// A stage of a CommPlan takes two rounds; large all-reduces use the second for their second half, in which every
// participant reads the part that each other one has summed. Such an all-reduce works in place: in the first half a
// device writes the part that it alone reads, in the second what has been read before the others showed their sums.
#pragma once

#include <vector>

#include "hspmd/comm/comm_plan.h"
#include "hspmd/specialize/program.h"

namespace hspmd {

// A buffer that one device holds during an exchange: state 0 is what it held before, state s+1 what stage s made.
// Only a state without annotation has several pieces; they lie one behind the other.
struct Piece {
  Box box;
  std::int64_t offset = 0;  // elements
  friend bool operator==(const Piece&, const Piece&) = default;
};
using Pieces = std::vector<Piece>;

struct Source {
  Device device = 0;
  Piece piece;  // of the buffer it shows in this round
};

// Reads the sum (or max) of the sources on a box into one of my pieces. No source: the neutral element.
struct Pull {
  Box box;
  Piece into;
  std::vector<Source> sources;
};

// What another device reads of my buffer.
struct Shown {
  Device reader = 0;
  Box box;
};

struct Round {
  int shows = -1;  // the state whose buffer others read in this round; -1: nobody reads
  int reads = 0;   // the state whose buffers the pulls read
  int fills = 0;   // the state whose buffer the pulls write
  std::vector<Pull> pulls;
  std::vector<Device> readers;  // other devices that read mine, ascending
  std::vector<Shown> shown;     // box by box
};

// One transfer of an exchange.
struct LocalExchange {
  std::vector<Round> rounds;           // indexed alike on all devices
  std::vector<std::int64_t> elements;  // of each state that lies between the first and the last
  Reduction reduction = Reduction::kSum;
  int states = 2;
  // The last state may lie where the first does: a device writes only parts that it alone reads, or that have been
  // read.
  bool in_place = false;
};

// Where devices live: by device, equal numbers share a host. Empty: all on one.
using Hosts = std::vector<std::uint64_t>;

// Over several hosts a stage takes four rounds. A large all-reduce whose participants span hosts goes two-level; with H
// hosts, k the fewest participants on one, and part i of each host owned by its i-th participant:
//   round 0  an owner sums its part over the participants of its host
//   round 1  of its part, owner h sums slice h over the owners of all hosts     reduce-scatter between hosts
//   round 2  and reads the other slices from them                               all-gather between hosts
//   round 3  the others of a host read the parts from their owners
// So a host receives 2 (H-1)/H times the tensor, however many participants it has: the least there can be.
[[nodiscard]] LocalExchange local_exchange(const CommPlan& plan, const Annotation& from, const Annotation& to,
                                           const Shape& shape, Device device, const Hosts& hosts = {});

}  // namespace hspmd
