// What a kernel body works with: typed views of operands and results, and their local shapes.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "hspmd/runtime/kernels/kernel.h"

namespace hspmd::kernels {

struct Call {
  std::span<const void* const> operands;
  std::span<void* const> results;
  void* workspace = nullptr;

  template <typename T>
  [[nodiscard]] const T* in(std::size_t i) const {
    return static_cast<const T*>(operands[i]);
  }
  template <typename T>
  [[nodiscard]] T* out(std::size_t i) const {
    return static_cast<T*>(results[i]);
  }
};

// A kernel made of a body and the size of its scratch memory.
template <typename Body>
class BodyKernel final : public Kernel {
 public:
  BodyKernel(Body body, std::size_t workspace) : body_(std::move(body)), workspace_(workspace) {}
  [[nodiscard]] std::size_t workspace_bytes() const override { return workspace_; }
  void run(std::span<const void* const> operands, std::span<void* const> results, void* workspace) override {
    body_(Call{operands, results, workspace});
  }

 private:
  Body body_;
  std::size_t workspace_;
};

template <typename Body>
std::unique_ptr<Kernel> make_kernel(Body body, std::size_t workspace = 0) {
  return std::make_unique<BodyKernel<Body>>(std::move(body), workspace);
}

[[nodiscard]] inline std::int64_t dim(const Box& box, std::size_t d) {
  return box[d].size();
}

// Product of the dims before (from 0) and from `d` on.
[[nodiscard]] inline std::int64_t rows_before(const Box& box, std::size_t d) {
  std::int64_t n = 1;
  for (std::size_t i = 0; i < d; ++i) n *= dim(box, i);
  return n;
}

using Maker = std::unique_ptr<Kernel> (*)(const KernelRequest&);
struct Entry {
  constexpr Entry(std::string_view name, Maker both) : Entry(name, both, both) {}
  constexpr Entry(std::string_view name, Maker single, Maker twofold) : op(name), fp32(single), fp64(twofold) {}
  std::string_view op;
  Maker fp32;
  Maker fp64;
};

// Null where the table has no kernel of the operator.
[[nodiscard]] inline Maker find_maker(std::span<const Entry> table, const KernelRequest& request) {
  for (const Entry& entry : table) {
    if (entry.op == request.op->name()) return request.precision == Precision::kFp64 ? entry.fp64 : entry.fp32;
  }
  return nullptr;
}

}  // namespace hspmd::kernels
