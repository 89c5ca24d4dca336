#include "hspmd/schedule/schedule.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

constexpr std::string_view kLetters = "FBIW";  // in the order of ActionKind

Actions one_f_one_b(int stage, int stages, int micro_batches) {
  const int ahead = std::min(stages - stage, micro_batches);  // forwards before the first backward
  Actions list;
  for (int m = 0; m < ahead; ++m) list.push_back({ActionKind::kForward, 0, m});
  for (int m = 0; m < micro_batches; ++m) {
    list.push_back({ActionKind::kBackward, 0, m});
    if (m + ahead < micro_batches) list.push_back({ActionKind::kForward, 0, m + ahead});
  }
  return list;
}

Actions zero_bubble(int stage, int stages, int micro_batches) {
  const int ahead = std::min(stages - stage, micro_batches);
  Actions list;
  for (int m = 0; m < ahead; ++m) list.push_back({ActionKind::kForward, 0, m});
  for (int m = 0; m < micro_batches; ++m) {
    list.push_back({ActionKind::kInput, 0, m});
    if (m >= stage) list.push_back({ActionKind::kWeight, 0, m - stage});
    if (m + ahead < micro_batches) list.push_back({ActionKind::kForward, 0, m + ahead});
  }
  for (int m = std::max(0, micro_batches - stage); m < micro_batches; ++m) list.push_back({ActionKind::kWeight, 0, m});
  return list;
}

// Which actions may follow each other on one micro-batch: F, then B or I, after I W.
enum class Progress { kNothing, kForward, kInput, kDone };

std::optional<Progress> after(Progress before, ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return before == Progress::kNothing ? std::optional(Progress::kForward) : std::nullopt;
    case ActionKind::kBackward:
      return before == Progress::kForward ? std::optional(Progress::kDone) : std::nullopt;
    case ActionKind::kInput:
      return before == Progress::kForward ? std::optional(Progress::kInput) : std::nullopt;
    case ActionKind::kWeight:
      return before == Progress::kInput ? std::optional(Progress::kDone) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::string> why_incomplete(const Actions& list, int stage, int micro_batches) {
  std::vector<Progress> progress(static_cast<std::size_t>(micro_batches), Progress::kNothing);
  for (const Action& action : list) {
    if (action.micro_batch < 0 || action.micro_batch >= micro_batches) {
      return fmt::format("stage {} names micro-batch {} of {}", stage, action.micro_batch, micro_batches);
    }
    Progress& now = progress[static_cast<std::size_t>(action.micro_batch)];
    const auto next = after(now, action.kind);
    if (!next) return fmt::format("stage {} runs {} out of order", stage, to_string(Actions{action}));
    now = *next;
  }
  const auto missing = std::find_if(progress.begin(), progress.end(), [](Progress p) { return p != Progress::kDone; });
  if (missing == progress.end()) return std::nullopt;
  return fmt::format("stage {} does not finish micro-batch {}", stage, missing - progress.begin());
}

// The message between neighbouring stages that an action sends, or receives.
struct Message {
  int from = 0;
  int to = 0;
  int micro_batch = 0;
  friend bool operator==(const Message&, const Message&) = default;
};

std::optional<Message> sent_by(const Action& a, int stage, int stages) {
  const int to = a.kind == ActionKind::kForward ? stage + 1 : stage - 1;
  if (to < 0 || to >= stages || a.kind == ActionKind::kWeight) return std::nullopt;
  return Message{stage, to, a.micro_batch};
}

std::optional<Message> received_by(const Action& a, int stage, int stages) {
  const int from = a.kind == ActionKind::kForward ? stage - 1 : stage + 1;
  if (from < 0 || from >= stages || a.kind == ActionKind::kWeight) return std::nullopt;
  return Message{from, stage, a.micro_batch};
}

// Each stage blocks between two actions on {what the last one sends, what the next one receives}; a message is met
// when both ends have posted it.
std::optional<std::string> why_deadlocked(const std::vector<Actions>& lists) {
  const int stages = static_cast<int>(lists.size());
  std::vector<std::size_t> at(lists.size(), 0);  // actions finished
  std::vector<std::vector<Message>> posted(lists.size());
  const auto post = [&](std::size_t s) {
    posted[s].clear();
    if (at[s] > 0) {
      if (const auto m = sent_by(lists[s][at[s] - 1], static_cast<int>(s), stages)) posted[s].push_back(*m);
    }
    if (at[s] < lists[s].size()) {
      if (const auto m = received_by(lists[s][at[s]], static_cast<int>(s), stages)) posted[s].push_back(*m);
    }
  };
  for (std::size_t s = 0; s < lists.size(); ++s) post(s);
  std::vector<Message> met;
  bool progress = true;
  while (progress) {
    progress = false;
    for (std::size_t s = 0; s < lists.size(); ++s) {
      for (std::size_t t = 0; t < lists.size(); ++t) {
        if (s == t) continue;
        for (const Message& m : posted[s]) {
          const bool both = std::find(posted[t].begin(), posted[t].end(), m) != posted[t].end();
          if (both && std::find(met.begin(), met.end(), m) == met.end()) met.push_back(m);
        }
      }
    }
    for (std::size_t s = 0; s < lists.size(); ++s) {
      const bool free = std::all_of(posted[s].begin(), posted[s].end(), [&](const Message& m) {
        return std::find(met.begin(), met.end(), m) != met.end();
      });
      if (!free || at[s] >= lists[s].size()) continue;
      ++at[s];
      post(s);
      progress = true;
    }
  }
  for (std::size_t s = 0; s < lists.size(); ++s) {
    if (at[s] < lists[s].size())
      return fmt::format("stage {} waits for ever before {}", s, to_string(Actions{lists[s][at[s]]}));
  }
  return std::nullopt;
}

}  // namespace

const char* to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return "gpipe";
    case ScheduleKind::kOneFOneB:
      return "1f1b";
    case ScheduleKind::kZeroBubble:
      return "zero_bubble";
  }
  return "";
}

Actions actions(ScheduleKind kind, int stage, int stages, int micro_batches) {
  check_internal(stage >= 0 && stage < stages && micro_batches >= 0, "a stage is one of its pipeline");
  switch (kind) {
    case ScheduleKind::kGPipe:  // all forwards first: 1F1B of a pipeline that is deep enough
      return one_f_one_b(0, std::max(micro_batches, 1), micro_batches);
    case ScheduleKind::kOneFOneB:
      return one_f_one_b(stage, stages, micro_batches);
    case ScheduleKind::kZeroBubble:
      return zero_bubble(stage, stages, micro_batches);
  }
  return {};
}

std::optional<std::string> why_invalid(const std::vector<Actions>& stages, int micro_batches) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (auto why = why_incomplete(stages[s], static_cast<int>(s), micro_batches)) return why;
  }
  return why_deadlocked(stages);
}

int max_in_flight(const Actions& list) {
  int now = 0;
  int most = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeight) --now;
  }
  return most;
}

std::string to_string(const Actions& list) {
  std::string text;
  for (const Action& a : list) {
    if (!text.empty()) text += " ";
    if (a.virtual_stage != 0) text += fmt::format("{}", a.virtual_stage);
    text += fmt::format("{}{}", kLetters[static_cast<std::size_t>(a.kind)], a.micro_batch);
  }
  return text;
}

Actions parse_actions(std::string_view text) {
  Actions list;
  std::istringstream words{std::string(text)};
  std::string word;
  while (words >> word) {
    const auto number = [&](std::string_view digits, int absent) {
      int value = absent;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      const bool whole = error == std::errc{} && end == digits.data() + digits.size() && value >= 0;
      if (!whole && !(digits.empty() && absent >= 0))
        invalid("[schedule] an action must read like F0, B3 or 1F2. Received \"{}\".", word);
      return value;
    };
    const std::size_t letter = word.find_first_of(kLetters);
    if (letter == std::string::npos)
      invalid("[schedule] an action must read like F0, B3 or 1F2. Received \"{}\".", word);
    Action action;
    action.kind = static_cast<ActionKind>(kLetters.find(word[letter]));
    action.virtual_stage = number(std::string_view(word).substr(0, letter), 0);
    action.micro_batch = number(std::string_view(word).substr(letter + 1), -1);
    list.push_back(action);
  }
  return list;
}

}  // namespace hspmd
