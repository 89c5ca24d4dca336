// Replay: the exchanges of a step of all devices, in the order in which the devices run them, to see who waits for
// ever.
//
//   device 0: a b        device 1: b a        both wait in their first exchange for the other, for ever
//
// The rules are the runtime's. A device runs its sections in order, the exchanges of a section in order, the rounds of
// an exchange in order. In a round it shows its buffers, waits until all that it reads from have shown theirs, and
// reads. Within a stage it then waits until its readers have read, too. To another stage it does not wait, but has only
// two copies of what it sends: before a section runs again, what it sent the time before last must have been read.
//
// Takes time in proportion to the messages.
#pragma once

#include <string>
#include <vector>

#include "hspmd/specialize/program.h"

namespace hspmd {

struct ReplayRound {
  std::vector<Device> peers;    // read from, each once
  std::vector<Device> readers;  // that read mine, each once
};

struct ReplayExchange {
  int channel = 0;
  Crossing crossing = Crossing::kWithin;
  std::vector<ReplayRound> rounds;
};

// One run of a section: the place of its exchanges in ReplayDevice::lists.
struct ReplayRun {
  std::size_t list = 0;
  int micro_batch = -1;  // -1: once a step
};

struct ReplayDevice {
  Device device = 0;
  std::vector<std::vector<ReplayExchange>> lists;
  std::vector<ReplayRun> runs;
};

// Where a device stands for ever.
struct Stuck {
  Device device = 0;
  int channel = 0;
  int micro_batch = -1;
  std::vector<Device> waits_for;  // the one that has not shown; or all readers, of whom one has not read
  friend bool operator==(const Stuck&, const Stuck&) = default;
};

// In the order of the devices; empty when all come to the end. Throws InternalError where a peer is no device.
[[nodiscard]] std::vector<Stuck> replay(const std::vector<ReplayDevice>& devices);

}  // namespace hspmd
