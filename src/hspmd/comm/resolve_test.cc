// Laws 1 and 2: every pair of annotations resolves, the plan means the same tensor, and no plan beats the bounds.
#include <gtest/gtest.h>

#include <random>

#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/interpret.h"

namespace hspmd {
namespace {

using Random = std::mt19937;

int draw(Random& random, int least, int most) { return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1)); }

std::vector<std::int64_t> test_tensor(const Shape& shape) {
  std::vector<std::int64_t> tensor(static_cast<std::size_t>(volume(shape)));
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::int64_t>(i) * 7919 + 13;
  return tensor;
}

// Throws, or fails the test, unless the plan is right.
void expect_law(const Annotation& from, const Annotation& to, const Shape& shape) {
  SCOPED_TRACE(to_string(from) + "  ->  " + to_string(to) + "  of " + to_string(shape));
  Random random(1);
  const auto tensor = test_tensor(shape);
  const auto before = comm::lay_out(from, tensor, shape, [&] { return static_cast<std::int64_t>(random() % 1000) - 500; });
  const CommPlan plan = resolve(from, to, shape, Cluster::uniform(8));

  const auto after = comm::interpret(plan, before, shape);

  ASSERT_EQ(comm::meaning(to, after, shape), tensor) << to_string(plan);
  ASSERT_GE(plan.bytes, plan.lower_bound_bytes) << to_string(plan);
  ASSERT_GE(plan.finish_s, plan.finish_bound_s * (1 - 1e-9)) << to_string(plan);
  for (const CommStage& stage : plan.stages) {
    for (const CommGroup& group : stage.groups) {
      for (const Move& move : group.moves) {
        for (const Device d : move.destinations) {
          ASSERT_NE(std::find(group.participants.begin(), group.participants.end(), d), group.participants.end());
        }
      }
    }
  }
}

std::vector<Weights> weights_for(int degree) {
  if (degree == 2) return {{}, {3, 1}, {0, 1}};
  return {{}};
}

// All axes lists whose degrees multiply to n, over dims below rank.
std::vector<std::vector<Axis>> all_axes(int n, int rank, Reduction reduction) {
  if (n == 1) return {{}};
  std::vector<std::vector<Axis>> lists;
  for (int degree = 2; degree <= n; ++degree) {
    if (n % degree != 0) continue;
    std::vector<Axis> heads = {{Duplicate{}, degree}, {Partial{reduction}, degree}};
    for (int d = 0; d < rank; ++d) {
      for (const Weights& w : weights_for(degree)) heads.push_back({Split{d}, degree, w});
    }
    for (const Axis& head : heads) {
      for (std::vector<Axis> rest : all_axes(n / degree, rank, reduction)) {
        rest.insert(rest.begin(), head);
        lists.push_back(std::move(rest));
      }
    }
  }
  return lists;
}

std::vector<Annotation> all_annotations(int devices, int rank, Reduction reduction) {
  std::vector<Annotation> all;
  const auto add = [&](const Annotation& a) {
    if (std::find(all.begin(), all.end(), a) == all.end()) all.push_back(a);
  };
  std::vector<Device> ids;
  for (int d = 0; d < devices; ++d) ids.push_back(d);
  for (const auto& axes : all_axes(devices, rank, reduction)) add(Annotation(Subgroup(ids, axes)));
  std::vector<Top> tops = {{Duplicate{}}, {Partial{reduction}}};
  for (int d = 0; d < rank; ++d) tops.push_back({Split{d}, {2, 1}});
  for (int left = 1; left < devices; ++left) {
    for (const auto& a : all_axes(left, rank, reduction)) {
      for (const auto& b : all_axes(devices - left, rank, reduction)) {
        for (const Top& top : tops) {
          add(Annotation({Subgroup({ids.begin(), ids.begin() + left}, a), Subgroup({ids.begin() + left, ids.end()}, b)}, top));
        }
      }
    }
  }
  return all;
}

TEST(ResolveLaw, HoldsForAllPairsOverThreeDevices) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
    const auto annotations = all_annotations(3, 2, reduction);
    for (const Annotation& from : annotations) {
      for (const Annotation& to : annotations) {
        expect_law(from, to, {3, 2});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ResolveLaw, HoldsForAllPairsBetweenTwoAndThreeDevicesThatOverlap) {
  const auto small = all_annotations(2, 1, Reduction::kSum);
  const auto large = all_annotations(3, 1, Reduction::kSum);
  for (const Annotation& a : small) {
    for (const Annotation& b : large) {
      for (const Shape& shape : {Shape{5}, Shape{1}, Shape{0}}) {
        expect_law(a, b, shape);
        expect_law(b, a, shape);
        if (HasFatalFailure()) return;
      }
    }
  }
}

Annotation random_annotation(Random& random, int rank, Reduction reduction) {
  std::vector<Device> ids = {0, 1, 2, 3, 4, 5, 6, 7};
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(static_cast<std::size_t>(draw(random, 1, 8)));
  const auto random_weights = [&](int degree) {
    Weights weights;
    if (draw(random, 0, 1) == 0) return weights;
    for (int i = 0; i < degree; ++i) weights.push_back(draw(random, 0, 3));
    weights[static_cast<std::size_t>(draw(random, 0, degree - 1))] = draw(random, 1, 3);
    return weights;
  };
  std::vector<Subgroup> subgroups;
  for (std::size_t at = 0; at < ids.size();) {
    const auto size = static_cast<std::size_t>(draw(random, 1, static_cast<int>(ids.size() - at)));
    std::vector<Axis> axes;
    int rest = static_cast<int>(size);
    while (rest > 1) {
      int degree = draw(random, 2, rest);
      while (rest % degree != 0) ++degree;
      rest /= degree;
      const int kind = draw(random, 0, 2);
      if (kind == 0 && rank > 0) {
        axes.push_back({Split{draw(random, 0, rank - 1)}, degree, random_weights(degree)});
      } else if (kind == 1) {
        axes.push_back({Partial{reduction}, degree});
      } else {
        axes.push_back({Duplicate{}, degree});
      }
    }
    subgroups.emplace_back(std::vector<Device>(ids.begin() + static_cast<long>(at), ids.begin() + static_cast<long>(at + size)), axes);
    at += size;
  }
  Top top{Duplicate{}};
  const int kind = draw(random, 0, 2);
  if (kind == 0 && rank > 0) top = {Split{draw(random, 0, rank - 1)}, random_weights(static_cast<int>(subgroups.size()))};
  if (kind == 1) top = {Partial{reduction}};
  return {std::move(subgroups), top};
}

TEST(ResolveLaw, HoldsForRandomPairsOverEightDevices) {
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    const int rank = draw(random, 0, 4);
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(draw(random, draw(random, 0, 9) == 0 ? 0 : 1, rank > 2 ? 5 : 11));
    const Reduction reduction = draw(random, 0, 3) == 0 ? Reduction::kMax : Reduction::kSum;
    expect_law(random_annotation(random, rank, reduction), random_annotation(random, rank, reduction), shape);
    if (HasFatalFailure()) return;
  }
}

TEST(Resolve, NamesThePapersPatterns) {
  struct Row {
    const char* from;
    const char* to;
    const char* kind;
  };
  const Row rows[] = {
      {"{0-1: S0x2}", "{0-1: S0x2}", "Identity"},
      {"{0-1: Dx2}", "{0-1: S0x2}", "LocalSlice"},
      {"{0: }", "{1: }", "SendReceive"},
      {"{0-1: S0x2}", "{2-3: S0x2}", "SendReceive"},
      {"{0-3: Px4}", "{0-3: Dx4}", "AllReduce"},
      {"{0-3: Px2 Dx2}", "{0-3: Dx4}", "AllReduce"},
      {"{0-3: Px4}", "{0-3: S0x4}", "ReduceScatter"},
      {"{0-3: S0x4}", "{0-3: Dx4}", "AllGather"},
      {"{0-3: S0x2 Dx2}", "{0-3: Dx4}", "AllGather"},
      {"{0-3: S0x4}", "{0-3: S1x4}", "AllToAll"},
      {"{0: }", "{0-3: Dx4}", "Broadcast"},
      {"{0-1: S0x2}", "{2-4: S0x3}", "BatchedSendReceive"},
      {"top P {0-1: S0x2 | 2: }", "top D {0-1: S0x2 | 2: }", "SplitAllReduce"},
      {"top P {0-1: S0x2 | 2-4: S0x3}", "top D {0-1: S0x2 | 2-4: S0x3}", "SplitAllReduce"},
      {"top P {0-1: S0x2 | 2-3: S0x2}", "top S1 {0-1: S0x2 | 2-3: S0x2}", "SplitReduceScatter"},
      {"top S1 {0-1: S0x2 | 2-3: S0x2}", "top D {0-1: S0x2 | 2-3: S0x2}", "SplitAllGather"},
  };
  for (const Row& row : rows) {
    const CommPlan plan = resolve(parse_annotation(row.from), parse_annotation(row.to), {12, 12}, Cluster::uniform(8));

    for (const CommGroup& group : plan.stages.back().groups) {
      if (plan.stages.size() == 1 && group.kind == CommKind::kLocalSlice && std::string(row.kind) != "LocalSlice") continue;
      EXPECT_STREQ(to_string(group.kind), row.kind) << row.from << " -> " << row.to << "\n" << to_string(plan);
    }
  }
}

TEST(Resolve, RefusesWhatHasNoMeaning) {
  const auto expect_refused = [](const char* from, const char* to, const Shape& shape) {
    EXPECT_THROW((void)resolve(parse_annotation(from), parse_annotation(to), shape, Cluster::uniform(2)), InvalidArgument);
  };
  expect_refused("{0-1: Px2}", "{0-1: Pmaxx2}", {4});
  expect_refused("{0-1: S1x2}", "{0-1: Dx2}", {4});
}

TEST(Resolve, BalancesSendersWithinFivePercentOfTheBound) {
  const CommPlan plan = resolve(parse_annotation("{0-3: Dx4}"), parse_annotation("{4-6: Dx3}"), {1024, 1024}, Cluster::uniform(8));

  EXPECT_LE(plan.finish_s - 1e-6, 1.05 * plan.finish_bound_s);
}

}  // namespace
}  // namespace hspmd
