// The best loops that this CPU runs.
#include "hspmd/runtime/kernels/fused_loops.h"

namespace hspmd::kernels {

namespace baseline {
extern const Loops<float> kFloat;
extern const Loops<double> kDouble;
}  // namespace baseline
namespace v3 {
extern const Loops<float> kFloat;
extern const Loops<double> kDouble;
}  // namespace v3
namespace v4 {
extern const Loops<float> kFloat;
extern const Loops<double> kDouble;
}  // namespace v4

namespace {

int level() {
  static const int found = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return 4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 3;
    return 1;
  }();
  return found;
}

}  // namespace

template <>
const Loops<float>& loops<float>() {
  return level() == 4 ? v4::kFloat : level() == 3 ? v3::kFloat : baseline::kFloat;
}

template <>
const Loops<double>& loops<double>() {
  return level() == 4 ? v4::kDouble : level() == 3 ? v3::kDouble : baseline::kDouble;
}

}  // namespace hspmd::kernels
