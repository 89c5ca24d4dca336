#include "hspmd/comm/device_index.h"

#include <algorithm>

namespace hspmd::comm {

DeviceIndex::DeviceIndex(std::vector<Device> devices) : devices_(std::move(devices)) {
  if (!std::is_sorted(devices_.begin(), devices_.end())) std::sort(devices_.begin(), devices_.end());
  devices_.erase(std::unique(devices_.begin(), devices_.end()), devices_.end());
  if (devices_.empty()) return;
  const auto range = static_cast<std::size_t>(devices_.back() - devices_.front()) + 1;
  if (range > 8 * devices_.size() + 64) return;
  table_.resize(range);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    table_[static_cast<std::size_t>(devices_[i] - devices_.front())] = static_cast<std::uint32_t>(i);
  }
}

std::size_t DeviceIndex::search(Device device) const {
  return static_cast<std::size_t>(std::lower_bound(devices_.begin(), devices_.end(), device) - devices_.begin());
}

DeviceIndex devices_of_both(const Annotation& from, const Annotation& to) {
  std::vector<Device> devices = devices_of(from);
  const std::vector<Device> more = devices_of(to);
  devices.insert(devices.end(), more.begin(), more.end());
  return DeviceIndex(std::move(devices));
}

}  // namespace hspmd::comm
