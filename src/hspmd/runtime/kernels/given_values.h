// Kernels run on values that a test writes down: integers where they are given, floats elsewhere.
//
//   run_given<double>(make_reference_kernel, "mul", {}, {{box({2}), {2, 3}}, {box({2}), {5, 7}}}, {box({2})})  -> {{10,
//   21}}
#pragma once

#include <cstdint>
#include <vector>

#include "hspmd/ops/ops.h"
#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd {

inline Box box(std::initializer_list<std::int64_t> sizes) {
  return whole(Shape(sizes));
}

struct Given {
  Box box;
  std::vector<double> floats = {};
  std::vector<std::int32_t> integers = {};
};

using Maker = std::unique_ptr<Kernel> (*)(const KernelRequest&);

template <typename T>
std::vector<std::vector<double>> run_given(Maker make, const char* op, const Attributes& attributes,
                                           const std::vector<Given>& given, const std::vector<Box>& results) {
  constexpr Precision kPrecision = sizeof(T) == 8 ? Precision::kFp64 : Precision::kFp32;
  KernelRequest request{ops::find(op), &attributes, {}, results, kPrecision, Write::kSet};
  std::vector<std::vector<T>> floats, out;
  for (const Given& g : given) {
    request.operands.push_back(g.box);
    floats.emplace_back(g.floats.begin(), g.floats.end());
  }
  for (const Box& result : results) out.emplace_back(static_cast<std::size_t>(volume(result)));
  std::vector<const void*> in;
  std::vector<void*> into;
  for (std::size_t i = 0; i < given.size(); ++i)
    in.push_back(given[i].integers.empty() ? static_cast<const void*>(floats[i].data()) : given[i].integers.data());
  for (auto& values : out) into.push_back(values.data());
  const auto kernel = make(request);
  std::vector<std::byte> workspace(kernel->workspace_bytes());
  kernel->run(in, into, workspace.data());
  std::vector<std::vector<double>> values;
  for (const auto& result : out) values.emplace_back(result.begin(), result.end());
  return values;
}

}  // namespace hspmd
