#include "hspmd/runtime/transport/group.h"

#include <algorithm>

#include "hspmd/base/errors.h"

namespace hspmd {

Group::Group(const GroupPlace& place, const std::vector<int>& ranks, std::size_t block, std::uint32_t tag) {
  std::vector<std::uint64_t> seen;
  std::vector<std::vector<int>> by_host;  // ranks
  for (std::size_t p = 0; p < ranks.size(); ++p) {
    const std::uint64_t host = place.hosts.at(static_cast<std::size_t>(ranks[p]));
    const auto known = std::find(seen.begin(), seen.end(), host);
    const auto h = static_cast<std::size_t>(known - seen.begin());
    if (known == seen.end()) {
      seen.push_back(host);
      by_host.emplace_back();
    }
    host_of_.push_back(static_cast<int>(h));
    local_.push_back(static_cast<int>(by_host[h].size()));
    by_host[h].push_back(ranks[p]);
    if (ranks[p] == place.rank) me_ = static_cast<int>(p);
  }
  hosts_ = static_cast<int>(by_host.size());
  const auto by_size = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [fewest, most] = std::minmax_element(by_host.begin(), by_host.end(), by_size);
  owners_ = static_cast<int>(fewest->size());
  regular_ = fewest->size() == most->size() && std::is_sorted(host_of_.begin(), host_of_.end());
  team_.emplace(place.generation, by_host[static_cast<std::size_t>(host())], place.rank, block);
  if (hosts_ == 1) return;
  check_internal(place.messages != nullptr, "ranks of several hosts have messages");
  const WaitLimits limits = place.generation.limits();
  flat_.emplace(*place.messages, ranks, tag, *limits.abort, limits.timeout);
  if (local(me_) >= owners_) return;
  std::vector<int> owners;
  for (const auto& list : by_host) owners.push_back(list[static_cast<std::size_t>(local(me_))]);
  across_.emplace(*place.messages, owners, tag + 1, *limits.abort, limits.timeout);
}

}  // namespace hspmd
