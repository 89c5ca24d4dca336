// Schedule: the order in which a stage runs its micro-batches, as data.
//
//   GPipe, 3 micro-batches        F0 F1 F2 B0 B1 B2
//   1F1B, stage 0 of 2            F0 F1 B0 F2 B1 B2
//   1F1B, stage 1 of 2            F0 B0 F1 B1 F2 B2
//   zero bubble, stage 0 of 2     F0 F1 I0 W0 F2 I1 W1 I2 W2
//   zero bubble, stage 1 of 2     F0 I0 F1 I1 W0 F2 I2 W1 W2
//
// Zero bubble splits B into I, what the stage before waits for, and W, the gradients of the weights. Stage s keeps s
// micro-batches between their I and their W: work for when it would wait. All stages then hold as many activations as
// the first stage of 1F1B.
//
// A virtual stage other than 0 stands before the letter: 1F0. Sources: GPipe (Huang et al. 2019), PipeDream-Flush
// 1F1B (Narayanan et al. 2021), ZB-H1 (Qi et al. 2023).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hspmd {

enum class ActionKind {
  kForward,   // F
  kBackward,  // B
  kInput,     // I: the part of B that the stage before waits for
  kWeight,    // W: the rest of B
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int virtual_stage = 0;
  int micro_batch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};
using Actions = std::vector<Action>;

enum class ScheduleKind { kGPipe, kOneFOneB, kZeroBubble };
[[nodiscard]] const char* to_string(ScheduleKind kind);  // "gpipe", "1f1b", "zero_bubble"

// What stage `stage` of `stages` does for `micro_batches` micro-batches.
[[nodiscard]] Actions actions(ScheduleKind kind, int stage, int stages, int micro_batches);

// Why these actions, one list a stage, are no schedule of `micro_batches`; nullopt when they are. They must run each
// micro-batch once forward and then once backward (B, or I and then W) on every stage, and must not deadlock when a
// stage posts the sends of one action together with the receives of its next and blocks until all of them are met.
[[nodiscard]] std::optional<std::string> why_invalid(const std::vector<Actions>& stages, int micro_batches);

// The most micro-batches that have gone forward and not yet wholly backward.
[[nodiscard]] int max_in_flight(const Actions& actions);

[[nodiscard]] std::string to_string(const Actions& actions);
// Throws InvalidArgument with the word that is no action.
[[nodiscard]] Actions parse_actions(std::string_view text);

}  // namespace hspmd
