// The tensors of one plain kernel. A kernel is written as a function of tensors that are made when it is bound; a run
// points them at its operands, results and workspace, and calls the function:
//
//   PlainTensors t(request);
//   at::Tensor x = t.in(0), w = t.in(1), y = t.out(0), product = t.scratch({rows, width});
//   return t.kernel([=]() mutable { at::mul_out(product, x, w); ... });
//
// Functions use out= and in-place forms, views, and numbers made with `constant`: a number given to ATen as a Scalar
// becomes a small tensor each time, except as the value of masked_fill_ and fill_, and as a factor (alpha, value).
#pragma once

#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "hspmd/runtime/kernels/planned_tensor.h"

namespace hspmd::kernels {

class PlainTensors {
 public:
  explicit PlainTensors(const KernelRequest& request)
      : request_(request), type_(float_type(request.precision)), device_(device_of(request.processor)) {}

  // Operand or result i, shaped as its box or as told. `ids` are operands of int32.
  [[nodiscard]] at::Tensor in(std::size_t i) { return add(From::kOperand, i, request_.operands[i]); }
  [[nodiscard]] at::Tensor in(std::size_t i, at::IntArrayRef sizes) { return add(From::kOperand, i, sizes, type_); }
  [[nodiscard]] at::Tensor ids(std::size_t i, at::IntArrayRef sizes) { return add(From::kOperand, i, sizes, at::kInt); }
  [[nodiscard]] at::Tensor out(std::size_t i) { return add(From::kResult, i, request_.results[i]); }
  [[nodiscard]] at::Tensor out(std::size_t i, at::IntArrayRef sizes) { return add(From::kResult, i, sizes, type_); }

  // Uninitialised at the beginning of a run.
  [[nodiscard]] at::Tensor scratch(at::IntArrayRef sizes) { return scratch(sizes, type_); }
  [[nodiscard]] at::Tensor scratch(at::IntArrayRef sizes, at::ScalarType type) {
    const at::Tensor tensor = add(From::kWorkspace, workspace_, sizes, type);
    workspace_ += (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
    return tensor;
  }

  // A number, as a tensor without dims.
  [[nodiscard]] at::Tensor constant(double value) const { return constant(value, type_); }
  [[nodiscard]] at::Tensor constant(double value, at::ScalarType type) const {
    return at::scalar_tensor(value, options().dtype(type));
  }
  [[nodiscard]] at::TensorOptions options() const { return at::TensorOptions().dtype(type_).device(device_); }

  template <typename Body>
  [[nodiscard]] std::unique_ptr<Kernel> kernel(Body body) {
    return std::make_unique<TensorKernel<Body>>(std::move(body), std::move(sources_), workspace_);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  enum class From { kOperand, kResult, kWorkspace };
  struct Source {
    PlannedTensor tensor;
    From from;
    std::size_t at;  // which operand or result; bytes from the beginning of the workspace
  };

  template <typename Body>
  class TensorKernel final : public Kernel {
   public:
    TensorKernel(Body body, std::vector<Source> sources, std::size_t workspace)
        : body_(std::move(body)), sources_(std::move(sources)), workspace_(workspace) {}
    [[nodiscard]] std::size_t workspace_bytes() const override { return workspace_; }

    void run(std::span<const void* const> operands, std::span<void* const> results, void* workspace) override {
      const c10::InferenceMode no_autograd;
      for (Source& source : sources_) {
        switch (source.from) {
          case From::kOperand:
            source.tensor.point(operands[source.at]);
            break;
          case From::kResult:
            source.tensor.point(results[source.at]);
            break;
          case From::kWorkspace:
            source.tensor.point(static_cast<std::byte*>(workspace) + source.at);
            break;
        }
      }
      body_();
    }

   private:
    Body body_;
    std::vector<Source> sources_;
    std::size_t workspace_;
  };

  at::Tensor add(From from, std::size_t at, at::IntArrayRef sizes, at::ScalarType type) {
    sources_.push_back({PlannedTensor(sizes, type, device_), from, at});
    return sources_.back().tensor.tensor();
  }

  at::Tensor add(From from, std::size_t at, const Box& box) {
    const Shape shape = extents(box);
    return add(from, at, {shape.begin(), shape.size()}, type_);
  }

  const KernelRequest& request_;
  at::ScalarType type_;
  c10::Device device_;
  std::vector<Source> sources_;
  std::size_t workspace_ = 0;
};

}  // namespace hspmd::kernels
