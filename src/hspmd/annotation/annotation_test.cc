// Law 6 for annotations, then tables: cuts, canonical forms, shards, damaged texts.
#include "hspmd/annotation/annotation.h"

#include <gtest/gtest.h>

#include "hspmd/annotation/annotation_samples.h"

namespace hspmd {
namespace {

TEST(AnnotationLaw, PrintingAndParsingGivesEverySmallAnnotationBack) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
    for (int devices = 1; devices <= 4; ++devices) {
      for (const Annotation& a : samples::all_annotations(devices, 2, reduction)) {
        ASSERT_EQ(parse_annotation(to_string(a)), a) << to_string(a);
      }
    }
  }
}

TEST(AnnotationLaw, PrintingAndParsingGivesRandomAnnotationsBack) {
  samples::Random random(11);
  for (int i = 0; i < 5000; ++i) {
    const Annotation a = samples::random_annotation(random, 24, 8, i % 2 == 0 ? Reduction::kSum : Reduction::kMax);

    ASSERT_EQ(parse_annotation(to_string(a)), a) << to_string(a);
  }
}

// Every element is held, and by one addend of one subgroup as often as by another: the parts of a cut meet.
TEST(AnnotationLaw, EverySubgroupHoldsItsWholePart) {
  samples::Random random(5);
  const Shape shape = {7, 5};
  for (int i = 0; i < 2000; ++i) {
    const Annotation a = samples::random_annotation(random, 8, 2, Reduction::kSum);
    std::int64_t held = 0, expected = 0;
    for (std::size_t k = 0; k < a.subgroups().size(); ++k) {
      const Subgroup& subgroup = a.subgroups()[k];
      std::int64_t copies = 1;  // of each element inside the subgroup
      for (const Axis& axis : subgroup.axes()) copies *= is_split(axis.placement) ? 1 : axis.degree;
      Box part = whole(shape);
      if (a.top() && is_split(a.top()->placement)) {
        const auto dim = static_cast<std::size_t>(std::get<Split>(a.top()->placement).dim);
        part[dim] = cut(shape[dim], static_cast<int>(k), static_cast<int>(a.subgroups().size()), a.top()->weights);
      }
      expected += copies * volume(part);
      for (const Device d : subgroup.devices()) held += volume(owned(a, d, shape)->box);
    }

    ASSERT_EQ(held, expected) << to_string(a);
  }
}

TEST(Cut, FollowsTheOneRule) {
  struct Row {
    std::int64_t n;
    Weights weights;
    int parts;
    std::vector<std::int64_t> sizes;
  };
  const Row rows[] = {
      {10, {}, 4, {2, 3, 2, 3}},
      {10, {}, 3, {3, 3, 4}},
      {3, {}, 4, {0, 1, 1, 1}},
      {0, {}, 2, {0, 0}},
      {1, {}, 1, {1}},
      {10, {3, 1}, 2, {7, 3}},
      {4, {0, 1}, 2, {0, 4}},
      {4, {1, 0}, 2, {4, 0}},
      {7, {1, 0, 2}, 3, {2, 0, 5}},
      {5, {2, 2}, 2, {2, 3}},
      {std::int64_t{1} << 40, {(std::int64_t{1} << 40) - 1, 1}, 2, {(std::int64_t{1} << 40) - 1, 1}},
  };
  for (const Row& row : rows) {
    std::int64_t at = 0;
    for (int i = 0; i < row.parts; ++i) {
      const Interval part = cut(row.n, i, row.parts, row.weights);

      EXPECT_EQ(part.begin, at) << row.n << " part " << i;
      EXPECT_EQ(part.size(), row.sizes[static_cast<std::size_t>(i)]) << row.n << " part " << i;
      at = part.end;
    }
    EXPECT_EQ(at, row.n);
  }
}

TEST(Annotation, IsCanonical) {
  const std::pair<const char*, const char*> rows[] = {
      {"{0-3:S0x4}", "{0-3: S0x4}"},
      {"{0: Dx1 S0x1}", "{0:}"},
      {"{0-3: Dx2 Dx2}", "{0-3: Dx4}"},
      {"{0-3: Px2 Px2}", "{0-3: Px4}"},
      {"{0-7: Dx2 S0x1 Dx4}", "{0-7: Dx8}"},
      {"{0-5: S0x2 S0x3}", "{0-5: S0x2 S0x3}"},
      {"{0-7: Dx2 Px2 Dx2}", "{0-7: Dx2 Px2 Dx2}"},
      {"{0-1: S0x2w4:2}", "{0-1: S0x2w2:1}"},
      {"{0-1: S0x2w5:5}", "{0-1: S0x2}"},
      {"{0-2: S0x3w0:4:2}", "{0-2: S0x3w0:2:1}"},
      {"top S1 w7 {3: }", "{3:}"},
      {"top D {0: | 1: }", "top D {0: | 1:}"},
      {"top S0 w6:2 {0: | 1:}", "top S0 w3:1 {0: | 1:}"},
      {"{0,1,2,4,3: Dx5}", "{0-2,4,3: Dx5}"},
      {"{3,2,1: S0x3}", "{3,2,1: S0x3}"},
      {"  top  Pmax{0-1:Pmaxx2|2:}", "top Pmax {0-1: Pmaxx2 | 2:}"},
      {"{0-1: S 0 x 2 w 1 : 3}", "{0-1: S0x2w1:3}"},
  };
  for (const auto& [text, canonical] : rows) EXPECT_EQ(to_string(parse_annotation(text)), canonical) << text;
}

TEST(Annotation, TellsWhoOwnsWhat) {
  struct Row {
    const char* annotation;
    Shape shape;
    Device device;
    Shard shard;
  };
  const Row rows[] = {
      {"{0-3: S0x2 S1x2}", {5, 3}, 2, {{{2, 5}, {0, 1}}, 0, 0}},
      {"{0-3: S0x4}", {10}, 1, {{{2, 5}}, 0, 0}},
      {"{0-3: S0x2 S0x2}", {10}, 1, {{{2, 5}}, 0, 0}},
      {"{0-3: S0x4}", {3}, 0, {{{0, 0}}, 0, 0}},
      {"{0-3: Px2 S0x2}", {4}, 3, {{{2, 4}}, 0, 1}},
      {"{0-7: Px2 Dx2 Px2}", {4}, 5, {{{0, 4}}, 0, 3}},
      {"top S0 w3:1 {0,3: S1x2 | 5:}", {4, 6}, 3, {{{0, 3}, {3, 6}}, 0, 0}},
      {"top S0 w3:1 {0,3: S1x2 | 5:}", {4, 6}, 5, {{{3, 4}, {0, 6}}, 1, 0}},
      {"top S0 w1:0 {0: | 1:}", {4}, 1, {{{4, 4}}, 1, 0}},
      {"top P {0-1: Px2 | 2:}", {2}, 1, {{{0, 2}}, 0, 1}},
      {"top S0 {0-1: S0x2w1:2 | 2-3: S0x2}", {9}, 1, {{{1, 4}}, 0, 0}},
      {"{7:}", {}, 7, {{}, 0, 0}},
      {"{4,2: S0x2}", {0}, 2, {{{0, 0}}, 0, 0}},
  };
  for (const Row& row : rows)
    EXPECT_EQ(owned(parse_annotation(row.annotation), row.device, row.shape), row.shard)
        << row.annotation << " of " << row.device;
}

TEST(Annotation, OwnsNothingBeyondItsDevicesAndRefusesDimsThatAreNotThere) {
  const Annotation a = parse_annotation("{0-1: S1x2}");

  EXPECT_EQ(owned(a, 2, {4, 4}), std::nullopt);
  EXPECT_THROW((void)owned(a, 0, {4}), InvalidArgument);
  EXPECT_EQ(least_rank(a), 2);
  EXPECT_EQ(subgroup_of(a, 1), 0);
  EXPECT_FALSE(holds(a, 2));
}

TEST(Annotation, ComparesLayouts) {
  struct Row {
    const char* a;
    const char* b;
    Shape shape;
    bool same;
  };
  const Row rows[] = {
      {"{0-1: Dx2}", "top D {0: | 1:}", {4}, true},    {"{0-3: S0x2 S0x2}", "{0-3: S0x4}", {8}, true},
      {"{0-3: S0x2 S0x2}", "{0-3: S0x4}", {10}, true}, {"{0-5: S0x2 S0x3}", "{0-5: S0x6}", {3}, false},
      {"{0-1: S0x2}", "{1,0: S0x2}", {4}, false},      {"{0-1: Dx2}", "{1,0: Dx2}", {4}, true},
      {"{0-1: Px2}", "{1,0: Px2}", {4}, false},        {"{0-1: Px2}", "top P {0: | 1:}", {4}, false},
      {"{0-1: S0x2}", "{0-1: S0x2w1:2}", {0}, true},   {"{0-1: Dx2}", "{0-2: Dx3}", {4}, false},
      {"top S0 {0: | 1:}", "{0-1: S0x2}", {5}, true},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(same_layout(parse_annotation(row.a), parse_annotation(row.b), row.shape), row.same)
        << row.a << " and " << row.b;
  }
}

TEST(Annotation, RefusesDamagedTexts) {
  const char* rows[] = {
      "",
      " ",
      "{",
      "}",
      "{}",
      "{0}",
      "{:}",
      "{0:",
      "{0: | }",
      "{0:} x",
      "{0: S0}",
      "{0: S0x}",
      "{0: Sx2}",
      "{0-1: S0x3}",
      "{0-1:}",
      "{0-1: S0x2w1}",
      "{0-1: S0x2w1:2:3}",
      "{0-1: S0x2w0:0}",
      "{0-1: S0x2w1:-1}",
      "{0-1: Dx2w1:2}",
      "{0-1: Px2w1:1}",
      "{1-0: Dx2}",
      "{0-0: }",
      "{0,0: Dx2}",
      "{0-2,1: Dx4}",
      "{0: | 1:}",
      "top {0: | 1:}",
      "top X {0: | 1:}",
      "top D {0: | 0:}",
      "top D w1:2 {0: | 1:}",
      "top S0 w1 {0: | 1:}",
      "top S0 w0:0 {0: | 1:}",
      "top P {0-1: Pmaxx2 | 2:}",
      "{0-3: Px2 Pmaxx2}",
      "{0-1: S8x2}",
      "{0-1: S99999999999999999999x2}",
      "{0-1: Dx0}",
      "{0-999999999: Dx1000000000}",
      "{99999999999: }",
      "{0-1: S0x2w99999999999999999999:1}",
      "{0-1: dx2}",
      "{-1: }",
      "{0 1: Dx2}",
      "{0-1: Dx2",
      "top",
      "\xff{0:}",
      "{0-1: Dx99999999999}",
      "{0-3: Dx4294967297 Dx4}",
      "{16777216:}",
  };
  for (const char* text : rows) EXPECT_THROW((void)parse_annotation(text), InvalidArgument) << "\"" << text << "\"";
}

// Any one character less, doubled or changed gives a value or an InvalidArgument.
TEST(Annotation, SurvivesSmallDamage) {
  const std::string text = "top S0 w3:1 {0,3-4: S1x3w2:1:1 | 5-8: Px2 Dx2}";
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const std::string& put :
         {std::string(), std::string(2, text[i]), std::string("9"), std::string("|"), std::string(1, '\0')}) {
      std::string damaged = text;
      damaged.replace(i, 1, put);
      try {
        const Annotation a = parse_annotation(damaged);
        EXPECT_EQ(parse_annotation(to_string(a)), a) << damaged;
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("[annotation]"), std::string::npos) << damaged;
      }
    }
  }
}

}  // namespace
}  // namespace hspmd
