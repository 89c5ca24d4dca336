// The local sizes of one attention: query [b,s,k,g,d], key and value [b,t,k,d].
#pragma once

#include "hspmd/runtime/kernels/kernel_call.h"

namespace hspmd::kernels {

struct AttentionShape {
  std::int64_t b, s, t, k, g, d;
  explicit AttentionShape(const KernelRequest& r)
      : b(dim(r.operands[0], 0)),
        s(dim(r.operands[0], 1)),
        t(dim(r.operands[1], 1)),
        k(dim(r.operands[0], 2)),
        g(dim(r.operands[0], 3)),
        d(dim(r.operands[0], 4)) {}
  // Elements from one position to the next.
  [[nodiscard]] std::int64_t query_stride() const { return k * g * d; }
  [[nodiscard]] std::int64_t key_stride() const { return k * d; }
};

}  // namespace hspmd::kernels
