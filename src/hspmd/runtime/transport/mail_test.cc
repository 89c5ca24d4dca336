#include "hspmd/runtime/transport/mail.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

constexpr std::size_t kRoom = 1 << 20;

// Two or more ranks, each with its mail and, behind the block, memory of its own.
struct Ranks {
  explicit Ranks(int count, double timeout_s = 20)
      : generation(count, 0, std::chrono::duration<double>(timeout_s)), block(Mail::block_bytes(count)) {
    for (int rank = 0; rank < count; ++rank) generation.make_segment(rank, block + kRoom);
    for (int rank = 0; rank < count; ++rank) mail.emplace_back(generation, rank, 0);
  }
  std::byte* memory(int rank) { return generation.segment(rank) + block; }
  Generation generation;
  std::size_t block;
  std::vector<Mail> mail;
};

TEST(Mail, EverySizeArrivesWhole) {
  Ranks ranks(2);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, Mail::kInlineBytes, Mail::kInlineBytes + 1, kRoom}) {
    std::memset(ranks.memory(0), static_cast<int>(bytes % 251), kRoom);
    std::vector<std::byte> got(bytes, std::byte{7});
    const auto sent = ranks.mail[0].isend(1, 5, ranks.memory(0), bytes);
    const auto received = ranks.mail[1].irecv(0, 5, got.data(), bytes);

    ranks.mail[1].wait(received, {1, "receive"});
    ranks.mail[0].wait(sent, {0, "send"});

    EXPECT_EQ(got, std::vector<std::byte>(bytes, static_cast<std::byte>(bytes % 251))) << bytes;
  }
}

TEST(Mail, TagsChooseAndOneTagKeepsItsOrder) {
  Ranks ranks(2);
  for (const int value : {1, 2, 3, 4}) ranks.mail[0].isend(1, static_cast<std::uint64_t>(value % 2), &value, 4);
  int got[4] = {};
  ranks.mail[1].wait(ranks.mail[1].irecv(0, 0, &got[0], 4), {1, "receive"});
  ranks.mail[1].wait(ranks.mail[1].irecv(0, 0, &got[1], 4), {1, "receive"});
  ranks.mail[1].wait(ranks.mail[1].irecv(0, 1, &got[2], 4), {1, "receive"});
  ranks.mail[1].wait(ranks.mail[1].irecv(0, 1, &got[3], 4), {1, "receive"});

  EXPECT_EQ(std::vector<int>(got, got + 4), (std::vector<int>{2, 4, 1, 3}));
}

TEST(Mail, MoreLettersThanTheRingHoldsWaitForTheirTurn) {
  Ranks ranks(2);
  constexpr int kMany = 5 * Mail::kLetters + 3;
  std::vector<int> values(kMany);
  std::vector<Mail::Ticket> sent;
  for (int i = 0; i < kMany; ++i) {
    values[static_cast<std::size_t>(i)] = i;
    sent.push_back(ranks.mail[0].isend(1, 9, &values[static_cast<std::size_t>(i)], 4));
  }
  EXPECT_FALSE(ranks.mail[0].done(sent.back()));
  for (int i = 0; i < kMany; ++i) {
    int got = -1;
    const auto received = ranks.mail[1].irecv(0, 9, &got, 4);
    while (!ranks.mail[1].done(received)) ranks.mail[0].progress();
    EXPECT_EQ(got, i);
  }
  EXPECT_TRUE(ranks.mail[0].done(sent.back()));
}

TEST(Mail, RanksSendAllToAllAtOnce) {
  constexpr int kRanks = 4;
  Ranks ranks(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Mail& mail = ranks.mail[static_cast<std::size_t>(rank)];
      for (int turn = 0; turn < 50; ++turn) {
        const std::size_t bytes = turn % 2 == 0 ? 64 : 100000;
        std::memset(ranks.memory(rank), rank + turn, bytes);
        std::vector<std::vector<std::byte>> got(kRanks, std::vector<std::byte>(bytes));
        std::vector<Mail::Ticket> tickets;
        for (int peer = 0; peer < kRanks; ++peer) {
          tickets.push_back(mail.irecv(peer, 3, got[static_cast<std::size_t>(peer)].data(), bytes));
          tickets.push_back(mail.isend(peer, 3, ranks.memory(rank), bytes));
        }
        for (const Mail::Ticket ticket : tickets) mail.wait(ticket, {rank, "exchange"});
        for (int peer = 0; peer < kRanks; ++peer)
          EXPECT_EQ(got[static_cast<std::size_t>(peer)],
                    std::vector<std::byte>(bytes, static_cast<std::byte>(peer + turn)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mail, ReadsAPeersMemoryWithinItsBounds) {
  Ranks ranks(2);
  std::memcpy(ranks.memory(1) + 8, "hello", 5);
  char got[5] = {};

  ranks.mail[0].get(1, ranks.block + 8, got, 5);

  EXPECT_EQ(std::string(got, 5), "hello");
  EXPECT_THROW(ranks.mail[0].get(1, ranks.block + kRoom - 4, got, 5), InvalidArgument);
  EXPECT_THROW(ranks.mail[0].get(1, SIZE_MAX, got, 5), InvalidArgument);
}

TEST(Mail, FaultsAreNamed) {
  Ranks ranks(2, 0.02);
  std::vector<std::byte> elsewhere(Mail::kInlineBytes + 1);
  EXPECT_THROW(ranks.mail[0].isend(1, 0, elsewhere.data(), elsewhere.size()), InvalidArgument);
  EXPECT_THROW(ranks.mail[0].isend(2, 0, nullptr, 0), InvalidArgument);
  int value = 0;
  EXPECT_THROW(ranks.mail[1].wait(ranks.mail[1].irecv(0, 0, &value, 4), {1, "receive"}), RuntimeFailure);
  ranks.mail[0].isend(1, 0, &value, 2);
  try {
    ranks.mail[1].progress();
    FAIL() << "sizes differ";
  } catch (const RuntimeFailure& failure) {
    EXPECT_STREQ(failure.what(), "[rank 1] receive, peer 0, 4 bytes: a message of 2 bytes came");
  }
}

}  // namespace
}  // namespace hspmd
