#include "hspmd/runtime/transport/rendezvous.h"

#include <gtest/gtest.h>

namespace hspmd {
namespace {

TEST(AbortSubscribers, AllHearOnceAndLateOnesAtOnce) {
  AbortSubscribers subscribers;
  std::string heard;
  const auto listen = [&](const char* who) {
    return subscribers.add(
        [&heard, who](const std::string& reason) { heard += std::string(who) + ":" + reason + " "; });
  };
  listen("a");
  const int gone = listen("b");
  listen("c");
  subscribers.remove(gone);

  subscribers.tell("first");
  subscribers.tell("second");
  listen("late");

  EXPECT_EQ(heard, "a:first c:first late:first ");
}

}  // namespace
}  // namespace hspmd
