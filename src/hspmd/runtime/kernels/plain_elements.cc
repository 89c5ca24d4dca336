#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include <algorithm>

#include "hspmd/runtime/kernels/plain_kernels.h"
#include "hspmd/runtime/kernels/plain_tensors.h"

namespace hspmd::kernels {
namespace {

std::unique_ptr<Kernel> accumulate(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor x = t.in(0), y = t.out(0);
  if (request.write == Write::kAdd) return t.kernel([=]() mutable { y.add_(x); });
  return t.kernel([=]() mutable { y.copy_(x); });
}

std::unique_ptr<Kernel> add(const KernelRequest& request) {
  PlainTensors t(request);
  std::vector<at::Tensor> terms;
  for (std::size_t i = 0; i < request.operands.size(); ++i) terms.push_back(t.in(i));
  at::Tensor y = t.out(0);
  if (terms.size() == 1) return t.kernel([=]() mutable { y.copy_(terms[0]); });
  return t.kernel([=]() mutable {
    at::add_out(y, terms[0], terms[1]);
    for (std::size_t i = 2; i < terms.size(); ++i) y.add_(terms[i]);
  });
}

std::unique_ptr<Kernel> mul(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor a = t.in(0), b = t.in(1), y = t.out(0);
  return t.kernel([=]() mutable { at::mul_out(y, a, b); });
}

std::unique_ptr<Kernel> scale(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor x = t.in(0), y = t.out(0), factor = t.constant(request.attributes->number("factor"));
  return t.kernel([=]() mutable { at::mul_out(y, x, factor); });
}

std::unique_ptr<Kernel> silu_mul(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor gate = t.in(0), up = t.in(1), y = t.out(0);
  return t.kernel([=]() mutable {
    at::silu_out(y, gate);
    y.mul_(up);
  });
}

// dup may lie where up lies, dgate where gate lies: up is read for the last time before dup is written, gate is not
// written before the last line.
std::unique_ptr<Kernel> silu_mul_grad(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor gate = t.in(0), up = t.in(1), dy = t.in(2), dgate = t.out(0), dup = t.out(1);
  at::Tensor dsilu = t.scratch(gate.sizes());
  return t.kernel([=]() mutable {
    at::mul_out(dsilu, dy, up);
    at::silu_out(dup, gate);
    dup.mul_(dy);
    at::silu_backward_out(dgate, dsilu, gate);
  });
}

std::unique_ptr<Kernel> tanh(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor x = t.in(0), y = t.out(0);
  return t.kernel([=]() mutable { at::tanh_out(y, x); });
}

std::unique_ptr<Kernel> tanh_grad(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor y = t.in(0), dy = t.in(1), dx = t.out(0);
  return t.kernel([=]() mutable { at::tanh_backward_out(dx, dy, y); });
}

std::unique_ptr<Kernel> add_bias(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor x = t.in(0), bias = t.in(1), y = t.out(0);
  return t.kernel([=]() mutable { at::add_out(y, x, bias); });
}

std::unique_ptr<Kernel> bias_grad(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t width = request.results[0][0].size();
  const std::int64_t rows = width == 0 ? 0 : volume(request.operands[1]) / width;
  at::Tensor dy = t.in(1, {rows, width}), bias = t.out(0);
  return t.kernel([=]() mutable { at::sum_out(bias, dy, at::IntArrayRef({0})); });
}

std::unique_ptr<Kernel> squared_error(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t n = volume(request.operands[0]);
  at::Tensor prediction = t.in(0, {n}), target = t.in(1, {n}), y = t.out(0), error = t.scratch({n});
  return t.kernel([=]() mutable {
    at::sub_out(error, prediction, target);
    error.mul_(error);
    at::sum_out(y, error, at::IntArrayRef({0}));
  });
}

std::unique_ptr<Kernel> squared_error_grad(const KernelRequest& request) {
  PlainTensors t(request);
  at::Tensor prediction = t.in(0), target = t.in(1), dloss = t.in(2), y = t.out(0), two = t.constant(2);
  return t.kernel([=]() mutable {
    at::sub_out(y, prediction, target);
    y.mul_(dloss);
    y.mul_(two);
  });
}

// In double, piece by piece, so that the workspace stays small.
std::unique_ptr<Kernel> sumsq(const KernelRequest& request) {
  constexpr std::int64_t kPiece = 1 << 18;
  PlainTensors t(request);
  const std::int64_t n = volume(request.operands[0]);
  at::Tensor x = t.in(0, {n}), y = t.out(0);
  at::Tensor wide = t.scratch({std::min(n, kPiece)}, at::kDouble);
  at::Tensor part = t.scratch({}, at::kDouble), total = t.scratch({}, at::kDouble);
  return t.kernel([=]() mutable {
    total.zero_();
    for (std::int64_t i = 0; i < n; i += kPiece) {
      const std::int64_t length = std::min(kPiece, n - i);
      const at::Tensor squares = wide.narrow(0, 0, length);
      squares.copy_(x.narrow(0, i, length));
      squares.mul_(squares);
      at::sum_out(part, squares, at::IntArrayRef({0}));
      total.add_(part);
    }
    y.copy_(total);
  });
}

constexpr Entry kTable[] = {
    {"accumulate", accumulate},
    {"add", add},
    {"add_bias", add_bias},
    {"bias_grad", bias_grad},
    {"mul", mul},
    {"scale", scale},
    {"silu_mul", silu_mul},
    {"silu_mul_grad", silu_mul_grad},
    {"squared_error", squared_error},
    {"squared_error_grad", squared_error_grad},
    {"sumsq", sumsq},
    {"tanh", tanh},
    {"tanh_grad", tanh_grad},
};

}  // namespace

std::span<const Entry> plain_elements() {
  return kTable;
}

}  // namespace hspmd::kernels
