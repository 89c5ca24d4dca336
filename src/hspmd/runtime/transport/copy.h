// Copies between the memories of ranks.
#pragma once

#include <cstddef>

namespace hspmd {

// From so many bytes on, which all ranks of a team touch together, nothing that is written is still in a cache when it
// is read.
inline constexpr std::size_t kBeyondCaches = 48 << 20;

// As memcpy.
void copy(void* into, const void* from, std::size_t bytes);
// The same for data that nobody finds in a cache anyway: writes without reading what was there before, and looks up
// pages before it comes to them. Alike in speed at 4 KiB, 2-3 times as fast at 64 MiB.
void copy_beyond_caches(void* into, const void* from, std::size_t bytes);

}  // namespace hspmd
