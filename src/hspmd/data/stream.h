// Stream: which tokens a step trains on; the same under every strategy.
//
// Sample i is tokens [i*T, i*T + T]: the inputs the first T, the targets the last T; floor((n-1)/T) samples an epoch.
// Shuffled, an epoch's samples are permuted by seed and epoch alone. The sequences of all steps follow each other; an
// epoch's end may fall within a step.
//   9 tokens, T = 4: samples [0..4] and [4..8]
#pragma once

#include <cstdint>
#include <vector>

#include "hspmd/data/tokens.h"

namespace hspmd {

enum class Shuffle { kNo, kYes };

class Stream {
 public:
  // Throws InvalidArgument when the tokens make no sample.
  Stream(Tokens tokens, std::int64_t sequence_length, Shuffle shuffle, std::uint64_t seed);

  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] const Tokens& tokens() const { return tokens_; }
  // Makes the permutations of the epochs that sequences [begin, end) lie in.
  void prepare(std::int64_t begin, std::int64_t end);
  // The first token of the n-th sequence of the run. Threads may call it together once `prepare` was called for it.
  [[nodiscard]] std::int64_t first_token(std::int64_t sequence) const;
  [[nodiscard]] std::int32_t token(std::int64_t i) const { return tokens_.at(i); }

 private:
  struct Epoch {
    std::int64_t index = -1;
    std::vector<std::uint32_t> order;
  };
  [[nodiscard]] std::vector<std::uint32_t> permutation(std::int64_t epoch) const;

  Tokens tokens_;
  std::int64_t length_;
  Shuffle shuffle_;
  std::uint64_t seed_;
  std::int64_t samples_ = 0;
  std::vector<Epoch> epochs_;
};

}  // namespace hspmd
