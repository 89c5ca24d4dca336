#include "hspmd/runtime/transport/message_collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "hspmd/runtime/transport/child_ranks.h"

namespace hspmd {
namespace {

using std::chrono::duration;

void with_ranks(int ranks, const std::function<void(ChildRank&)>& body) {
  EXPECT_EQ(failures_of(run_ranks(ranks, body)), "") << ranks << " ranks";
}

// The ranks of a test stand in the group in another order than they are numbered.
std::vector<int> shuffled(int ranks) {
  std::vector<int> order;
  for (int r = 0; r < ranks; r += 2) order.push_back(r);
  for (int r = 1; r < ranks; r += 2) order.push_back(r);
  return order;
}

struct Member {
  AbortFlag abort;
  std::vector<int> ranks;
  Messages messages;
  MessageGroup group;

  explicit Member(ChildRank& self)
      : ranks(shuffled(self.ranks())),
        messages({.interface = "lo", .rank = self.rank(), .ranks = self.ranks()}),
        group(messages, ranks, 3, abort, duration<double>(20)) {
    self.connect(messages, 0, ranks);
  }
};

// What the rank at `place` brings: small integers, exact in every type, or fractions whose sums depend on the order.
template <typename T>
T value_at(int place, std::size_t i) {
  const auto mixed = (i * 2654435761U + static_cast<std::size_t>(place) * 40503U) % 1009U;
  return static_cast<T>(static_cast<int>(mixed) - 500);
}
float fraction_at(int place, std::size_t i) {
  return static_cast<float>(value_at<int>(place, i)) * 0.1F + 1.0F / static_cast<float>(place + 1);
}

template <typename T>
std::vector<T> values_of(int place, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_at<T>(place, i);
  return values;
}

template <typename T>
std::vector<T> reduced(int size, std::size_t count, Reduction reduction) {
  std::vector<T> result = values_of<T>(0, count);
  for (int place = 1; place < size; ++place) {
    for (std::size_t i = 0; i < count; ++i) {
      const T next = value_at<T>(place, i);
      result[i] = reduction == Reduction::kSum ? result[i] + next : std::max(result[i], next);
    }
  }
  return result;
}

// Uneven, some empty.
std::vector<std::size_t> parts_of(int size, std::size_t scale, int turn) {
  std::vector<std::size_t> parts;
  for (int p = 0; p < size; ++p)
    parts.push_back(static_cast<std::size_t>((p * 5 + turn * 3) % 4) * scale + (p == turn ? 1 : 0));
  return parts;
}
std::size_t total(const std::vector<std::size_t>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0});
}

constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMax};

template <typename T>
void check_all_reduce(MessageGroup& group, std::size_t count) {
  for (const Reduction reduction : kReductions) {
    const std::vector<T> expected = reduced<T>(group.size(), count, reduction);
    for (auto* all_reduce : {&ring_all_reduce<T>, &recursive_doubling_all_reduce<T>}) {
      std::vector<T> data = values_of<T>(group.me(), count);
      all_reduce(group, std::span<T>(data), reduction);
      require(data == expected, fmt::format("{} elements must be reduced", count));
    }
  }
}

template <typename T>
void check_reduce_scatter_and_gather(MessageGroup& group, std::size_t scale, int turn) {
  const std::vector<std::size_t> parts = parts_of(group.size(), scale, turn);
  const std::size_t own = parts[static_cast<std::size_t>(group.me())];
  const std::size_t begin = begin_of_part(parts, group.me());
  for (const Reduction reduction : kReductions) {
    const std::vector<T> data = values_of<T>(group.me(), total(parts));
    const std::vector<T> expected = reduced<T>(group.size(), total(parts), reduction);
    std::vector<T> gathered(data.size(), T{-1});
    const std::span<T> mine = std::span<T>(gathered).subspan(begin, own);
    ring_reduce_scatter<T>(group, data, parts, mine, reduction);
    require(std::equal(mine.begin(), mine.end(), expected.begin() + static_cast<long>(begin)),
            "a part must be reduced");
    require(data == values_of<T>(group.me(), data.size()), "a reduce-scatter must leave its input alone");
    ring_all_gather<T>(group, parts, gathered);
    require(gathered == expected, "all parts must be gathered");
  }
}

// Rank p sends (p + q + turn) % 3 * scale elements to rank q.
template <typename T>
void check_all_to_all(MessageGroup& group, std::size_t scale, int turn) {
  const auto sent = [&](int p, int q) { return static_cast<std::size_t>((p + 2 * q + turn) % 3) * scale; };
  std::vector<std::size_t> from_parts;
  std::vector<std::size_t> into_parts;
  std::vector<T> from;
  std::vector<T> expected;
  for (int q = 0; q < group.size(); ++q) {
    from_parts.push_back(sent(group.me(), q));
    into_parts.push_back(sent(q, group.me()));
    for (std::size_t i = 0; i < from_parts.back(); ++i) from.push_back(value_at<T>(group.me() * 10 + q, i));
    for (std::size_t i = 0; i < into_parts.back(); ++i) expected.push_back(value_at<T>(q * 10 + group.me(), i));
  }
  std::vector<T> into(expected.size());
  pairwise_all_to_all<T>(group, from, from_parts, into, into_parts);
  require(into == expected, "each part must reach its rank");
}

template <typename T>
void check_broadcast(MessageGroup& group, std::size_t count) {
  for (int root = 0; root < group.size(); ++root) {
    std::vector<T> data = values_of<T>(group.me(), count);
    binomial_broadcast<T>(group, data, root);
    require(data == values_of<T>(root, count), "all must hold the root's data");
  }
}

template <typename T>
void check_all(MessageGroup& group) {
  for (const std::size_t count : {0, 1, 3, 1000, 30011}) check_all_reduce<T>(group, count);
  for (const std::size_t scale : {0, 1, 33, 5003}) {
    for (int turn = 0; turn < 3; ++turn) {
      check_reduce_scatter_and_gather<T>(group, scale, turn);
      check_all_to_all<T>(group, scale, turn);
    }
    check_broadcast<T>(group, scale);
  }
}

class MessageCollectives : public testing::TestWithParam<int> {};

TEST_P(MessageCollectives, EqualPlainLoopsForEveryTypeAndSize) {
  with_ranks(GetParam(), [](ChildRank& self) {
    Member member(self);
    check_all<float>(member.group);
    check_all<double>(member.group);
    check_all<std::int32_t>(member.group);
    dissemination_barrier(member.group);
  });
}

// Fractions, infinities, zeros of both signs and what is not a number: every rank holds the same bits, every time.
TEST_P(MessageCollectives, LeaveTheSameBitsOnAllRanks) {
  with_ranks(GetParam(), [](ChildRank& self) {
    constexpr std::size_t kCount = 5003;
    Member member(self);
    MessageGroup& group = member.group;
    const auto fresh = [&] {
      std::vector<float> data(kCount);
      for (std::size_t i = 0; i < kCount; ++i) data[i] = fraction_at(group.me(), i);
      data[0] = group.me() % 2 == 0 ? 0.0F : -0.0F;
      data[1] = group.me() == 1 ? std::nanf("1") : 1.0F;
      data[2] = group.me() == 2 ? std::numeric_limits<float>::infinity() : 2.0F;
      return data;
    };
    for (const Reduction reduction : kReductions) {
      for (auto* all_reduce : {&ring_all_reduce<float>, &recursive_doubling_all_reduce<float>}) {
        std::vector<float> first = fresh();
        std::vector<float> second = fresh();
        all_reduce(group, std::span<float>(first), reduction);
        all_reduce(group, std::span<float>(second), reduction);
        std::vector<float> of_root = first;
        binomial_broadcast<float>(group, of_root, 0);
        const std::size_t bytes = kCount * sizeof(float);
        require(std::memcmp(first.data(), second.data(), bytes) == 0, "a run must repeat");
        require(std::memcmp(first.data(), of_root.data(), bytes) == 0, "all must agree");
      }
    }
    dissemination_barrier(group);
  });
}

TEST_P(MessageCollectives, ABarrierHoldsEverybodyUntilTheLastComes) {
  with_ranks(GetParam(), [](ChildRank& self) {
    Member member(self);
    dissemination_barrier(member.group);
    const int last = member.ranks.back();
    if (self.rank() == last) {
      usleep(50000);
      self.publish(1, "here");
    }
    dissemination_barrier(member.group);
    require(self.published(1, last), "nobody may pass before the last has come");
    dissemination_barrier(member.group);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, MessageCollectives, testing::Values(1, 2, 3, 4, 7, 8));

TEST(MessageCollectivesLarge, AreRightToo) {
  with_ranks(3, [](ChildRank& self) {
    Member member(self);
    check_all_reduce<float>(member.group, (std::size_t{5} << 20) / sizeof(float) + 1);
    check_all_to_all<double>(member.group, 100003, 1);
    dissemination_barrier(member.group);
  });
}

TEST(MessageGroup, RefusesAGroupThatIsNone) {
  with_ranks(1, [](ChildRank&) {
    AbortFlag abort;
    Messages messages({.interface = "lo", .rank = 1, .ranks = 4});
    for (const std::vector<int>& ranks : std::vector<std::vector<int>>{{}, {0, 2}, {1, 2, 1}}) {
      bool refused = false;
      try {
        const MessageGroup group(messages, ranks, 0, abort, duration<double>(1));
      } catch (const InvalidArgument&) {
        refused = true;
      }
      require(refused, fmt::format("a group of {} ranks must be refused", ranks.size()));
    }
  });
}

// One rank dies in the middle of all-reduces; all others fail, and a group of them works at once.
TEST(MessageGroup, SurvivesADeathAsASmallerGroup) {
  for (const std::size_t count : {std::size_t{16}, std::size_t{1} << 20}) {
    const auto outcomes = run_ranks(4, [&](ChildRank& self) {
      constexpr int kVictim = 3;
      {
        std::vector<float> data(count, 1.0F);
        Member member(self);
        bool failed = false;
        try {
          for (int turn = 0; turn < 1000000; ++turn) {
            if (self.rank() == kVictim && turn == 5) kill(getpid(), SIGKILL);
            ring_all_reduce<float>(member.group, data, Reduction::kMax);
          }
        } catch (const RuntimeFailure& failure) {
          failed = std::string(failure.what()).find("ring ") != std::string::npos;
        }
        member.messages.close();  // ends the waits of those that do not talk to the dead rank
        require(failed, "a death must end the collective");
      }
      AbortFlag abort;
      std::vector<float> data(count, static_cast<float>(self.rank()));
      Messages messages({.interface = "lo", .rank = self.rank(), .ranks = 3});
      self.connect(messages, 1, {0, 1, 2});
      MessageGroup group(messages, {0, 1, 2}, 0, abort, duration<double>(20));
      ring_all_reduce<float>(group, data, Reduction::kSum);
      require(data.front() == 3.0F && data.back() == 3.0F, "the survivors must go on");
      dissemination_barrier(group);
    });

    EXPECT_EQ(failures_of({outcomes[0], outcomes[1], outcomes[2]}), "");
    EXPECT_EQ(outcomes[3].signal, SIGKILL) << outcomes[3].text;
  }
}

}  // namespace
}  // namespace hspmd
