// DeviceIndex: numbers the devices of a plan 0..n-1, ascending, so that what is known of each lies in a plain vector.
//
//   DeviceIndex({5, 900, 7}).at(900) == 2
#pragma once

#include <cstdint>
#include <vector>

#include "hspmd/annotation/annotation.h"

namespace hspmd::comm {

class DeviceIndex {
 public:
  // In any order, repeated or not.
  explicit DeviceIndex(std::vector<Device> devices);

  [[nodiscard]] std::size_t size() const { return devices_.size(); }
  [[nodiscard]] Device device(std::size_t index) const { return devices_[index]; }
  // The number of a device that is among them.
  [[nodiscard]] std::size_t at(Device device) const {
    return table_.empty() ? search(device) : table_[static_cast<std::size_t>(device - devices_.front())];
  }

 private:
  [[nodiscard]] std::size_t search(Device device) const;

  std::vector<Device> devices_;
  std::vector<std::uint32_t> table_;  // by device, where the ids lie close together
};

[[nodiscard]] DeviceIndex devices_of_both(const Annotation& from, const Annotation& to);

}  // namespace hspmd::comm
