#include "hspmd/config/nearest.h"

#include <algorithm>

namespace hspmd {
namespace {

constexpr std::size_t kCompared = 64;

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kCompared);
  b = b.substr(0, kCompared);
  std::vector<std::vector<int>> to(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        to[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replaced = to[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      to[i][j] = std::min({to[i - 1][j] + 1, to[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) to[i][j] = std::min(to[i][j], to[i - 2][j - 2] + 1);
    }
  }
  return to[a.size()][b.size()];
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto best = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  if (best == candidates.end()) return std::nullopt;
  return *best;
}

}  // namespace hspmd
