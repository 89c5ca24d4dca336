// A pull made ready to run: loops over the boxes of several row-major buffers at once, with the longest common
// contiguous runs inside.
#pragma once

#include <vector>

#include "hspmd/specialize/exchange.h"

namespace hspmd {

struct StridedPull {
  std::int64_t run = 0;                            // contiguous elements
  std::vector<std::int64_t> extents;               // outer loops, the slowest first
  std::vector<std::vector<std::int64_t>> strides;  // [buffer][loop]; buffer 0 is mine, then the sources
  std::vector<std::int64_t> offsets;               // [buffer], elements
  std::vector<Device> devices;                     // of the sources
};

[[nodiscard]] StridedPull make_strided(const Pull& pull);

enum class ElementType { kFp32, kFp64, kInt32 };

// The sources' buffers, and room for as many pointers: a pull allocates nothing.
struct PullSources {
  const void* const* buffers = nullptr;
  const void** scratch = nullptr;
};

// Writes the sum (or max) of the sources into mine; buffers as in StridedPull. No source: the neutral element.
void run_strided(const StridedPull& pull, ElementType type, Reduction reduction, void* mine,
                 const PullSources& sources);

}  // namespace hspmd
