// A tensor over planned memory: made once; a run points it elsewhere without allocating anything. Views of it share its
// storage, so they follow.
//
//   PlannedTensor x({6, 4}, at::kFloat, c10::kCPU);
//   at::Tensor rows = x.tensor().narrow(0, 2, 2);
//   x.point(memory);                                 // now `rows` reads memory[8] to memory[15]
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd::kernels {

class PlannedTensor {
 public:
  PlannedTensor(at::IntArrayRef sizes, at::ScalarType type, c10::Device device)
      : tensor_(at::for_blob(&placeholder_, sizes)
                    .options(at::TensorOptions().dtype(type).device(device))
                    .target_device(device)
                    .make_tensor()) {}

  void point(const void* data) {
    if (data == data_) return;
    tensor_.storage().set_data_ptr_noswap(at::DataPtr(const_cast<void*>(data), tensor_.device()));
    data_ = data;
  }
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }

 private:
  static inline double placeholder_ = 0;
  at::Tensor tensor_;
  const void* data_ = nullptr;
};

[[nodiscard]] inline at::ScalarType float_type(Precision precision) {
  return precision == Precision::kFp64 ? at::kDouble : at::kFloat;
}
[[nodiscard]] inline c10::Device device_of(Processor processor) {
  switch (processor) {
    case Processor::kCpu:
      return c10::kCPU;
    case Processor::kCuda:
      return {c10::kCUDA, 0};
    case Processor::kNone:
      return c10::kMeta;
  }
  throw InternalError("[kernels] an unknown processor");
}

}  // namespace hspmd::kernels
