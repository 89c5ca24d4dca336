#include "hspmd/runtime/kernels/plain_kernels.h"

#include <c10/core/InferenceMode.h>

#include "hspmd/runtime/kernels/aten_dot.h"

namespace hspmd {

std::unique_ptr<Kernel> make_plain_kernel(const KernelRequest& request) {
  using namespace kernels;
  static constexpr Entry kDot[] = {{"dot", aten_dot}};
  const c10::InferenceMode no_autograd;
  for (const std::span<const Entry> table : {std::span<const Entry>(kDot), plain_elements(), plain_rows(),
                                             plain_vocabulary(), plain_attention(), plain_adamw()}) {
    if (const Maker make = find_maker(table, request)) return make(request);
  }
  invalid("[kernels] the aten backend must have a kernel of {}", request.op->name());
}

}  // namespace hspmd
