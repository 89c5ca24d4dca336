#include <ATen/ops/cos.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "hspmd/runtime/kernels/kernel_call.h"
#include "hspmd/runtime/kernels/plain_kernels.h"
#include "hspmd/runtime/kernels/plain_tensors.h"
#include "hspmd/runtime/kernels/rope_angles.h"

namespace hspmd::kernels {
namespace {

std::unique_ptr<Kernel> rms_norm(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t width = request.operands[1][0].size();
  const std::int64_t rows = volume(request.results[1]);
  at::Tensor x = t.in(0, {rows, width}), w = t.in(1), y = t.out(0, {rows, width}), inverse = t.out(1, {rows});
  at::Tensor eps = t.constant(request.attributes->number("eps")), count = t.constant(static_cast<double>(width));
  return t.kernel([=, column = inverse.unsqueeze(1)]() mutable {
    at::mul_out(y, x, x);
    at::sum_out(inverse, y, at::IntArrayRef({1}));
    inverse.div_(count);
    inverse.add_(eps);
    inverse.rsqrt_();
    at::mul_out(y, x, column);
    y.mul_(w);
  });
}

// dw = sum over rows of dy x / rms;  dx = (dy w - x sum(dy w x / rms) / rms / width) / rms
std::unique_ptr<Kernel> rms_norm_grad(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t width = request.operands[1][0].size();
  const std::int64_t rows = volume(request.operands[2]);
  at::Tensor x = t.in(0, {rows, width}), w = t.in(1), inverse = t.in(2, {rows, 1}), dy = t.in(3, {rows, width});
  at::Tensor dx = t.out(0, {rows, width}), dw = t.out(1), mean = t.scratch({rows});
  at::Tensor count = t.constant(static_cast<double>(width));
  return t.kernel([=, column = mean.unsqueeze(1)]() mutable {
    at::mul_out(dx, dy, x);
    dx.mul_(inverse);
    at::sum_out(dw, dx, at::IntArrayRef({0}));
    dx.mul_(w);
    at::sum_out(mean, dx, at::IntArrayRef({1}));
    mean.div_(count);
    column.mul_(inverse);
    at::mul_out(dx, dy, w);
    dx.addcmul_(x, column, -1);
    dx.mul_(inverse);
  });
}

// Angles in double, as everywhere: positions may be large. The crossed products are made first, so that the result may
// lie where the operand lies.
std::unique_ptr<Kernel> rope(const KernelRequest& request) {
  PlainTensors t(request);
  const Box& box = request.operands[0];
  const std::int64_t width = box[box.size() - 1].size();
  const std::int64_t half = width / 2;
  const std::int64_t tokens = dim(box, 0) * dim(box, 1);
  const std::int64_t heads = rows_before(box, box.size() - 1) / std::max<std::int64_t>(tokens, 1);
  const double sign = request.attributes->integer("inverse") == 0 ? 1 : -1;
  at::Tensor frequencies = at::zeros({half}, t.options().dtype(at::kDouble));
  const std::vector<double> given = rope_frequencies(*request.attributes, width);
  for (std::int64_t i = 0; i < half; ++i) frequencies[i].fill_(sign * given[static_cast<std::size_t>(i)]);

  const at::Tensor x = t.in(0, {tokens, heads, width}), y = t.out(0, {tokens, heads, width});
  at::Tensor ids = t.ids(1, {tokens, 1});
  at::Tensor positions = t.scratch({tokens, 1}, at::kDouble);
  at::Tensor angles = t.scratch({tokens, half}, at::kDouble), wave = t.scratch({tokens, half}, at::kDouble);
  at::Tensor cosine = t.scratch({tokens, 1, half}), sine = t.scratch({tokens, 1, half});
  at::Tensor a_sine = t.scratch({tokens, heads, half}), b_sine = t.scratch({tokens, heads, half});
  at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  at::Tensor first = y.narrow(2, 0, half), second = y.narrow(2, half, half);
  return t.kernel([=, cosines = cosine.squeeze(1), sines = sine.squeeze(1)]() mutable {
    positions.copy_(ids);
    at::mul_out(angles, positions, frequencies);
    at::cos_out(wave, angles);
    cosines.copy_(wave);
    at::sin_out(wave, angles);
    sines.copy_(wave);
    at::mul_out(a_sine, a, sine);
    at::mul_out(b_sine, b, sine);
    at::mul_out(first, a, cosine);
    first.sub_(b_sine);
    at::mul_out(second, b, cosine);
    second.add_(a_sine);
  });
}

constexpr Entry kTable[] = {
    {"rms_norm", rms_norm},
    {"rms_norm_grad", rms_norm_grad},
    {"rope", rope},
};

}  // namespace

std::span<const Entry> plain_rows() {
  return kTable;
}

}  // namespace hspmd::kernels
