#include "hspmd/runtime/kernels/fused_loops.h"

namespace hspmd::kernels::v4 {

#include "hspmd/runtime/kernels/fused_loops.inc"

extern const Loops<float> kFloat;
extern const Loops<double> kDouble;
const Loops<float> kFloat = kLoops<float>;
const Loops<double> kDouble = kLoops<double>;

}  // namespace hspmd::kernels::v4
