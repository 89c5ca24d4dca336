#include "hspmd/specialize/replay.h"

#include <gtest/gtest.h>

namespace hspmd {
namespace {

// One round between two devices: both read from each other.
ReplayExchange meet(int channel, Device other) {
  return {channel, Crossing::kWithin, {{{other}, {other}}}};
}
ReplayExchange send(int channel, Device to) {
  return {channel, Crossing::kSends, {{{}, {to}}}};
}
ReplayExchange receive(int channel, Device from) {
  return {channel, Crossing::kReceives, {{{from}, {}}}};
}

// Every run is of a list of its own.
ReplayDevice device(Device d, std::vector<std::vector<ReplayExchange>> lists) {
  ReplayDevice made{d, std::move(lists), {}};
  for (std::size_t i = 0; i < made.lists.size(); ++i) made.runs.push_back({i, static_cast<int>(i)});
  return made;
}

TEST(Replay, WhoMeetsInOneOrderComesToTheEnd) {
  EXPECT_TRUE(replay({}).empty());
  EXPECT_TRUE(replay({device(5, {{}, {}})}).empty());
  EXPECT_TRUE(replay({device(0, {{meet(1, 7), meet(2, 7)}}), device(7, {{meet(1, 0)}, {meet(2, 0)}})}).empty());
}

TEST(Replay, WhoMeetsInTwoOrdersWaitsForEver) {
  const std::vector<Stuck> stuck =
      replay({device(0, {{meet(1, 7), meet(2, 7)}}), device(7, {{meet(2, 0), meet(1, 0)}})});

  EXPECT_EQ(stuck, (std::vector<Stuck>{{0, 1, 0, {7}}, {7, 2, 0, {0}}}));
}

TEST(Replay, AMessageWaitsForNobodyTwice) {
  const std::vector<ReplayExchange> sends = {send(1, 1)};
  const std::vector<ReplayExchange> meets = {meet(2, 1)};
  const std::vector<ReplayExchange> receives = {receive(1, 0)};
  const auto reader = [&](std::size_t before) {  // meets device 0 after `before` receipts of 4
    ReplayDevice made{1, {receives, {meet(2, 0)}}, {}};
    for (std::size_t i = 0; i < 5; ++i) made.runs.push_back({i == before ? 1U : 0U, 0});
    return made;
  };
  const auto sender = [&](std::size_t before) {
    ReplayDevice made{0, {sends, meets}, {}};
    for (std::size_t i = 0; i < 5; ++i) made.runs.push_back({i == before ? 1U : 0U, 0});
    return made;
  };

  EXPECT_TRUE(replay({sender(2), reader(0)}).empty());  // two lie in the outbox
  EXPECT_TRUE(replay({sender(3), reader(1)}).empty());
  EXPECT_EQ(replay({sender(3), reader(0)}),  // the third would overwrite the first
            (std::vector<Stuck>{{0, 1, 0, {1}}, {1, 2, 0, {0}}}));
  EXPECT_EQ(replay({sender(0), reader(1)}), (std::vector<Stuck>{{0, 2, 0, {1}}, {1, 1, 0, {0}}}));
}

TEST(Replay, ARoundWaitsForAllPeers) {
  const ReplayExchange all{1, Crossing::kWithin, {{{1, 2}, {1, 2}}, {{1}, {}}}};
  const ReplayExchange one{1, Crossing::kWithin, {{{0}, {0}}, {{}, {0}}}};
  const ReplayExchange two{1, Crossing::kWithin, {{{0}, {0}}, {}}};

  EXPECT_TRUE(replay({device(0, {{all}}), device(1, {{one}}), device(2, {{two}})}).empty());
  EXPECT_EQ(replay({device(0, {{all}}), device(1, {{one}}), device(2, {{}})}),
            (std::vector<Stuck>{{0, 1, 0, {2}}, {1, 1, 0, {0}}}));
}

}  // namespace
}  // namespace hspmd
