// TrainState: the named logical tensors of a run, where their parts lie, and the step they belong to. The only source
// for switching, checkpoints and buddies.
//
//   model.norm.weight/master  top D {0-1: Dx2 | 2:}  [128]   device 0: box [0,128) at ..., device 1: ...
//
// It looks at the memory of the run's devices and owns none of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hspmd/annotation/annotation.h"

namespace hspmd {

struct StateShard {
  Box box;
  void* data = nullptr;  // row-major over the box
};

struct StateTensor {
  std::string name;  // "model.norm.weight/master", ".../m", ".../v"
  Annotation layout;
  Shape shape;
  std::map<Device, StateShard> shards;
};

struct TrainState {
  std::int64_t step = 0;  // updates applied
  std::size_t element_bytes = 4;
  std::map<std::string, StateTensor> tensors;
};

// The whole tensor, row-major. Throws InternalError where two copies differ in a bit or an element is missing.
[[nodiscard]] std::vector<std::byte> logical_bytes(const StateTensor& tensor, std::size_t element_bytes);
[[nodiscard]] std::vector<double> logical_values(const StateTensor& tensor, std::size_t element_bytes);

}  // namespace hspmd
