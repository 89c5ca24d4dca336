// Who takes part in a job, and what has happened to whom.
//
//   absent -> joined -> left     said goodbye
//                    -> lost     its connection broke, or its heartbeats stopped
//
// A rank that left or was lost may join again, as a new process.
#pragma once

#include <chrono>
#include <string>

namespace hspmd {

enum class MemberState { kAbsent, kJoined, kLeft, kLost };
[[nodiscard]] const char* to_string(MemberState state);

struct Member {
  MemberState state = MemberState::kAbsent;
  std::string why = {};  // of a loss
  std::chrono::steady_clock::time_point since = {};
};

// What a loss means: the end of the job for all, or news that the owner of the control plane decides about.
enum class LossPolicy { kAbort, kReport };

struct ControlEvent {
  enum class Kind { kJoined, kLeft, kLost, kAborted };
  Kind kind = Kind::kJoined;
  int rank = -1;          // -1: of the whole job
  std::string text = {};  // why it was lost or aborted
  std::chrono::steady_clock::time_point when = {};
};

}  // namespace hspmd
