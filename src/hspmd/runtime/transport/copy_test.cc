#include "hspmd/runtime/transport/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace hspmd {
namespace {

TEST(Copy, EveryAlignmentAndLengthAndNothingBeside) {
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 4095, 4096, 4161, 20000}) {
    for (const std::size_t shift : {0, 1, 16, 63}) {
      std::vector<unsigned char> from(bytes + 128), into(bytes + 128, 255);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i % 251);
      std::vector<unsigned char> wanted = into;
      std::copy_n(from.begin() + 7, bytes, wanted.begin() + static_cast<std::ptrdiff_t>(shift));

      copy_beyond_caches(into.data() + shift, from.data() + 7, bytes);

      EXPECT_EQ(into, wanted) << bytes << " bytes at " << shift;
    }
  }
}

}  // namespace
}  // namespace hspmd
