// Law 1: every pair of annotations resolves, and the plan means the same tensor. Then what a table pins.
#include <gtest/gtest.h>

#include <set>

#include "hspmd/annotation/annotation_samples.h"
#include "hspmd/comm/comm_plan.h"
#include "hspmd/comm/interpret.h"
#include "hspmd/comm/one_sum.h"

namespace hspmd {
namespace {

using samples::draw;

std::vector<std::int64_t> test_tensor(const Shape& shape) {
  std::vector<std::int64_t> tensor(static_cast<std::size_t>(volume(shape)));
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::int64_t>(i) * 7919 + 13;
  return tensor;
}

// Who takes part stands in the group, once.
void expect_participants(const CommPlan& plan) {
  for (const CommStage& stage : plan.stages) {
    for (const CommGroup& group : stage.groups) {
      std::set<Device> taking_part;
      for (const Move& move : group.moves) {
        taking_part.insert(move.sources.begin(), move.sources.end());
        taking_part.insert(move.destinations.begin(), move.destinations.end());
        ASSERT_FALSE(move.destinations.empty());
        ASSERT_GT(volume(move.box), 0);
      }
      const std::set<Device> named(group.participants.begin(), group.participants.end());
      ASSERT_EQ(named.size(), group.participants.size()) << to_string(plan);
      if (group.kind == CommKind::kIdentity) continue;  // an empty shard stays too
      ASSERT_EQ(named, taking_part) << to_string(plan);
    }
  }
}

void expect_bytes_add_up(const CommPlan& plan) {
  std::int64_t sent = 0;
  for (const auto& [device, bytes] : plan.send_bytes) sent += bytes;
  ASSERT_EQ(sent, plan.bytes) << to_string(plan);
}

void expect_means_the_same(const CommPlan& plan, const Annotation& from, const Annotation& to, const Shape& shape) {
  samples::Random random(1);
  const auto tensor = test_tensor(shape);
  const auto before =
      comm::lay_out(from, tensor, shape, [&] { return static_cast<std::int64_t>(random() % 1000) - 500; });

  const auto after = comm::interpret(plan, before, shape);

  ASSERT_EQ(comm::meaning(to, after, shape), tensor) << to_string(plan);
}

void expect_law(const Annotation& from, const Annotation& to, const Shape& shape, const Cluster& cluster) {
  SCOPED_TRACE(to_string(from) + "  ->  " + to_string(to) + "  of " + to_string(shape));
  const CommPlan plan = resolve(from, to, shape, cluster);
  expect_means_the_same(plan, from, to, shape);
  expect_participants(plan);
  expect_bytes_add_up(plan);
  ASSERT_TRUE(comm::one_sum(plan, {&from, &to, shape})) << to_string(plan);
  ASSERT_GE(plan.bytes, plan.lower_bound_bytes) << to_string(plan);
  ASSERT_GE(plan.finish_s, plan.finish_bound_s * (1 - 1e-9)) << to_string(plan);
}

// Devices 0-2 on one node, 3-5 and 6-7 on others: NICs and unlike links come in.
Cluster small_nodes() {
  DeviceType type;
  std::vector<ClusterNode> nodes(3);
  for (ClusterNode& node : nodes) node.devices = 3;
  nodes[2].devices = 2;
  nodes[1].link.bytes_per_s = 400e9;
  nodes[0].nic = {50e9, 5e-6};
  nodes[1].nic = {25e9, 5e-6};
  nodes[2].nic = {50e9, 10e-6};
  return {{type}, nodes};
}

TEST(ResolveLaw, HoldsForAllPairsOverThreeDevices) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
    const auto annotations = samples::all_annotations(3, 2, reduction);
    for (const Annotation& from : annotations) {
      for (const Annotation& to : annotations) {
        expect_law(from, to, {3, 2}, Cluster::uniform(3));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ResolveLaw, HoldsForAllPairsOverFourDevicesOfAVector) {
  const auto annotations = samples::all_annotations(4, 1, Reduction::kSum);
  for (const Annotation& from : annotations) {
    for (const Annotation& to : annotations) {
      expect_law(from, to, {7}, small_nodes());
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ResolveLaw, HoldsForAllPairsBetweenTwoAndThreeDevicesThatOverlap) {
  const auto small = samples::all_annotations(2, 1, Reduction::kSum);
  const auto large = samples::all_annotations(3, 1, Reduction::kSum);
  for (const Annotation& a : small) {
    for (const Annotation& b : large) {
      for (const Shape& shape : {Shape{5}, Shape{1}, Shape{0}}) {
        expect_law(a, b, shape, Cluster::uniform(3));
        expect_law(b, a, shape, Cluster::uniform(3));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ResolveLaw, HoldsForRandomPairsOverEightDevices) {
  samples::Random random(7);
  const Cluster clusters[] = {Cluster::uniform(8), small_nodes()};
  for (int i = 0; i < 20000; ++i) {
    const int rank = draw(random, 0, 4);
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(draw(random, draw(random, 0, 9) == 0 ? 0 : 1, rank > 2 ? 5 : 11));
    const Reduction reduction = draw(random, 0, 3) == 0 ? Reduction::kMax : Reduction::kSum;
    const Annotation from = samples::random_annotation(random, 8, rank, reduction);
    const Annotation to = samples::random_annotation(random, 8, rank, reduction);
    expect_law(from, to, shape, clusters[i % 2]);
    if (HasFatalFailure()) return;
  }
}

// Large enough that sums and copies are shared out by slices.
TEST(ResolveLaw, HoldsForRandomPairsOfLargerTensors) {
  samples::Random random(8);
  const Shape shape = {96, 128};
  for (int i = 0; i < 300; ++i) {
    const Annotation from = samples::random_annotation(random, 6, 2, Reduction::kSum);
    const Annotation to = samples::random_annotation(random, 6, 2, Reduction::kSum);
    expect_law(from, to, shape, small_nodes());
    if (HasFatalFailure()) return;
  }
}

TEST(ResolveLaw, HoldsForTensorsThatMoveTogether) {
  samples::Random random(9);
  const Cluster cluster = small_nodes();
  for (int i = 0; i < 1000; ++i) {
    std::vector<Annotation> layouts;
    for (int k = 0; k < 6; ++k) layouts.push_back(samples::random_annotation(random, 8, 2, Reduction::kSum));
    const std::vector<Relayout> tensors = {{&layouts[0], &layouts[1], {6, 5}, 4},
                                           {&layouts[2], &layouts[3], {3, 9}, 2},
                                           {&layouts[4], &layouts[5], {4, 4}, 8}};

    const std::vector<CommPlan> plans = resolve_fused(tensors, cluster);

    ASSERT_EQ(plans.size(), tensors.size());
    for (std::size_t t = 0; t < plans.size(); ++t) {
      expect_means_the_same(plans[t], *tensors[t].from, *tensors[t].to, tensors[t].shape);
      expect_bytes_add_up(plans[t]);
      ASSERT_GE(plans[t].bytes, plans[t].lower_bound_bytes);
      ASSERT_GE(plans[t].finish_s, plans[t].finish_bound_s * (1 - 1e-9));
      ASSERT_EQ(plans[t].finish_s, plans.front().finish_s);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Resolve, IsDeterministicAndLeavesBoundsToThoseWhoAsk) {
  const Annotation from = parse_annotation("top D {0-3: S0x4 | 4-6: S1x3}");
  const Annotation to = parse_annotation("top D {1-3: S1x3 | 5-7: S0x3}");
  const Cluster cluster = small_nodes();

  const CommPlan plan = resolve(from, to, {512, 512}, cluster);
  CommPlan unbounded = resolve_plan(from, to, {512, 512}, cluster);

  EXPECT_EQ(plan, resolve(from, to, {512, 512}, cluster));
  EXPECT_EQ(unbounded.lower_bound_bytes, 0);
  EXPECT_EQ(unbounded.finish_bound_s, 0);
  unbounded.lower_bound_bytes = plan.lower_bound_bytes;
  unbounded.finish_bound_s = plan.finish_bound_s;
  EXPECT_EQ(plan, unbounded);
}

TEST(Resolve, RefusesWhatHasNoMeaning) {
  const auto expect_refused = [](const char* from, const char* to, const Shape& shape) {
    EXPECT_THROW((void)resolve(parse_annotation(from), parse_annotation(to), shape, Cluster::uniform(2)),
                 InvalidArgument)
        << from << to;
  };
  expect_refused("{0-1: Px2}", "{0-1: Pmaxx2}", {4});
  expect_refused("top Pmax {0: | 1:}", "{0-1: Px2}", {4});
  expect_refused("{0-1: S1x2}", "{0-1: Dx2}", {4});
  expect_refused("{0-1: Dx2}", "{0-1: S0x2}", {});
}

// The kinds of each stage in alphabetical order, each once, of 48 rows of 12: all cuts below are even.
std::string kinds_of(const CommPlan& plan) {
  std::string text;
  for (const CommStage& stage : plan.stages) {
    std::set<std::string> kinds;
    for (const CommGroup& group : stage.groups) kinds.insert(to_string(group.kind));
    text += fmt::format("{}{}", text.empty() ? "" : "; ", fmt::join(kinds, " "));
  }
  return text;
}

TEST(Resolve, NamesThePapersPatterns) {
  struct Row {
    const char* from;
    const char* to;
    const char* kinds;
  };
  const Row rows[] = {
      {"{0-1: S0x2}", "{0-1: S0x2}", "Identity"},
      {"{0-1: Dx2}", "top D {0: | 1:}", "Identity"},
      {"{0-1: Px2}", "{0-1: Px2}", "Identity"},
      {"{0-1: Dx2}", "{0-1: S0x2}", "LocalSlice"},
      {"{0-1: Dx2}", "{0-1: Px2}", "LocalSlice"},
      {"{0-1: Dx2}", "{0:}", "LocalSlice"},
      {"{0:}", "{1:}", "SendReceive"},
      {"{0-1: S0x2}", "{2-3: S0x2}", "SendReceive"},
      {"{0-1: S0x2}", "{1,0: S0x2}", "SendReceive"},
      {"{0-3: S0x4}", "{1-3,0: S0x4}", "SendReceive"},
      {"{0-1: Px2}", "{2-3: Px2}", "SendReceive"},
      {"{0-3: Px4}", "{0-3: Dx4}", "AllReduce"},
      {"{0-3: Pmaxx4}", "{0-3: Dx4}", "AllReduce"},
      {"{0-3: Px2 Dx2}", "{0-3: Dx4}", "AllReduce"},
      {"{0-3: S0x2 Px2}", "{0-3: S0x2 Dx2}", "AllReduce"},
      {"{0-3: Px4}", "{0-3: Px2 Dx2}", "AllReduce"},
      {"{0-3: Px4}", "{0-3: S0x4}", "ReduceScatter"},
      {"{0-3: Px2 Dx2}", "{0-3: S0x2 Dx2}", "ReduceScatter"},
      {"{0-3: S0x2 Px2}", "{0-3: S0x2 S1x2}", "ReduceScatter"},
      {"{0-3: S0x4}", "{0-3: Dx4}", "AllGather"},
      {"{0-3: S0x2 Dx2}", "{0-3: Dx4}", "AllGather"},
      {"{0-3: S0x4}", "{0-3: S1x4}", "AllToAll LocalSlice"},
      {"{0-1: S0x2}", "{0-1: S1x2}", "AllToAll LocalSlice"},
      {"{0:}", "{0-3: Dx4}", "Broadcast"},
      {"{0-1: S0x2}", "{2-4: S0x3}", "BatchedSendReceive"},
      {"{0-1: Px2}", "{2:}", "BatchedSendReceive"},
      // The same top tier: each subgroup on its own.
      {"top D {0-1: Px2 | 2-4: Px3}", "top D {0-1: Dx2 | 2-4: Dx3}", "AllReduce"},
      {"top S0 {0-1: Px2 | 2-3: S0x2}", "top S0 {0-1: Dx2 | 2-3: Dx2}", "AllGather AllReduce"},
      {"top S0 {0-1: Px2 | 2:}", "top S0 {0-1: Dx2 | 3:}", "AllReduce SendReceive"},
      // The same bottom tiers: one collective for each set of participants.
      {"top P {0-1: S0x2 | 2:}", "top D {0-1: S0x2 | 2:}", "SplitAllReduce"},
      {"top P {0-1: S0x2 | 2-4: S0x3}", "top D {0-1: S0x2 | 2-4: S0x3}", "SplitAllReduce"},
      {"top P {0-1: S0x2 | 2-3: S0x2}", "top S1 {0-1: S0x2 | 2-3: S0x2}", "SplitReduceScatter"},
      {"top P {0-1: S0x2 | 2-4: S0x3}", "top S1 {0-1: S0x2 | 2-4: S0x3}", "SplitReduceScatter"},
      {"top S1 {0-1: S0x2 | 2-3: S0x2}", "top D {0-1: S0x2 | 2-3: S0x2}", "SplitAllGather"},
      // The bottom tiers first, or the top tier first where that is sooner done.
      {"top P {0-1: Px2 | 2-3: Px2}", "top D {0-1: Dx2 | 2-3: Dx2}", "AllReduce; SplitAllReduce"},
      {"top P {0-1: S0x2 | 2-3: S0x2}", "top D {0-1: S1x2 | 2-3: S1x2}", "AllToAll LocalSlice; SplitAllReduce"},
      {"top P {0-1: S0x2 | 2-3: S0x2}", "top D {0-1: Dx2 | 2-3: Dx2}", "SplitAllReduce; AllGather"},
      {"top P {0-1: S0x2 | 2-3: S0x2}", "top S1 {0-1: Dx2 | 2-3: Dx2}", "SplitReduceScatter; AllGather"},
      // Sums for others than those who hold the addends: reduced, then copied.
      {"{0-1: Px2}", "{0-2: Dx3}", "ReduceScatter; Broadcast"},
  };
  for (const Row& row : rows) {
    const CommPlan plan = resolve(parse_annotation(row.from), parse_annotation(row.to), {48, 12}, Cluster::uniform(8));

    EXPECT_EQ(kinds_of(plan), row.kinds) << row.from << " -> " << row.to << "\n" << to_string(plan);
  }
}

// One collective a set of participants: TP 3 beside TP 2.
TEST(Resolve, JoinsCellsOfTheSameParticipants) {
  const CommPlan plan = resolve(parse_annotation("top P {0-1: S0x2 | 2-4: S0x3}"),
                                parse_annotation("top D {0-1: S0x2 | 2-4: S0x3}"), {6, 4}, Cluster::uniform(5));

  ASSERT_EQ(plan.stages.size(), 1U);
  std::vector<std::vector<Device>> participants;
  for (const CommGroup& group : plan.stages[0].groups) participants.push_back(group.participants);
  EXPECT_EQ(participants, (std::vector<std::vector<Device>>{{0, 2}, {0, 3}, {1, 3}, {1, 4}}));
}

TEST(Resolve, SumsAScalarOverManyDevicesInOneGroup) {
  const CommPlan plan = resolve(parse_annotation("{0-16383: Px16384}"), parse_annotation("{0-16383: Dx16384}"), {},
                                Cluster::uniform(16384));

  ASSERT_EQ(plan.stages.size(), 1U);
  ASSERT_EQ(plan.stages[0].groups.size(), 1U);
  EXPECT_EQ(plan.stages[0].groups[0].kind, CommKind::kAllReduce);
  EXPECT_EQ(plan.bytes, 2 * 16383 * 4);
  EXPECT_EQ(plan.lower_bound_bytes, 2 * 16383 * 4);
}

}  // namespace
}  // namespace hspmd
