#include "hspmd/annotation/annotation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace hspmd {
namespace {

TEST(Annotation, PrintsAndParsesBack) {
  const char* texts[] = {
      "{0:}", "{0-3: S0x2 Px2}", "{0,3: S1x2w2:1}", "top S0 w3:1 {0,3: S1x2w2:1 | 5:}", "top D {0-1: S0x2 | 2-4: S0x3}", "top P {0: | 1:}", "{0-1: Pmaxx2}",
      "top S7 {0: | 1: | 9:}", "{2,0-1: S0x3}", "{0-5: S0x2 S0x3}",
  };
  for (const char* text : texts) EXPECT_EQ(to_string(parse_annotation(text)), text);
}

TEST(Annotation, RandomOnesPrintAndParseBack) {
  std::mt19937 random(3);
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 3000; ++i) {
    std::vector<Subgroup> subgroups;
    Device next = draw(4);
    for (int k = 0; k <= draw(3); ++k) {
      std::vector<Axis> axes;
      int devices = 1;
      for (int a = 0; a < draw(4); ++a) {
        const int degree = 1 + draw(3);
        devices *= degree;
        Axis axis{draw(3) == 0 ? Placement{Duplicate{}} : draw(2) == 0 ? Placement{Partial{}} : Placement{Split{draw(8)}}, degree};
        if (is_split(axis.placement) && draw(2) == 0) {
          for (int w = 0; w < degree; ++w) axis.weights.push_back(1 + draw(5));
        }
        axes.push_back(axis);
      }
      std::vector<Device> ids;
      for (int d = 0; d < devices; ++d) ids.push_back(next += 1 + draw(2));
      std::shuffle(ids.begin(), ids.end(), random);
      subgroups.emplace_back(ids, axes);
    }
    const Annotation annotation(subgroups, Top{draw(2) == 0 ? Placement{Duplicate{}} : Placement{Split{draw(4)}}});

    EXPECT_EQ(parse_annotation(to_string(annotation)), annotation) << to_string(annotation);
  }
}

TEST(Annotation, CanonicalFormMakesEqualityStructural) {
  const std::pair<const char*, const char*> rows[] = {
      {"{0-3: Dx2 Dx2}", "{0-3: Dx4}"},         {"{0-3: Px2 Px2}", "{0-3: Px4}"},   {"{0-1: S0x2w4:2}", "{0-1: S0x2w2:1}"}, {"{0-1: S0x2w3:3}", "{0-1: S0x2}"},
      {"top S0 {0-1: Dx2}", "{0-1: Dx2}"},      {"{0-1: S1x1 S0x2}", "{0-1: S0x2}"}, {" { 0 - 1 :S0x2 } ", "{0-1: S0x2}"},   {"top S0 w2:2 {0:|1:}", "top S0 {0: | 1:}"},
      {"{0-3: Dx2 S0x1 Dx2}", "{0-3: Dx4}"},
  };
  for (const auto& [a, b] : rows) EXPECT_EQ(parse_annotation(a), parse_annotation(b)) << a;
  EXPECT_NE(parse_annotation("{0-5: S0x2 S0x3}"), parse_annotation("{0-5: S0x6}"));
}

TEST(Annotation, TheCutIsTheFloorOfPrefixSums) {
  struct Row {
    std::int64_t n;
    Weights weights;
    int parts;
    std::vector<std::int64_t> sizes;
  };
  const Row rows[] = {
      {10, {}, 4, {2, 3, 2, 3}}, {3, {}, 4, {0, 1, 1, 1}}, {0, {}, 2, {0, 0}}, {7, {2, 1}, 2, {4, 3}}, {5, {0, 1}, 2, {0, 5}}, {4, {3, 1}, 2, {3, 1}}, {1, {}, 1, {1}},
  };
  for (const Row& row : rows) {
    std::vector<std::int64_t> sizes;
    std::int64_t next = 0;
    for (int i = 0; i < row.parts; ++i) {
      const Interval part = cut(row.n, i, row.parts, row.weights);
      EXPECT_EQ(part.begin, next);
      next = part.end;
      sizes.push_back(part.size());
    }
    EXPECT_EQ(sizes, row.sizes);
    EXPECT_EQ(next, row.n);
  }
  EXPECT_EQ(cut(std::int64_t{1} << 61, 1, 2, {1 << 20, 1 << 20}).begin, std::int64_t{1} << 60);  // no overflow
}

TEST(Annotation, OwnedSaysWhoHoldsWhat) {
  struct Row {
    const char* annotation;
    Device device;
    Shape shape;
    Box box;
    int subgroup, addend;
  };
  const Row rows[] = {
      {"top S0 w3:1 {0,3: S1x2 | 5:}", 0, {4, 6}, {{0, 3}, {0, 3}}, 0, 0}, {"top S0 w3:1 {0,3: S1x2 | 5:}", 3, {4, 6}, {{0, 3}, {3, 6}}, 0, 0},
      {"top S0 w3:1 {0,3: S1x2 | 5:}", 5, {4, 6}, {{3, 4}, {0, 6}}, 1, 0}, {"{0-3: S0x2 Px2}", 3, {5}, {{2, 5}}, 0, 1},
      {"{0-3: Px2 S0x2}", 2, {5}, {{0, 2}}, 0, 1},                        {"{0-5: S0x2 S0x3}", 4, {7}, {{4, 5}}, 0, 0},
      {"{0-3: S0x4}", 0, {3}, {{0, 0}}, 0, 0},                            {"top P {0: | 7:}", 7, {}, {}, 1, 0},
  };
  for (const Row& row : rows) {
    const auto shard = owned(parse_annotation(row.annotation), row.device, row.shape);
    ASSERT_TRUE(shard.has_value());
    EXPECT_EQ(*shard, (Shard{row.box, row.subgroup, row.addend})) << row.annotation << " device " << row.device;
  }
  EXPECT_EQ(owned(parse_annotation("{0:}"), 1, {4}), std::nullopt);
  EXPECT_THROW((void)owned(parse_annotation("{0-1: S2x2}"), 0, {4, 4}), InvalidArgument);
}

TEST(Annotation, DamagedTextsAreErrors) {
  const char* texts[] = {
      "", "{", "{}", "{0}", "{0:", "{0: S0}", "{0-1: S0x}", "{0-1: S0x2w}", "{0-1: S0x2w1}", "{0-1: S0x2w1:2:3}", "{0-1: Dx2w1:1}", "{0-1: S0x2w0:0}", "{0-1: S0x3}",
      "{0,0: Dx2}", "{0: | 0:}", "{0: | 1:}", "top S0 {0: | 1:} x", "{1-0: Dx2}", "{0-1: Px2", "{0-3: Px2 Pmaxx2}", "{-1:}", "{0-99999999999999: Dx2}", "{0: S9x1}", "top Q {0:}",
      "{0-1: S0x-2}", "{99999999999999999999:}", "{0-1: S0x2w99999999999999999999:1}", "{0-1048577: Dx1048578}",
  };
  for (const char* text : texts) EXPECT_THROW((void)parse_annotation(text), InvalidArgument) << text;
}

TEST(Annotation, SameLayoutLooksThroughTheText) {
  EXPECT_TRUE(same_layout(parse_annotation("{0-3: S0x2 S0x2}"), parse_annotation("{0-3: S0x4}"), {8}));
  EXPECT_FALSE(same_layout(parse_annotation("{0-5: S0x2 S0x3}"), parse_annotation("{0-5: S0x6}"), {9}));
  EXPECT_FALSE(same_layout(parse_annotation("{0-1: Px2}"), parse_annotation("{0-1: Dx2}"), {8}));
}

}  // namespace
}  // namespace hspmd
