#include "hspmd/switching/train_state.h"

#include <cstring>

namespace hspmd {
std::vector<std::byte> logical_bytes(const StateTensor& tensor, std::size_t element_bytes) {
  const auto elements = static_cast<std::size_t>(volume(tensor.shape));
  std::vector<std::byte> whole(elements * element_bytes);
  std::vector<bool> known(elements, false);
  for (const auto& [device, shard] : tensor.shards) {
    const auto* data = static_cast<const std::byte*>(shard.data);
    const std::int64_t count = volume(shard.box);
    for (std::int64_t local = 0; local < count; ++local) {
      const auto global = static_cast<std::size_t>(global_index(shard.box, local, tensor.shape));
      std::byte* target = whole.data() + global * element_bytes;
      const std::byte* source = data + static_cast<std::size_t>(local) * element_bytes;
      if (known[global] && std::memcmp(target, source, element_bytes) != 0) {
        throw InternalError(fmt::format("[state] copies of {} must agree; device {} differs at element {}", tensor.name,
                                        device, global));
      }
      std::memcpy(target, source, element_bytes);
      known[global] = true;
    }
  }
  for (std::size_t i = 0; i < elements; ++i) {
    if (!known[i])
      throw InternalError(fmt::format("[state] every element of {} must be held; {} is not", tensor.name, i));
  }
  return whole;
}

std::vector<double> logical_values(const StateTensor& tensor, std::size_t element_bytes) {
  const std::vector<std::byte> bytes = logical_bytes(tensor, element_bytes);
  std::vector<double> values(bytes.size() / element_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (element_bytes == sizeof(double)) {
      std::memcpy(&values[i], bytes.data() + i * sizeof(double), sizeof(double));
    } else {
      float value = 0;
      std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
      values[i] = static_cast<double>(value);
    }
  }
  return values;
}

}  // namespace hspmd
