// Runs one kernel on memory that shows what it did to it:
//
//   run_guarded<float>(c, request_of<float>(c, Write::kSet), make_reference_kernel)        -> the results' values
//
// Every operand, every result and the workspace lies between zones that nobody may write. Results (unless they are
// added to) and workspace hold floats that are no numbers at first, so that what is read without being set shows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "hspmd/runtime/kernels/kernel_cases.h"

namespace hspmd {

// Memory for one tensor, 64-byte aligned, between two zones. All bytes are 0xFF at first.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes)
      : bytes_(bytes), memory_(kZone + (bytes + 2 * kZone - 1) / kZone * kZone + kZone, std::byte{0xFF}) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (kZone - address % kZone) % kZone + kZone;
    before_ = memory_;
  }
  template <typename T>
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size() * sizeof(T)) {
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), bytes_, memory_.begin() + std::ptrdiff_t(begin_));
    before_ = memory_;
  }
  Guarded(Guarded&&) = default;
  Guarded(const Guarded&) = delete;

  // Null where the tensor is empty, as planned memory may be.
  [[nodiscard]] std::byte* data() { return bytes_ == 0 ? nullptr : memory_.data() + begin_; }
  [[nodiscard]] std::vector<std::byte> content() const {
    return {memory_.begin() + std::ptrdiff_t(begin_), memory_.begin() + std::ptrdiff_t(begin_ + bytes_)};
  }
  template <typename T>
  [[nodiscard]] std::vector<T> values() {
    std::vector<T> all(bytes_ / sizeof(T));
    std::copy_n(memory_.begin() + std::ptrdiff_t(begin_), bytes_, reinterpret_cast<std::byte*>(all.data()));
    return all;
  }
  [[nodiscard]] bool untouched() const { return memory_ == before_; }
  [[nodiscard]] bool zones_untouched() const {
    const auto begin = std::ptrdiff_t(begin_), end = std::ptrdiff_t(begin_ + bytes_);
    return std::equal(memory_.begin(), memory_.begin() + begin, before_.begin()) &&
           std::equal(memory_.begin() + end, memory_.end(), before_.begin() + end);
  }

 private:
  static constexpr std::size_t kZone = 64;
  std::size_t bytes_;
  std::size_t begin_ = 0;
  std::vector<std::byte> memory_, before_;
};

template <typename T>
Guarded operand_of(const Case& c, std::size_t i, std::mt19937& random) {
  std::normal_distribution<double> normal;
  const Fill fill = i < c.fills.size() ? c.fills[i] : Fill::kNormal;
  const auto n = static_cast<std::size_t>(volume(c.operands[i]));
  std::vector<T> floats(n);
  std::vector<std::int32_t> ints(n);
  for (std::size_t e = 0; e < n; ++e) {
    floats[e] = static_cast<T>(fill == Fill::kPositive ? 1 + std::abs(normal(random)) : normal(random));
    const auto r = static_cast<std::int32_t>(random() % 9);
    ints[e] = fill == Fill::kPositions  ? static_cast<std::int32_t>((e * 5) % 11)
              : fill == Fill::kSegments ? r / 5
              : fill == Fill::kTargets  ? r - 2
                                        : r;
  }
  return is_integer(fill) ? Guarded(ints) : Guarded(floats);
}

// Runs a kernel on memory of its own; the results whose bit of `in_place` is set lie where their operands lie.
template <typename T>
std::vector<std::vector<T>> run_guarded(const Case& c, const KernelRequest& request, Maker make,
                                        unsigned in_place = 0) {
  std::mt19937 random(17);
  std::vector<Guarded> operands, results;
  for (std::size_t i = 0; i < c.operands.size(); ++i) operands.push_back(operand_of<T>(c, i, random));
  std::vector<const void*> in;
  for (Guarded& operand : operands) in.push_back(operand.data());
  std::vector<void*> out;
  std::vector<Guarded*> written(operands.size(), nullptr);
  std::vector<Guarded*> result_at;
  results.reserve(c.results.size());
  for (std::size_t r = 0; r < c.results.size(); ++r) {
    const auto n = static_cast<std::size_t>(volume(c.results[r]));
    if (request.write == Write::kAdd) {
      results.emplace_back(std::vector<T>(n, T{0.25}));
    } else {
      results.emplace_back(n * sizeof(T));
    }
    result_at.push_back(&results.back());
    if ((in_place >> r & 1U) != 0) {
      const auto operand = static_cast<std::size_t>(request.op->overwrites(static_cast<int>(r)));
      result_at.back() = written[operand] = &operands[operand];
    }
    out.push_back(result_at.back()->data());
  }
  const std::unique_ptr<Kernel> kernel = make(request);
  Guarded workspace(kernel->workspace_bytes());

  kernel->run(in, out, workspace.data());

  for (std::size_t i = 0; i < operands.size(); ++i) {
    EXPECT_TRUE(written[i] != nullptr ? operands[i].zones_untouched() : operands[i].untouched())
        << "operand " << i << " is written";
  }
  for (std::size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].zones_untouched()) << "result " << r << " is exceeded";
  EXPECT_TRUE(workspace.zones_untouched()) << "the workspace is exceeded";
  std::vector<std::vector<T>> values;
  for (Guarded* result : result_at) values.push_back(result->values<T>());
  return values;
}

}  // namespace hspmd
