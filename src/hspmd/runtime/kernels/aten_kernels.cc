// The fused loops of the aten backend. What is not in their table runs as a plain kernel, on the CPU too.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "hspmd/runtime/kernels/fused_attention.h"
#include "hspmd/runtime/kernels/fused_loops.h"
#include "hspmd/runtime/kernels/kernel_call.h"
#include "hspmd/runtime/kernels/rope_angles.h"

namespace hspmd::kernels {
namespace {

template <typename T>
std::unique_ptr<Kernel> add(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) {
    const auto& l = loops<T>();
    if (c.operands.size() == 1) {
      if (c.results[0] != c.operands[0]) std::copy_n(c.in<T>(0), n, c.out<T>(0));
      return;
    }
    l.add(c.in<T>(0), c.in<T>(1), c.out<T>(0), n);
    for (std::size_t k = 2; k < c.operands.size(); ++k) l.add(c.out<T>(0), c.in<T>(k), c.out<T>(0), n);
  });
}

template <typename T>
std::unique_ptr<Kernel> accumulate(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const bool adds = request.write == Write::kAdd;
  return make_kernel([=](const Call& c) {
    if (adds) {
      loops<T>().add(c.out<T>(0), c.in<T>(0), c.out<T>(0), n);
    } else {
      std::copy_n(c.in<T>(0), n, c.out<T>(0));
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> mul(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) { loops<T>().mul(c.in<T>(0), c.in<T>(1), c.out<T>(0), n); });
}

template <typename T>
std::unique_ptr<Kernel> scale(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const T factor = static_cast<T>(request.attributes->number("factor"));
  return make_kernel([=](const Call& c) { loops<T>().scale(c.in<T>(0), factor, c.out<T>(0), n); });
}

template <typename T>
std::unique_ptr<Kernel> silu_mul(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) { loops<T>().silu_mul(c.in<T>(0), c.in<T>(1), c.out<T>(0), n); });
}

template <typename T>
std::unique_ptr<Kernel> silu_mul_grad(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) {
    loops<T>().silu_mul_grad(c.in<T>(0), c.in<T>(1), c.in<T>(2), c.out<T>(0), c.out<T>(1), n);
  });
}

template <typename T>
std::unique_ptr<Kernel> rms_norm(const KernelRequest& request) {
  const std::int64_t width = request.operands[1][0].size();
  const std::int64_t rows = volume(request.results[1]);
  const T eps = static_cast<T>(request.attributes->number("eps"));
  return make_kernel([=](const Call& c) {
    const auto& l = loops<T>();
    for (std::int64_t r = 0; r < rows; ++r)
      c.out<T>(1)[r] = l.rms_norm(c.in<T>(0) + r * width, c.in<T>(1), c.out<T>(0) + r * width, width, eps);
  });
}

template <typename T>
std::unique_ptr<Kernel> rms_norm_grad(const KernelRequest& request) {
  const std::int64_t width = request.operands[1][0].size();
  const std::int64_t rows = volume(request.operands[2]);
  return make_kernel([=](const Call& c) {
    const auto& l = loops<T>();
    std::fill_n(c.out<T>(1), width, T{0});
    for (std::int64_t r = 0; r < rows; ++r) {
      l.rms_norm_grad(c.in<T>(0) + r * width, c.in<T>(1), c.in<T>(3) + r * width, c.in<T>(2)[r],
                      c.out<T>(0) + r * width, c.out<T>(1), width);
    }
  });
}

// Angles of the first positions are kept in a table made at bind; later ones are computed on the way.
template <typename T>
std::unique_ptr<Kernel> rope(const KernelRequest& request) {
  constexpr std::int64_t kTablePositions = 4096;
  const Box& box = request.operands[0];
  const std::int64_t width = box[box.size() - 1].size();
  const std::int64_t half = width / 2;
  const std::int64_t tokens = dim(box, 0) * dim(box, 1);
  const std::int64_t heads = rows_before(box, box.size() - 1) / std::max<std::int64_t>(tokens, 1);
  const T sign = request.attributes->integer("inverse") == 0 ? T{1} : T{-1};
  const std::vector<double> frequencies = rope_frequencies(*request.attributes, width);
  std::vector<T> cosines, sines;
  for (std::int64_t p = 0; p < kTablePositions; ++p) {
    for (const double f : frequencies) {
      cosines.push_back(static_cast<T>(std::cos(static_cast<double>(p) * f)));
      sines.push_back(static_cast<T>(std::sin(static_cast<double>(p) * f)));
    }
  }
  const auto scratch = 2 * static_cast<std::size_t>(half) * sizeof(T);
  return make_kernel(
      [=](const Call& c) {
        const auto& l = loops<T>();
        for (std::int64_t t = 0; t < tokens; ++t) {
          const std::int64_t position = c.in<std::int32_t>(1)[t];
          const T* cosine = cosines.data() + position * half;
          const T* sine = sines.data() + position * half;
          if (position < 0 || position >= kTablePositions) {
            T* own = static_cast<T*>(c.workspace);
            for (std::int64_t i = 0; i < half; ++i) {
              const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
              own[i] = static_cast<T>(std::cos(angle));
              own[half + i] = static_cast<T>(std::sin(angle));
            }
            cosine = own;
            sine = own + half;
          }
          for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t at = (t * heads + h) * width;
            l.rotate(c.in<T>(0) + at, cosine, sine, sign, c.out<T>(0) + at, half);
          }
        }
      },
      scratch);
}

template <typename T>
std::unique_ptr<Kernel> embedding(const KernelRequest& request) {
  const std::int64_t tokens = volume(request.operands[0]);
  const Interval rows = request.operands[1][0];
  const std::int64_t width = request.operands[1][1].size();
  return make_kernel([=](const Call& c) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t id = c.in<std::int32_t>(0)[t];
      if (id >= rows.begin && id < rows.end) {
        std::copy_n(c.in<T>(1) + (id - rows.begin) * width, width, c.out<T>(0) + t * width);
      } else {
        std::fill_n(c.out<T>(0) + t * width, width, T{0});
      }
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> embedding_grad(const KernelRequest& request) {
  const std::int64_t tokens = volume(request.operands[0]);
  const Interval rows = request.operands[1][0];
  const std::int64_t width = request.operands[1][1].size();
  const std::int64_t elements = volume(request.results[0]);
  const bool adds = request.write == Write::kAdd;
  return make_kernel([=](const Call& c) {
    const auto& l = loops<T>();
    if (!adds) std::fill_n(c.out<T>(0), elements, T{0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t id = c.in<std::int32_t>(0)[t];
      if (id < rows.begin || id >= rows.end) continue;
      T* row = c.out<T>(0) + (id - rows.begin) * width;
      l.add(row, c.in<T>(2) + t * width, row, width);
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> vocab_max(const KernelRequest& request) {
  const std::int64_t rows = rows_before(request.operands[0], 2);
  const std::int64_t width = dim(request.operands[0], 2);
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < rows; ++r) c.out<T>(0)[r] = loops<T>().max(c.in<T>(0) + r * width, width);
  });
}

template <typename T>
std::unique_ptr<Kernel> sum_exp(const KernelRequest& request) {
  const std::int64_t rows = rows_before(request.operands[0], 2);
  const std::int64_t width = dim(request.operands[0], 2);
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < rows; ++r)
      c.out<T>(0)[r] = loops<T>().exp_sum_only(c.in<T>(0) + r * width, c.in<T>(1)[r], width);
  });
}

template <typename T>
std::unique_ptr<Kernel> cross_entropy_grad(const KernelRequest& request) {
  const std::int64_t rows = rows_before(request.operands[0], 2);
  const Interval here = request.operands[0][2];
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t target = c.in<std::int32_t>(3)[r];
      T* y = c.out<T>(0) + r * here.size();
      if (target < 0) {
        std::fill_n(y, here.size(), T{0});
        continue;
      }
      const T dloss = c.in<T>(4)[0];
      loops<T>().softmax_grad(c.in<T>(0) + r * here.size(), c.in<T>(1)[r], dloss / c.in<T>(2)[r], y, here.size());
      if (target >= here.begin && target < here.end) y[target - here.begin] -= dloss;
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> sumsq(const KernelRequest& request) {
  const std::int64_t n = volume(request.operands[0]);
  return make_kernel([=](const Call& c) { c.out<T>(0)[0] = static_cast<T>(loops<T>().sumsq(c.in<T>(0), n)); });
}

template <typename T>
std::unique_ptr<Kernel> adamw(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const auto number = [&](const char* name) { return request.attributes->number(name); };
  const double beta1 = number("beta1"), beta2 = number("beta2"), eps = number("eps"), decay = number("weight_decay"),
               clip = number("clip_norm");
  return make_kernel([=](const Call& c) {
    for (std::size_t i = 0; i < 3; ++i) {  // the loop updates in place
      if (c.results[i] != c.operands[i]) std::copy_n(c.in<T>(i), n, c.out<T>(i));
    }
    const double count = static_cast<double>(c.in<T>(5)[0]);
    const double norm = std::sqrt(static_cast<double>(c.in<T>(4)[0])) / count;
    if (!std::isfinite(norm)) return;  // the run stops; the state stays what it was
    const double factor = (clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0) / count;
    const AdamWScalars<T> scalars{static_cast<T>(factor), static_cast<T>(beta1), static_cast<T>(beta2),
                                  c.in<T>(6)[0],          c.in<T>(6)[1],         c.in<T>(6)[2],
                                  static_cast<T>(eps),    static_cast<T>(decay)};
    loops<T>().adamw(c.out<T>(0), c.out<T>(1), c.out<T>(2), c.in<T>(3), scalars, n);
  });
}

constexpr Entry kTable[] = {
    {"accumulate", accumulate<float>, accumulate<double>},
    {"adamw", adamw<float>, adamw<double>},
    {"add", add<float>, add<double>},
    {"attention", fused_attention<float>, fused_attention<double>},
    {"attention_grad", fused_attention_grad<float>, fused_attention_grad<double>},
    {"cross_entropy_grad", cross_entropy_grad<float>, cross_entropy_grad<double>},
    {"embedding", embedding<float>, embedding<double>},
    {"embedding_grad", embedding_grad<float>, embedding_grad<double>},
    {"mul", mul<float>, mul<double>},
    {"rms_norm", rms_norm<float>, rms_norm<double>},
    {"rms_norm_grad", rms_norm_grad<float>, rms_norm_grad<double>},
    {"rope", rope<float>, rope<double>},
    {"scale", scale<float>, scale<double>},
    {"silu_mul", silu_mul<float>, silu_mul<double>},
    {"silu_mul_grad", silu_mul_grad<float>, silu_mul_grad<double>},
    {"sum_exp", sum_exp<float>, sum_exp<double>},
    {"sumsq", sumsq<float>, sumsq<double>},
    {"vocab_max", vocab_max<float>, vocab_max<double>},
};

}  // namespace
}  // namespace hspmd::kernels

namespace hspmd {

std::unique_ptr<Kernel> make_aten_kernel(const KernelRequest& request) {
  const kernels::Maker fused =
      request.processor == Processor::kCpu ? kernels::find_maker(kernels::kTable, request) : nullptr;
  return fused != nullptr ? fused(request) : make_plain_kernel(request);
}

}  // namespace hspmd
