// Every collective against plain loops: {1, 2, 3, 4, 7, 8} ranks, {0, 1, odd, large} elements, every type, on threads
// and on processes. Values are small integers, so that sums are exact in every type.
#include "hspmd/runtime/transport/collectives.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "forked_ranks.h"
#include "hspmd/base/errors.h"
#include "hspmd/base/hex.h"
#include "hspmd/runtime/transport/parts.h"

namespace hspmd {
namespace {

constexpr std::size_t kMostElements = 300007;

// The value that rank `r` brings at element i.
template <typename T>
T brought(int r, std::size_t i) {
  return static_cast<T>((i * 7 + static_cast<std::size_t>(r) * 13) % 31) - 15;
}

template <typename T>
T reduced(Reduction reduction, int ranks, std::size_t i) {
  T value = brought<T>(0, i);
  for (int r = 1; r < ranks; ++r)
    value = reduction == Reduction::kSum ? value + brought<T>(r, i) : std::max(value, brought<T>(r, i));
  return value;
}

// Unlike parts, some empty.
std::vector<std::size_t> uneven_parts(int ranks, std::size_t elements) {
  std::vector<std::size_t> parts;
  std::size_t left = elements;
  for (int r = 0; r + 1 < ranks; ++r) {
    parts.push_back(r % 3 == 1 ? 0 : left / 3);
    left -= parts.back();
  }
  parts.push_back(left);
  return parts;
}

// What one rank does with its team and memory; empty, or what was wrong.
using RankCheck = std::function<std::string(Group&, std::byte*)>;

template <typename T>
std::span<T> filled(std::byte* memory, int rank, std::size_t elements) {
  const std::span<T> data(reinterpret_cast<T*>(memory), elements);
  for (std::size_t i = 0; i < elements; ++i) data[i] = brought<T>(rank, i);
  return data;
}

template <typename T, typename Wanted>
std::string compare(const char* what, std::span<const T> got, Wanted wanted) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != wanted(i))
      return fmt::format("{}, element {} of {}: {} for {}", what, i, got.size(), got[i], wanted(i));
  }
  return "";
}

template <typename T>
std::string check_reductions(Group& group, std::byte* memory, std::size_t elements) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
    const std::span<T> data = filled<T>(memory, group.me(), elements);
    all_reduce<T>(group, data, reduction);
    const auto wanted = [&](std::size_t i) { return reduced<T>(reduction, group.size(), i); };
    if (auto why = compare<T>("all-reduce", data, wanted); !why.empty()) return why;

    filled<T>(memory, group.me(), elements);
    const std::vector<std::size_t> parts = uneven_parts(group.size(), elements);
    const std::size_t begin = begin_of_part(parts, group.me());
    const std::span<T> mine = data.subspan(begin, parts[static_cast<std::size_t>(group.me())]);
    reduce_scatter<T>(group, data, parts, mine, reduction);
    auto why = compare<T>("reduce-scatter", mine, [&](std::size_t i) { return wanted(begin + i); });
    if (!why.empty()) return why;
  }
  return "";
}

template <typename T>
std::string check_copies(Group& group, std::byte* memory, std::size_t elements) {
  const std::vector<std::size_t> parts = uneven_parts(group.size(), elements);
  const std::span<T> data = filled<T>(memory, group.me(), elements);
  all_gather<T>(group, parts, data);
  const auto owner = [&](std::size_t i) {
    int place = 0;
    for (std::size_t end = parts[0]; i >= end; end += parts[static_cast<std::size_t>(place)]) ++place;
    return place;
  };
  auto why = compare<T>("all-gather", data, [&](std::size_t i) { return brought<T>(owner(i), i); });
  if (!why.empty()) return why;

  for (int root = 0; root < group.size(); ++root) {
    filled<T>(memory, group.me(), elements);
    broadcast<T>(group, data, root);
    why = compare<T>("broadcast", data, [&](std::size_t i) { return brought<T>(root, i); });
    if (!why.empty()) return why;
  }

  // Rank s sends (s + 2p) % 5 times a unit to rank p.
  const auto count = [&](int from, int to) {
    return static_cast<std::size_t>((from + 2 * to) % 5) * (elements / (5 * static_cast<std::size_t>(group.size())));
  };
  std::vector<std::size_t> from_parts, into_parts;
  for (int place = 0; place < group.size(); ++place) {
    from_parts.push_back(count(group.me(), place));
    into_parts.push_back(count(place, group.me()));
  }
  const std::size_t sent = std::accumulate(from_parts.begin(), from_parts.end(), std::size_t{0});
  const std::size_t got = std::accumulate(into_parts.begin(), into_parts.end(), std::size_t{0});
  const std::span<T> from = filled<T>(memory, group.me(), sent);
  std::vector<T> into(got);
  all_to_all<T>(group, from, from_parts, into, into_parts);
  std::size_t at = 0;
  for (int place = 0; place < group.size(); ++place) {
    std::size_t begin = 0;
    for (int before = 0; before < group.me(); ++before) begin += count(place, before);
    const std::span<const T> part(into.data() + at, into_parts[static_cast<std::size_t>(place)]);
    why = compare<T>("all-to-all", part, [&](std::size_t i) { return brought<T>(place, begin + i); });
    if (!why.empty()) return why;
    at += part.size();
  }
  return "";
}

template <typename T>
std::string check_all(Group& group, std::byte* memory) {
  for (const std::size_t elements :
       {std::size_t{0}, std::size_t{1}, std::size_t{61}, std::size_t{2501}, kMostElements}) {
    for (auto check : {check_reductions<T>, check_copies<T>}) {
      if (auto why = check(group, memory, elements); !why.empty()) return why;
      barrier(group);
    }
  }
  return "";
}

std::string check_every_type(Group& group, std::byte* memory) {
  for (auto check : {check_all<float>, check_all<double>, check_all<std::int32_t>}) {
    if (auto why = check(group, memory); !why.empty()) return why;
  }
  return "";
}

// A list in no order: the last rank first.
std::vector<int> some_order(int ranks) {
  std::vector<int> list(static_cast<std::size_t>(ranks));
  std::iota(list.begin(), list.end(), 0);
  std::rotate(list.begin(), list.end() - 1, list.end());
  return list;
}

constexpr std::chrono::duration<double> kTimeout(60);
const std::size_t kBytes = Team::block_bytes() + kMostElements * sizeof(double);

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, OnThreads) {
  const int ranks = GetParam();
  Generation generation(ranks, 0, kTimeout);
  for (int rank = 0; rank < ranks; ++rank) generation.make_segment(rank, kBytes);
  std::vector<std::string> found(static_cast<std::size_t>(ranks));

  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::vector<std::uint64_t> one_host(static_cast<std::size_t>(ranks), 1);
      Group group({generation, nullptr, one_host, rank}, some_order(ranks), 0, 0);
      found[static_cast<std::size_t>(rank)] = check_every_type(group, generation.segment(rank) + Team::block_bytes());
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(found, std::vector<std::string>(found.size()));
}

// One process a rank; ranks of unequal hosts reach each other by messages over the loopback.
std::vector<int> codes_of_processes(const std::vector<std::uint64_t>& hosts, const std::vector<int>& order) {
  const auto ranks = static_cast<int>(hosts.size());
  return testing::fork_ranks(ranks, [&](Rendezvous& rendezvous) {
    const int rank = rendezvous.rank();
    Generation generation({rank, hosts}, 0, kTimeout);
    std::byte* memory = generation.make_segment(rank, kBytes);
    generation.meet(rendezvous.all_gather("segment", generation.introduction()));
    std::unique_ptr<Messages> messages;
    if (hosts.front() != hosts.back()) {
      messages = std::make_unique<Messages>(MessagesOptions{"lo", "tcp,self", rank, ranks});
      const auto addresses = rendezvous.all_gather("address", to_hex(messages->address()));
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank) messages->connect(peer, from_hex(addresses[static_cast<std::size_t>(peer)]));
      }
    }
    std::string why;
    {
      Group group({generation, messages.get(), hosts, rank}, order, 0, 1);
      why = check_every_type(group, memory + Team::block_bytes());
      barrier(group);
    }
    (void)rendezvous.all_gather("leave", "");
    if (!why.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, why.c_str());
    return why.empty() ? 0 : 1;
  });
}

TEST_P(Collectives, OnProcesses) {
  const std::vector<std::uint64_t> one_host(static_cast<std::size_t>(GetParam()), 1);

  const std::vector<int> codes = codes_of_processes(one_host, some_order(GetParam()));

  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

// Ranks of a host together, equally many where that is possible; and in no order, unlike numbers.
TEST_P(Collectives, OverTwoHosts) {
  const int ranks = GetParam();
  std::vector<std::uint64_t> halves;
  for (int rank = 0; rank < ranks; ++rank) halves.push_back(2 * rank < ranks ? 1 : 2);
  std::vector<int> in_order(static_cast<std::size_t>(ranks));
  std::iota(in_order.begin(), in_order.end(), 0);

  for (const std::vector<int>& order : {in_order, some_order(ranks)}) {
    const std::vector<int> codes = codes_of_processes(halves, order);

    EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 7, 8));

}  // namespace
}  // namespace hspmd
