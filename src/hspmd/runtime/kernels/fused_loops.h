// The vectorised loops behind the fused kernels, compiled once for each instruction set and chosen when the program
// starts. Plain functions on plain pointers: a file compiled for one instruction set must not share inline code.
#pragma once

#include <cstdint>

namespace hspmd::kernels {

template <typename T>
struct AdamWScalars {
  T gradient_factor, beta1, beta2, lr, correction1, correction2, eps, decay;
};

template <typename T>
struct Loops {
  void (*add)(const T* a, const T* b, T* y, std::int64_t n);
  void (*mul)(const T* a, const T* b, T* y, std::int64_t n);
  void (*silu_mul)(const T* gate, const T* up, T* y, std::int64_t n);
  void (*silu_mul_grad)(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t n);
  T (*rms_norm)(const T* x, const T* w, T* y, std::int64_t n, T eps);  // one row; returns 1/rms
  void (*rms_norm_grad)(const T* x, const T* w, const T* dy, T inverse, T* dx, T* dw,
                        std::int64_t n);  // one row; adds to dw
  void (*rotate)(const T* x, const T* cosine, const T* sine, T sign, T* y, std::int64_t half);
  T (*max)(const T* x, std::int64_t n);
  T (*exp_sum)(T* x, T shift, std::int64_t n);             // x = exp(x - shift); returns the sum
  T (*exp_sum_only)(const T* x, T shift, std::int64_t n);  // the sum alone
  void (*softmax_grad)(const T* logits, T shift, T factor, T* y, std::int64_t n);  // factor * exp(x - shift)
  void (*scale)(const T* x, T factor, T* y, std::int64_t n);
  T (*dot)(const T* a, const T* b, std::int64_t n);
  double (*sumsq)(const T* x, std::int64_t n);
  // p = exp(s - shift); ds = p * (dp - delta) * scale, in place of dp
  void (*attention_grad)(T* s, T* dp, T shift, T delta, T scale, std::int64_t n);
  void (*adamw)(T* w, T* m, T* v, const T* g, const AdamWScalars<T>& scalars, std::int64_t n);
};

template <typename T>
[[nodiscard]] const Loops<T>& loops();

}  // namespace hspmd::kernels
