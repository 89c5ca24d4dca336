#include "hspmd/runtime/transport/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hspmd {

void copy(void* into, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(into, from, bytes);
}

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kAhead = 1024;  // bytes; the processor's own prefetch ends with each page

void stream_line(std::byte* into, const std::byte* from) {
  for (std::size_t i = 0; i < kLine; i += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(into + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
}

}  // namespace

void copy_beyond_caches(void* into, const void* from, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(into);
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t before = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  copy(to, source, before);
  const std::size_t end = before + (bytes - before) / kLine * kLine;
  for (std::size_t page = before; page < end; page += kPage) {
    // A prefetch beyond the end does nothing.
    _mm_prefetch(reinterpret_cast<const char*>(source + page + 2 * kPage), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(to + page + 2 * kPage), _MM_HINT_T0);
    for (std::size_t i = page; i < std::min(end, page + kPage); i += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(source + i + kAhead), _MM_HINT_T0);
      stream_line(to + i, source + i);
    }
  }
  _mm_sfence();  // such stores are not ordered before the flag that others wait for
  copy(to + end, source + end, bytes - end);
}
#else
void copy_beyond_caches(void* into, const void* from, std::size_t bytes) {
  copy(into, from, bytes);
}
#endif

}  // namespace hspmd
