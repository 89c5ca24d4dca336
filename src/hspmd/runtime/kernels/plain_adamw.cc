#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include <limits>

#include "hspmd/runtime/kernels/plain_kernels.h"
#include "hspmd/runtime/kernels/plain_tensors.h"

namespace hspmd::kernels {
namespace {

// What the gradient's sum is multiplied with: 1 / count, clipped; and whether its norm is a number at all. On the
// device: nothing is read back.
class GradientFactor {
 public:
  GradientFactor(PlainTensors& t, double clip)
      : factor(t.scratch({})),
        finite(t.scratch({}, at::kBool)),
        sumsq_(t.in(4)),
        count_(t.in(5)),
        wide_count_(t.scratch({}, at::kDouble)),
        norm_(t.scratch({}, at::kDouble)),
        wide_factor_(t.scratch({}, at::kDouble)),
        clip_(t.constant(clip, at::kDouble)),
        one_(t.constant(1, at::kDouble)),
        margin_(t.constant(1e-6, at::kDouble)),
        infinity_(t.constant(std::numeric_limits<double>::infinity(), at::kDouble)),
        clips_(clip > 0) {}

  void find() {
    wide_count_.copy_(count_);
    norm_.copy_(sumsq_);
    norm_.sqrt_();
    norm_.div_(wide_count_);
    at::lt_out(finite, norm_, infinity_);
    if (clips_) {
      norm_.add_(margin_);
      at::div_out(wide_factor_, clip_, norm_);
      wide_factor_.clamp_max_(one_);
      wide_factor_.div_(wide_count_);
    } else {
      at::div_out(wide_factor_, one_, wide_count_);
    }
    factor.copy_(wide_factor_);
  }

  at::Tensor factor, finite;

 private:
  at::Tensor sumsq_, count_, wide_count_, norm_, wide_factor_, clip_, one_, margin_, infinity_;
  bool clips_;
};

// Where the norm is no number the state stays what it was: each result is chosen between the new value and the old.
std::unique_ptr<Kernel> adamw(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t n = volume(request.results[0]);
  const auto number = [&](const char* name) { return request.attributes->number(name); };
  const double beta1 = number("beta1"), beta2 = number("beta2"), decay = number("weight_decay");
  const at::Tensor w = t.in(0, {n}), m = t.in(1, {n}), v = t.in(2, {n}), sum = t.in(3, {n}), inputs = t.in(6);
  at::Tensor new_w = t.out(0, {n}), new_m = t.out(1, {n}), new_v = t.out(2, {n});
  at::Tensor gradient = t.scratch({n}), next = t.scratch({n});
  const at::Tensor keep1 = t.constant(beta1), keep2 = t.constant(beta2), eps = t.constant(number("eps"));
  const at::Tensor lr = inputs.select(0, 0), correction1 = inputs.select(0, 1), correction2 = inputs.select(0, 2);
  GradientFactor scaled(t, number("clip_norm"));
  return t.kernel([=]() mutable {
    scaled.find();
    at::mul_out(gradient, sum, scaled.factor);
    at::mul_out(next, m, keep1);
    next.add_(gradient, 1 - beta1);
    at::where_out(new_m, scaled.finite, next, m);
    gradient.mul_(gradient);
    at::mul_out(next, v, keep2);
    next.add_(gradient, 1 - beta2);
    at::where_out(new_v, scaled.finite, next, v);
    next.div_(correction2);
    next.sqrt_();
    next.add_(eps);
    at::Tensor& step = gradient;
    at::div_out(step, new_m, correction1);
    step.div_(next);
    step.add_(w, decay);
    step.mul_(lr);
    at::sub_out(step, w, step);
    at::where_out(new_w, scaled.finite, step, w);
  });
}

constexpr Entry kTable[] = {
    {"adamw", adamw},
};

}  // namespace

std::span<const Entry> plain_adamw() {
  return kTable;
}

}  // namespace hspmd::kernels
