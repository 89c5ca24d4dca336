#include "hspmd/comm/overlay.h"

#include <gtest/gtest.h>

#include "hspmd/annotation/annotation_samples.h"
#include "hspmd/base/errors.h"

namespace hspmd::comm {
namespace {

Overlay overlay_of(const char* from, const char* to, const Shape& shape) {
  return overlay(parse_annotation(from), parse_annotation(to), shape);
}

// Cells cover the tensor once, and a part is named by a cell just where its box covers the cell.
TEST(OverlayLaw, CellsCoverTheTensorOnceAndNameWhoeverHoldsThem) {
  samples::Random random(3);
  for (int i = 0; i < 3000; ++i) {
    const int rank = samples::draw(random, 0, 3);
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(samples::draw(random, 0, 9));
    const Annotation from = samples::random_annotation(random, 8, rank, Reduction::kSum);
    const Annotation to = samples::random_annotation(random, 8, rank, Reduction::kSum);

    const Overlay result = overlay(from, to, shape);

    std::int64_t covered = 0;
    for (std::size_t c = 0; c < result.cells.size(); ++c) {
      const Cell& cell = result.cells[c];
      covered += volume(cell.box);
      ASSERT_TRUE(c == 0 || result.cells[c - 1].box < cell.box);
      const auto expect_named = [&](const Layout& layout, std::span<const std::uint32_t> named) {
        std::vector<std::uint32_t> expected;
        for (std::uint32_t p = 0; p < layout.parts.size(); ++p) {
          const auto common = intersect(layout.parts[p].box, cell.box);
          if (!common) continue;
          ASSERT_EQ(*common, cell.box);
          expected.push_back(p);
        }
        ASSERT_EQ(std::vector<std::uint32_t>(named.begin(), named.end()), expected);
      };
      expect_named(result.from, result.sources(cell));
      expect_named(result.to, result.destinations(cell));
    }
    ASSERT_EQ(covered, volume(shape)) << to_string(from) << " -> " << to_string(to) << " of " << to_string(shape);
  }
}

TEST(Overlay, CutsWhereSomebodyElseBegins) {
  struct Row {
    const char* from;
    const char* to;
    Shape shape;
    std::vector<std::string> cells;
  };
  const Row rows[] = {
      {"{0-1: S0x2}", "{0-2: S0x3}", {6}, {"[0,2)", "[2,3)", "[3,4)", "[4,6)"}},
      {"{0-1: S0x2}", "{0-1: S1x2}", {3, 2}, {"[0,1)x[0,1)", "[0,1)x[1,2)", "[1,3)x[0,1)", "[1,3)x[1,2)"}},
      {"top S0 {0-1: S1x2 | 2:}", "top S0 {0: | 1:}", {2, 2}, {"[0,1)x[0,1)", "[0,1)x[1,2)", "[1,2)x[0,2)"}},
      {"{0-3: S0x4}", "{0:}", {2}, {"[0,1)", "[1,2)"}},
      {"{0-1: S0x2w0:1}", "{0:}", {4}, {"[0,4)"}},
      {"{0-7: Px8}", "{0-7: Dx8}", {5}, {"[0,5)"}},
      {"{0:}", "{1:}", {0}, {}},
  };
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Cell& cell : overlay_of(row.from, row.to, row.shape).cells) cells.push_back(to_string(cell.box));

    EXPECT_EQ(cells, row.cells) << row.from << " -> " << row.to;
  }
}

TEST(Overlay, RefusesMorePiecesThanMemoryHolds) {
  const auto lies = [](const std::string& to, std::int64_t n) {
    return overlay(parse_annotation("{0-65535: S0x65536}"), parse_annotation(to), {n, n}).cells.size();
  };

  EXPECT_EQ(lies("{0-65535: S0x32768 Dx2}", 65536), 65536U);
  EXPECT_THROW(lies("{0-65535: S1x65536}", 65536), InvalidArgument);  // 2^32 mentions of a shard
  EXPECT_THROW(lies("{0-1048575: S1x1048576}", 1048576), InvalidArgument);
  EXPECT_THROW(lies("{0-65535: Dx65536}", 65536), InvalidArgument);  // 2^32 of a device
}

TEST(Overlay, ScalarHasOneCell) {
  const Overlay result = overlay_of("top P {0-1: Px2 | 2:}", "{0-2: Dx3}", {});

  ASSERT_EQ(result.cells.size(), 1U);
  EXPECT_EQ(result.from.subgroups, Subgroups::kAddends);
  EXPECT_EQ(result.sources(result.cells[0]).size(), 2U);
  EXPECT_EQ(result.to.parts.at(0).addends, (std::vector<Replicas>{{0, 1, 2}}));
}

}  // namespace
}  // namespace hspmd::comm
