#include "hspmd/runtime/transport/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace hspmd {
namespace {

constexpr std::size_t kBlock = 1024;  // elements; stays in the first cache over all sources

template <typename T, Reduction kOp>
inline __attribute__((always_inline)) T joined(T a, T b) {
  return kOp == Reduction::kSum ? a + b : std::max(a, b);
}

template <typename T, Reduction kOp>
inline __attribute__((always_inline)) void join_block(T* into, std::span<const void* const> sources, std::size_t begin,
                                                      std::size_t end) {
  // Through memory of its own, since `into` may be a later source.
  T sum[kBlock];
  const T* a = static_cast<const T*>(sources[0]) + begin;
  const T* b = static_cast<const T*>(sources[1]) + begin;
  const std::size_t n = end - begin;
  for (std::size_t i = 0; i < n; ++i) sum[i] = joined<T, kOp>(a[i], b[i]);
  for (std::size_t s = 2; s < sources.size(); ++s) {
    const T* c = static_cast<const T*>(sources[s]) + begin;
    for (std::size_t i = 0; i < n; ++i) sum[i] = joined<T, kOp>(sum[i], c[i]);
  }
  std::memcpy(into + begin, sum, n * sizeof(T));
}

template <typename T, Reduction kOp>
inline __attribute__((always_inline)) void join_all(T* into, std::span<const void* const> sources, std::size_t n) {
  for (std::size_t begin = 0; begin < n; begin += kBlock)
    join_block<T, kOp>(into, sources, begin, std::min(n, begin + kBlock));
}

template <typename T, Reduction kOp>
void join_baseline(T* into, std::span<const void* const> sources, std::size_t n) {
  join_all<T, kOp>(into, sources, n);
}

#if defined(__x86_64__)
template <typename T, Reduction kOp>
__attribute__((target("avx2"))) void join_avx2(T* into, std::span<const void* const> sources, std::size_t n) {
  join_all<T, kOp>(into, sources, n);
}
const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
#endif

template <typename T, Reduction kOp>
void join(T* into, std::span<const void* const> sources, std::size_t n) {
  if (sources.empty()) {
    constexpr T kLowest =
        std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    std::fill_n(into, n, kOp == Reduction::kSum ? T{0} : kLowest);
    return;
  }
  if (sources.size() == 1) {
    if (into != sources[0] && n > 0) std::memcpy(into, sources[0], n * sizeof(T));
    return;
  }
#if defined(__x86_64__)
  if (kHasAvx2) {
    join_avx2<T, kOp>(into, sources, n);
    return;
  }
#endif
  join_baseline<T, kOp>(into, sources, n);
}

}  // namespace

template <typename T>
void reduce(Reduction reduction, T* into, std::span<const void* const> sources, std::size_t n) {
  if (reduction == Reduction::kSum) {
    join<T, Reduction::kSum>(into, sources, n);
  } else {
    join<T, Reduction::kMax>(into, sources, n);
  }
}

template void reduce(Reduction, float*, std::span<const void* const>, std::size_t);
template void reduce(Reduction, double*, std::span<const void* const>, std::size_t);
template void reduce(Reduction, std::int32_t*, std::span<const void* const>, std::size_t);

}  // namespace hspmd
