// Kernel: one operator bound to local shapes, ready to run on planned memory. Made once at bind, run many times; a
// run allocates no tensor storage, makes no string, searches no map.
//
// Three backends behind one table:
//   aten       libtorch; on the CPU own fused loops (vectorised, chosen at load time) where they are faster
//   reference  plain loops: the oracle, and what sanitizers see
//   paced      no arithmetic; the operator takes its modelled time
//
// Operands and results are contiguous, row-major, 64-byte aligned and do not overlap, except where the operator says
// that a result overwrites an operand. An empty tensor's pointer may be null.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "hspmd/graph/operator.h"

namespace hspmd {

enum class Precision { kFp32, kFp64 };
[[nodiscard]] constexpr std::size_t element_bytes(Precision p) {
  return p == Precision::kFp64 ? 8 : 4;
}

[[nodiscard]] constexpr const char* precision_name(Precision p) {  // as in run and cluster files
  return p == Precision::kFp64 ? "fp64" : "fp32";
}

enum class Write {
  kSet,  // result = ...
  kAdd,  // result += ...: only where Operator::can_add()
};

// Whose memory the tensors lie in.
enum class Processor {
  kCpu,
  kCuda,
  kNone,  // nobody's: a run makes no values, and fails where a kernel would read memory of the host or mix devices
};

struct KernelRequest {
  const Operator* op = nullptr;
  const Attributes* attributes = nullptr;
  // The local part of each tensor in global coordinates: its extents are the local shape, its begins say which rows
  // of a split vocabulary are here.
  std::vector<Box> operands;
  std::vector<Box> results;
  Precision precision = Precision::kFp32;
  Write write = Write::kSet;
  Processor processor = Processor::kCpu;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Scratch memory the run needs, uninitialised, 64-byte aligned.
  [[nodiscard]] virtual std::size_t workspace_bytes() const { return 0; }
  virtual void run(std::span<const void* const> operands, std::span<void* const> results, void* workspace) = 0;
};

// Throws InvalidArgument when the backend has no kernel of the operator (it names both).
[[nodiscard]] std::unique_ptr<Kernel> make_reference_kernel(const KernelRequest& request);
// Without libtorch these two throw. The aten backend runs plain kernels wherever it has no fused loop; asked for by
// name, they run on the CPU too (tests).
[[nodiscard]] std::unique_ptr<Kernel> make_aten_kernel(const KernelRequest& request);
[[nodiscard]] std::unique_ptr<Kernel> make_plain_kernel(const KernelRequest& request);
// Once per process before any aten kernel runs: one thread a kernel (ATen and OpenBLAS alike).
void limit_kernel_threads(int threads);

}  // namespace hspmd
