#include "hspmd/runtime/transport/team.h"

#include <algorithm>

#include "hspmd/base/errors.h"

namespace hspmd {

// Written by one rank, polled by the others.
struct alignas(64) Team::Line {
  std::atomic<std::uint64_t> arrived{0};
  std::uint64_t data = 0;  // offset in the rank's segment
};

struct Team::Block {
  Line line;
  alignas(64) std::atomic<std::uint64_t> departed{0};
  alignas(64) std::byte slots[2][kSmallBytes];
};

std::size_t Team::block_bytes() {
  return sizeof(Block);
}

Team::Team(Generation& generation, std::vector<int> ranks, int rank, std::size_t block)
    : generation_(generation), ranks_(std::move(ranks)), offset_(block) {
  std::vector<int> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool near = std::all_of(sorted.begin(), sorted.end(),
                                [&](int r) { return r >= 0 && r < generation.ranks() && generation.near(r); });
  const auto mine = std::find(ranks_.begin(), ranks_.end(), rank);
  if (!distinct || !near || mine == ranks_.end())
    invalid("[team] the ranks must be distinct, of one host, and rank {} among them. Received {}.", rank,
            fmt::join(ranks_, ","));
  if (block % alignof(Block) != 0) invalid("[team] a block must be aligned to {} bytes", alignof(Block));
  me_ = static_cast<int>(mine - ranks_.begin());
  site_.rank = rank;
}

Team::Block& Team::block(int place) const {
  return *reinterpret_cast<Block*>(generation_.segment(ranks_[static_cast<std::size_t>(place)]) + offset_);
}

std::byte* Team::slot(int place) const {
  return block(place).slots[turn_ % 2];
}

void Team::begin(const char* action, std::size_t bytes) {
  ++turn_;
  site_.action = action;
  site_.bytes = static_cast<std::int64_t>(bytes);
}

void Team::arrive() {
  block(me_).line.arrived.store(turn_, std::memory_order_release);
}

void Team::show(const void* data) {
  const std::byte* segment = generation_.segment(site_.rank);
  const auto* address = static_cast<const std::byte*>(data);
  const std::size_t bytes = generation_.segment_bytes(site_.rank);
  if (address != nullptr &&
      (address < segment || address > segment + bytes ||
       static_cast<std::size_t>(site_.bytes) > bytes - static_cast<std::size_t>(address - segment)))
    invalid("[team] the data of {} must lie in the segment of rank {}", site_.action, site_.rank);
  block(me_).line.data = address == nullptr ? 0 : static_cast<std::uint64_t>(address - segment);
  arrive();
}

const std::byte* Team::slot_of(int place) {
  const Line& line = block(place).line;
  generation_.wait([&] { return line.arrived.load(std::memory_order_acquire) >= turn_; }, site_,
                   ranks_[static_cast<std::size_t>(place)]);
  return slot(place);
}

std::byte* Team::data_of(int place) {
  (void)slot_of(place);
  return generation_.segment(ranks_[static_cast<std::size_t>(place)]) + block(place).line.data;
}

void Team::depart() {
  block(me_).departed.store(turn_, std::memory_order_release);
}

void Team::wait_departed() {
  for (int place = 0; place < size(); ++place) {
    const Block& other = block(place);
    generation_.wait([&] { return other.departed.load(std::memory_order_acquire) >= turn_; }, site_,
                     ranks_[static_cast<std::size_t>(place)]);
  }
}

}  // namespace hspmd
