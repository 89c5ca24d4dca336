// The known word that a mistyped one was meant to be.
//
//   nearest("learning_rte", {"lr", "learning_rate"}) = "learning_rate"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hspmd {

// Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b` (optimal string alignment).
// Only the first 64 bytes of each count.
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b);

// The candidate with the least edit distance, the first of several; nullopt when there is none at all.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace hspmd
