#include "hspmd/data/stream.h"

#include <algorithm>
#include <numeric>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): our own, so that an order is the same on every platform.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t x = state += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

Stream::Stream(Tokens tokens, std::int64_t sequence_length, Shuffle shuffle, std::uint64_t seed)
    : tokens_(std::move(tokens)), length_(sequence_length), shuffle_(shuffle), seed_(seed) {
  if (tokens_.size() < sequence_length + 1) {
    invalid("[data] the data must have at least sequence_length + 1 = {} tokens. Received {}.", sequence_length + 1,
            tokens_.size());
  }
  samples_ = std::min<std::int64_t>((tokens_.size() - 1) / sequence_length, std::int64_t{1} << 31);
}

std::vector<std::uint32_t> Stream::permutation(std::int64_t epoch) const {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(samples_));
  std::iota(order.begin(), order.end(), 0U);
  std::uint64_t state = seed_ * 0x2545F4914F6CDD1DU + static_cast<std::uint64_t>(epoch);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next(state) % i]);
  return order;
}

void Stream::prepare(std::int64_t begin, std::int64_t end) {
  if (shuffle_ == Shuffle::kNo || end <= begin) return;
  const std::int64_t first = begin / samples_;
  const std::int64_t last = (end - 1) / samples_;
  std::erase_if(epochs_, [&](const Epoch& e) { return e.index < first || e.index > last; });
  for (std::int64_t epoch = first; epoch <= last; ++epoch) {
    const bool known = std::any_of(epochs_.begin(), epochs_.end(), [&](const Epoch& e) { return e.index == epoch; });
    if (!known) epochs_.push_back({epoch, permutation(epoch)});
  }
}

std::int64_t Stream::first_token(std::int64_t sequence) const {
  const std::int64_t sample = sequence % samples_;
  if (shuffle_ == Shuffle::kNo) return sample * length_;
  const auto epoch =
      std::find_if(epochs_.begin(), epochs_.end(), [&](const Epoch& e) { return e.index == sequence / samples_; });
  check_internal(epoch != epochs_.end(), "an epoch is prepared before its sequences are read");
  return static_cast<std::int64_t>(epoch->order[static_cast<std::size_t>(sample)]) * length_;
}

}  // namespace hspmd
