#include "hspmd/control/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hspmd/base/errors.h"
#include "hspmd/control/limits.h"

namespace hspmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A job whose clock the test holds; the link of rank r is r + 1.
struct Rig {
  explicit Rig(JobOptions options) : job(options), ranks(options.ranks) {}

  void join(int rank, LinkId link) {
    job.connected(link, now);
    wire::ToServer message;
    message.mutable_hello()->set_protocol(kControlProtocol);
    message.mutable_hello()->set_rank(rank);
    message.mutable_hello()->set_ranks(ranks);
    job.receive(link, message, now);
  }
  void join_all() {
    for (int rank = 0; rank < ranks; ++rank) join(rank, static_cast<LinkId>(rank) + 1);
    said();
    while (job.take_event()) {
    }
  }
  void gather(LinkId link, const std::string& name, const std::string& value, double timeout_s = 60) {
    wire::ToServer message;
    message.set_call(link * 100);
    message.mutable_gather()->set_name(name);
    message.mutable_gather()->set_value(value);
    message.mutable_gather()->set_timeout_s(timeout_s);
    job.receive(link, message, now);
  }
  void wait(LinkId link, const std::string& key, double timeout_s = 60) {
    wire::ToServer message;
    message.set_call(link * 100);
    message.mutable_wait()->set_key(key);
    message.mutable_wait()->set_timeout_s(timeout_s);
    job.receive(link, message, now);
  }
  void beat(LinkId link) {
    wire::ToServer message;
    message.mutable_beat();
    job.receive(link, message, now);
  }
  void leave(LinkId link) {
    wire::ToServer message;
    message.mutable_leave();
    job.receive(link, message, now);
  }
  void pass(double seconds) { now += std::chrono::milliseconds(static_cast<int>(seconds * 1000)); }

  // What was sent since the last time, as text: "1 welcome".
  std::vector<std::string> said() {
    std::vector<std::string> texts;
    for (const Job::Letter& letter : job.take_outbox()) {
      std::string text = std::to_string(letter.link) + " ";
      if (const auto* end = std::get_if<Job::End>(&letter.content)) {
        texts.push_back(text + "end " + end->text);
        continue;
      }
      const auto& message = std::get<wire::ToMember>(letter.content);
      if (message.has_welcome()) text += "welcome";
      if (message.has_done()) text += "done";
      if (message.has_found()) text += "found " + message.found().value();
      if (message.has_refused()) text += "refused " + message.refused().text();
      if (message.has_aborted()) text += "aborted " + message.aborted().reason();
      if (message.has_lost()) text += "lost " + std::to_string(message.lost().rank());
      if (message.has_beat()) text += "beat";
      for (const std::string& value : message.values().by_rank()) text += value + ";";
      texts.push_back(text);
    }
    return texts;
  }

  Job job;
  int ranks;
  Job::Time now{};
};

TEST(Job, AGatherAnswersAllWithTheLastAndIsForgotten) {
  Rig rig({.ranks = 2});
  rig.join_all();

  for (const char* round : {"a", "b"}) {
    rig.gather(2, "name", std::string(round) + "1");
    EXPECT_THAT(rig.said(), ElementsAre());
    rig.gather(1, "name", std::string(round) + "0");
    const std::string values = std::string(round) + "0;" + round + "1;";
    EXPECT_THAT(rig.said(), ElementsAre("1 " + values, "2 " + values));
  }
}

TEST(Job, AGatherNamesWhoIsMissingAndWhoGaveUpIsMissingToo) {
  Rig rig({.ranks = 6, .heartbeat_timeout = std::chrono::duration<double>(1000)});
  for (const int rank : {0, 1, 3}) rig.join(rank, static_cast<LinkId>(rank) + 1);
  rig.said();
  rig.gather(1, "g", "", 5);
  rig.gather(2, "g", "", 8);

  rig.pass(5);
  rig.job.tick(rig.now);
  EXPECT_THAT(rig.said(), ElementsAre("1 refused ranks 2, 4-5 never joined, rank 3 joined but did not come; timed out "
                                      "after 5 s"));
  rig.pass(3);
  rig.job.tick(rig.now);
  EXPECT_THAT(rig.said(), ElementsAre("2 refused ranks 2, 4-5 never joined, ranks 0, 3 joined but did not come; timed "
                                      "out after 8 s"));
}

TEST(Job, AGatherThatCanNeverBeCompleteEndsAtOnce) {
  Rig rig({.ranks = 3, .on_loss = LossPolicy::kReport});
  rig.join_all();

  rig.gather(1, "g", "");
  rig.job.broken(3, rig.now);
  const auto said = rig.said();
  ASSERT_EQ(said.size(), 3U);
  EXPECT_THAT(said[0], HasSubstr("1 refused rank 2 was lost: its connection broke"));
  rig.leave(2);
  rig.said();
  rig.gather(1, "h", "");
  EXPECT_THAT(rig.said()[0], HasSubstr("1 refused rank 1 has left"));
}

TEST(Job, RefusesWhoDoesNotFit) {
  struct Row {
    int rank;
    int ranks;
    const char* text;
  };
  for (const Row& row : {Row{0, 3, "[control] the job has 2 ranks. Received a world size of 3. Set WORLD_SIZE to 2."},
                         Row{2, 2, "[control] a rank must lie in 0 to 1. Received 2. Mend RANK."},
                         Row{-1, 2, "[control] a rank must lie in 0 to 1. Received -1. Mend RANK."},
                         Row{1, 2, "[control] a rank must be one process. Received a second rank 1."}}) {
    Rig rig({.ranks = 2});
    rig.join(1, 1);
    rig.said();
    rig.ranks = row.ranks;

    rig.join(row.rank, 2);

    ASSERT_THAT(rig.said(), ElementsAre(HasSubstr(row.text)));
    EXPECT_EQ(rig.job.members()[0].state, MemberState::kAbsent);
  }
}

TEST(Job, ALossAbortsForAllOrIsReported) {
  for (const LossPolicy policy : {LossPolicy::kAbort, LossPolicy::kReport}) {
    Rig rig({.ranks = 3, .on_loss = policy});
    rig.join_all();

    rig.job.broken(2, rig.now);

    EXPECT_EQ(rig.job.members()[1].state, MemberState::kLost);
    EXPECT_EQ(rig.job.aborted().has_value(), policy == LossPolicy::kAbort);
    EXPECT_EQ(rig.job.take_event()->kind, ControlEvent::Kind::kLost);
    rig.said();
    rig.join(1, 9);  // a process in its place
    EXPECT_THAT(rig.said(),
                ElementsAre(HasSubstr(policy == LossPolicy::kAbort ? "9 end rank 1 was lost" : "9 welcome")));
  }
}

TEST(Job, AGoodbyeIsNoLoss) {
  Rig rig({.ranks = 2});
  rig.join_all();

  rig.leave(1);
  rig.job.broken(1, rig.now);

  EXPECT_EQ(rig.job.members()[0].state, MemberState::kLeft);
  EXPECT_EQ(rig.job.aborted(), std::nullopt);
  EXPECT_THAT(rig.said(), ElementsAre("1 end "));
}

TEST(Job, WithoutHeartbeatsAMemberIsLostAndAStrangerSentAway) {
  Rig rig({.ranks = 2, .heartbeat_timeout = std::chrono::duration<double>(1)});
  rig.join_all();
  rig.job.connected(7, rig.now);

  for (int i = 0; i < 100; ++i) {
    rig.pass(0.11);
    rig.beat(1);
    rig.job.tick(rig.now);
  }

  EXPECT_EQ(rig.job.members()[0].state, MemberState::kJoined);
  EXPECT_EQ(rig.job.members()[1].state, MemberState::kLost);
  EXPECT_EQ(*rig.job.aborted(), "rank 1 was lost: no heartbeat for 1 s (stopped, or its host or network is gone)");
  EXPECT_THAT(rig.said(), ::testing::Contains("7 end [control] a member must say hello at once. Received nothing."));
}

TEST(Job, WhoWasItselfStoppedTakesNobodyForDead) {
  Rig rig({.ranks = 2, .heartbeat_timeout = std::chrono::duration<double>(1)});
  rig.join_all();
  rig.job.tick(rig.now);

  rig.pass(100);
  rig.job.tick(rig.now);
  EXPECT_EQ(rig.job.aborted(), std::nullopt);
  for (int i = 0; i < 10; ++i) {
    rig.pass(0.11);
    rig.job.tick(rig.now);
  }
  EXPECT_NE(rig.job.aborted(), std::nullopt);
}

TEST(Job, KeysAreWaitedForAndBounded) {
  Rig rig({.ranks = 2});
  rig.join_all();
  rig.wait(1, "strategy");
  rig.wait(2, "never", 3);

  rig.job.set("strategy", "tp2");
  EXPECT_THAT(rig.said(), ElementsAre("1 found tp2"));
  rig.pass(3);
  rig.job.tick(rig.now);
  EXPECT_THAT(rig.said(), ElementsAre("2 refused nobody set it; timed out after 3 s"));

  EXPECT_EQ(rig.job.check("strategy"), "tp2");
  EXPECT_THROW(rig.job.set("", ""), InvalidArgument);
  EXPECT_THROW(rig.job.set("a b", ""), InvalidArgument);
  EXPECT_THROW(rig.job.set(std::string(201, 'k'), ""), InvalidArgument);
  EXPECT_THROW(rig.job.set("large", std::string(kMostValueBytes + 1, ' ')), InvalidArgument);
}

TEST(Job, KeysHaveABoundOfBytesTogether) {
  Rig rig({.ranks = 1});
  const std::string value(kMostValueBytes - 1, ' ');

  for (int i = 0; i < 16; ++i) rig.job.set(std::string(1, static_cast<char>('a' + i)), value);
  EXPECT_THROW(rig.job.set("q", "x"), InvalidArgument);
  rig.job.set("a", "");
  rig.job.set("q", "x");
}

TEST(Job, TheValuesOfAGatherHaveABoundTogether) {
  Rig rig({.ranks = 3});
  rig.join_all();

  rig.gather(1, "g", std::string(kMostValueBytes, ' '));
  rig.gather(2, "g", " ");

  EXPECT_THAT(rig.said(), ElementsAre(HasSubstr("1 refused all values together"), HasSubstr("2 refused all values")));
}

TEST(Job, AnAbortKeepsItsFirstReasonAndCutsLongOnes) {
  Rig rig({.ranks = 1});
  rig.join_all();

  rig.job.abort(std::string(5000, 'r'), rig.now);
  rig.job.abort("later", rig.now);

  EXPECT_EQ(*rig.job.aborted(), std::string(kMostReasonBytes, 'r'));
  EXPECT_EQ(rig.said().size(), 1U);
}

TEST(Limits, TokensAreComparedInFull) {
  struct Row {
    const char* ours;
    const char* theirs;
    bool same;
  };
  for (const Row& row : {Row{"abc", "abc", true}, Row{"abc", "abd", false}, Row{"abc", "ab", false},
                         Row{"abc", "abcabc", false}, Row{"abc", "", false}, Row{"", "abc", false}})
    EXPECT_EQ(same_token(row.ours, row.theirs), row.same) << row.ours << " and " << row.theirs;
  EXPECT_FALSE(why_invalid_token("secret"));
  for (const char* bad : {"", "two words", "tab\t", "\xff"}) EXPECT_TRUE(why_invalid_token(bad));
}

TEST(Job, RanksPrintAsRanges) {
  EXPECT_EQ(ranks_text({}), "");
  EXPECT_EQ(ranks_text({4}), "4");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

}  // namespace
}  // namespace hspmd
