// Reference kernels: plain loops, no library, no tricks. The oracle of every other backend, and what sanitizers see.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "hspmd/runtime/kernels/attention_shape.h"
#include "hspmd/runtime/kernels/kernel_call.h"
#include "hspmd/runtime/kernels/rope_angles.h"

namespace hspmd::kernels {
namespace {

template <typename T>
std::unique_ptr<Kernel> element_wise(const KernelRequest& request, T (*function)(T, T)) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i)
      c.out<T>(0)[i] = function(c.in<T>(0)[i], c.in<T>(c.operands.size() > 1 ? 1 : 0)[i]);
  });
}

template <typename T>
std::unique_ptr<Kernel> add(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i) {
      T sum = c.in<T>(0)[i];
      for (std::size_t k = 1; k < c.operands.size(); ++k) sum += c.in<T>(k)[i];
      c.out<T>(0)[i] = sum;
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> accumulate(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const bool adds = request.write == Write::kAdd;
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = (adds ? c.out<T>(0)[i] : T{0}) + c.in<T>(0)[i];
  });
}

template <typename T>
std::unique_ptr<Kernel> mul(const KernelRequest& request) {
  return element_wise<T>(request, [](T a, T b) { return a * b; });
}

template <typename T>
std::unique_ptr<Kernel> silu_mul(const KernelRequest& request) {
  return element_wise<T>(request, [](T gate, T up) { return gate / (1 + std::exp(-gate)) * up; });
}

template <typename T>
std::unique_ptr<Kernel> silu_mul_grad(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T gate = c.in<T>(0)[i];
      const T up = c.in<T>(1)[i];
      const T dy = c.in<T>(2)[i];
      const T sigmoid = 1 / (1 + std::exp(-gate));
      c.out<T>(0)[i] = dy * up * sigmoid * (1 + gate * (1 - sigmoid));
      c.out<T>(1)[i] = dy * gate * sigmoid;
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> tanh(const KernelRequest& request) {
  return element_wise<T>(request, [](T x, T) { return std::tanh(x); });
}

template <typename T>
std::unique_ptr<Kernel> tanh_grad(const KernelRequest& request) {
  return element_wise<T>(request, [](T y, T dy) { return dy * (1 - y * y); });
}

template <typename T>
std::unique_ptr<Kernel> scale(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const T factor = static_cast<T>(request.attributes->number("factor"));
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = c.in<T>(0)[i] * factor;
  });
}

template <typename T>
std::unique_ptr<Kernel> add_bias(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const std::int64_t width = request.operands[1][0].size();
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = c.in<T>(0)[i] + c.in<T>(1)[i % width];
  });
}

template <typename T>
std::unique_ptr<Kernel> bias_grad(const KernelRequest& request) {
  const std::int64_t n = volume(request.operands[1]);
  const std::int64_t width = request.results[0][0].size();
  return make_kernel([=](const Call& c) {
    std::fill_n(c.out<T>(0), width, T{0});
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i % width] += c.in<T>(1)[i];
  });
}

// One factor of a contraction: its size, and how far a step along it goes in each operand and in the result.
struct Factor {
  std::int64_t size = 1;
  std::array<std::int64_t, 3> stride = {0, 0, 0};
};

// The factors in the order of the loops: the result's first, so that each result element is summed in one go.
std::vector<Factor> factors_of(const KernelRequest& request) {
  const std::string& text = request.attributes->text("factors");
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  const std::array<std::string, 3> dims = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                                           text.substr(arrow + 2)};
  const std::array<const Box*, 3> boxes = {&request.operands[0], &request.operands[1], &request.results[0]};
  std::map<char, Factor> factors;
  for (std::size_t t = 0; t < 3; ++t) {
    std::int64_t step = 1;
    for (std::size_t d = dims[t].size(); d-- > 0;) {
      Factor& factor = factors[dims[t][d]];
      factor.size = dim(*boxes[t], d);
      factor.stride[t] = step;
      step *= factor.size;
    }
  }
  std::vector<Factor> loops;
  for (const char letter : dims[2]) loops.push_back(factors.at(letter));
  for (const auto& [letter, factor] : factors) {
    if (dims[2].find(letter) == std::string::npos) loops.push_back(factor);
  }
  return loops;
}

template <typename T>
void contract(std::span<const Factor> loops, const T* a, const T* b, T* result) {
  if (loops.empty()) {
    *result += *a * *b;
    return;
  }
  const Factor& loop = loops.front();
  for (std::int64_t i = 0; i < loop.size; ++i) {
    contract(loops.subspan(1), a + i * loop.stride[0], b + i * loop.stride[1], result + i * loop.stride[2]);
  }
}

template <typename T>
std::unique_ptr<Kernel> dot(const KernelRequest& request) {
  const std::int64_t elements = volume(request.results[0]);
  const bool adds = request.write == Write::kAdd;
  return make_kernel([=, loops = factors_of(request)](const Call& c) {
    if (!adds) std::fill_n(c.out<T>(0), elements, T{0});
    contract<T>(loops, c.in<T>(0), c.in<T>(1), c.out<T>(0));
  });
}

template <typename T>
std::unique_ptr<Kernel> rms_norm(const KernelRequest& request) {
  const std::int64_t width = request.operands[1][0].size();
  const std::int64_t rows = volume(request.results[1]);
  const double eps = request.attributes->number("eps");
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* x = c.in<T>(0) + r * width;
      T sum = 0;
      for (std::int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
      const T inverse = 1 / std::sqrt(sum / static_cast<T>(width) + static_cast<T>(eps));
      for (std::int64_t i = 0; i < width; ++i) c.out<T>(0)[r * width + i] = x[i] * inverse * c.in<T>(1)[i];
      c.out<T>(1)[r] = inverse;
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> rms_norm_grad(const KernelRequest& request) {
  const std::int64_t width = request.operands[1][0].size();
  const std::int64_t rows = volume(request.operands[2]);
  return make_kernel([=](const Call& c) {
    std::fill_n(c.out<T>(1), width, T{0});
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* x = c.in<T>(0) + r * width;
      const T* w = c.in<T>(1);
      const T inverse = c.in<T>(2)[r];
      const T* dy = c.in<T>(3) + r * width;
      T mean = 0;
      for (std::int64_t i = 0; i < width; ++i) mean += dy[i] * w[i] * x[i];
      mean /= static_cast<T>(width);
      for (std::int64_t i = 0; i < width; ++i) {
        c.out<T>(0)[r * width + i] = inverse * (dy[i] * w[i] - x[i] * inverse * inverse * mean);
        c.out<T>(1)[i] += dy[i] * x[i] * inverse;
      }
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> embedding(const KernelRequest& request) {
  const std::int64_t tokens = volume(request.operands[0]);
  const Interval rows = request.operands[1][0];
  const std::int64_t width = request.operands[1][1].size();
  return make_kernel([=](const Call& c) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t id = c.in<std::int32_t>(0)[t];
      const bool here = id >= rows.begin && id < rows.end;
      for (std::int64_t i = 0; i < width; ++i)
        c.out<T>(0)[t * width + i] = here ? c.in<T>(1)[(id - rows.begin) * width + i] : T{0};
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
    if (!adds) std::fill_n(c.out<T>(0), elements, T{0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t id = c.in<std::int32_t>(0)[t];
      if (id < rows.begin || id >= rows.end) continue;
      for (std::int64_t i = 0; i < width; ++i) c.out<T>(0)[(id - rows.begin) * width + i] += c.in<T>(2)[t * width + i];
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> rope(const KernelRequest& request) {
  const Box& box = request.operands[0];
  const std::int64_t width = box[box.size() - 1].size();
  const std::int64_t tokens = dim(box, 0) * dim(box, 1);
  const std::int64_t heads = rows_before(box, box.size() - 1) / std::max<std::int64_t>(tokens, 1);
  const std::vector<double> frequencies = rope_frequencies(*request.attributes, width);
  const T sign = request.attributes->integer("inverse") == 0 ? T{1} : T{-1};
  return make_kernel([=](const Call& c) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const T* x = c.in<T>(0) + (t * heads + h) * width;
        T* y = c.out<T>(0) + (t * heads + h) * width;
        for (std::int64_t i = 0; i < width / 2; ++i) {
          const double angle = c.in<std::int32_t>(1)[t] * frequencies[static_cast<std::size_t>(i)];
          const T cosine = static_cast<T>(std::cos(angle));
          const T sine = sign * static_cast<T>(std::sin(angle));
          const T a = x[i];
          const T b = x[i + width / 2];
          y[i] = a * cosine - b * sine;
          y[i + width / 2] = b * cosine + a * sine;
        }
      }
    }
  });
}

// Calls visit(query row, key row, batch index, s, t) for every pair that sees; rows count vectors of d elements.
template <typename Visit>
void for_each_query(const AttentionShape& n, Visit visit) {
  for (std::int64_t b = 0; b < n.b; ++b) {
    for (std::int64_t s = 0; s < n.s; ++s) {
      for (std::int64_t k = 0; k < n.k; ++k) {
        for (std::int64_t g = 0; g < n.g; ++g) visit(b, s, k, ((b * n.s + s) * n.k + k) * n.g + g);
      }
    }
  }
}

bool sees(const Call& c, const AttentionShape& n, std::int64_t b, std::int64_t s, std::int64_t t) {
  const auto* q_position = c.in<std::int32_t>(3) + b * n.s;
  const auto* k_position = c.in<std::int32_t>(4) + b * n.t;
  const auto* q_segment = c.in<std::int32_t>(5) + b * n.s;
  const auto* k_segment = c.in<std::int32_t>(6) + b * n.t;
  return q_segment[s] == k_segment[t] && k_position[t] <= q_position[s];
}

template <typename T>
T product(const T* a, const T* b, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename T>
std::unique_ptr<Kernel> attention(const KernelRequest& request) {
  const AttentionShape n(request);
  const T scale = 1 / std::sqrt(static_cast<T>(n.d));
  return make_kernel([=](const Call& c) {
    for_each_query(n, [&](std::int64_t b, std::int64_t s, std::int64_t k, std::int64_t row) {
      const T* q = c.in<T>(0) + row * n.d;
      T* out = c.out<T>(0) + row * n.d;
      T most = -std::numeric_limits<T>::infinity();
      const auto key = [&](std::int64_t t) { return ((b * n.t + t) * n.k + k) * n.d; };
      for (std::int64_t t = 0; t < n.t; ++t) {
        if (sees(c, n, b, s, t)) most = std::max(most, scale * product(q, c.in<T>(1) + key(t), n.d));
      }
      std::fill_n(out, n.d, T{0});
      T sum = 0;
      for (std::int64_t t = 0; t < n.t; ++t) {
        if (!sees(c, n, b, s, t)) continue;
        const T p = std::exp(scale * product(q, c.in<T>(1) + key(t), n.d) - most);
        sum += p;
        for (std::int64_t i = 0; i < n.d; ++i) out[i] += p * c.in<T>(2)[key(t) + i];
      }
      for (std::int64_t i = 0; i < n.d; ++i) out[i] = sum == 0 ? T{0} : out[i] / sum;
      c.out<T>(1)[row] = most + std::log(sum);
    });
  });
}

template <typename T>
std::unique_ptr<Kernel> attention_grad(const KernelRequest& request) {
  const AttentionShape n(request);
  const T scale = 1 / std::sqrt(static_cast<T>(n.d));
  return make_kernel([=](const Call& c) {
    std::fill_n(c.out<T>(0), n.b * n.s * n.k * n.g * n.d, T{0});
    std::fill_n(c.out<T>(1), n.b * n.t * n.k * n.d, T{0});
    std::fill_n(c.out<T>(2), n.b * n.t * n.k * n.d, T{0});
    for_each_query(n, [&](std::int64_t b, std::int64_t s, std::int64_t k, std::int64_t row) {
      const T* q = c.in<T>(0) + row * n.d;
      const T* dout = c.in<T>(9) + row * n.d;
      const T delta = product(dout, c.in<T>(7) + row * n.d, n.d);
      for (std::int64_t t = 0; t < n.t; ++t) {
        if (!sees(c, n, b, s, t)) continue;
        const std::int64_t key = ((b * n.t + t) * n.k + k) * n.d;
        const T p = std::exp(scale * product(q, c.in<T>(1) + key, n.d) - c.in<T>(8)[row]);
        const T ds = p * (product(dout, c.in<T>(2) + key, n.d) - delta) * scale;
        for (std::int64_t i = 0; i < n.d; ++i) {
          c.out<T>(0)[row * n.d + i] += ds * c.in<T>(1)[key + i];
          c.out<T>(1)[key + i] += ds * q[i];
          c.out<T>(2)[key + i] += p * dout[i];
        }
      }
    });
  });
}

struct VocabularyShape {
  std::int64_t rows, width;
  Interval here;
  explicit VocabularyShape(const Box& logits)
      : rows(dim(logits, 0) * dim(logits, 1)), width(dim(logits, 2)), here(logits[2]) {}
};

template <typename T>
std::unique_ptr<Kernel> vocab_max(const KernelRequest& request) {
  const VocabularyShape n(request.operands[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < n.rows; ++r) {
      T most = -std::numeric_limits<T>::infinity();
      for (std::int64_t v = 0; v < n.width; ++v) most = std::max(most, c.in<T>(0)[r * n.width + v]);
      c.out<T>(0)[r] = most;
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> sum_exp(const KernelRequest& request) {
  const VocabularyShape n(request.operands[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < n.rows; ++r) {
      T sum = 0;
      for (std::int64_t v = 0; v < n.width; ++v) sum += std::exp(c.in<T>(0)[r * n.width + v] - c.in<T>(1)[r]);
      c.out<T>(0)[r] = sum;
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> pick(const KernelRequest& request) {
  const VocabularyShape n(request.operands[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < n.rows; ++r) {
      const std::int64_t target = c.in<std::int32_t>(1)[r];
      const bool here = target >= n.here.begin && target < n.here.end;
      c.out<T>(0)[r] = here ? c.in<T>(0)[r * n.width + target - n.here.begin] : T{0};
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> nll(const KernelRequest& request) {
  const std::int64_t rows = volume(request.operands[0]);
  return make_kernel([=](const Call& c) {
    T sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      if (c.in<std::int32_t>(3)[r] >= 0) sum += std::log(c.in<T>(1)[r]) + c.in<T>(0)[r] - c.in<T>(2)[r];
    }
    c.out<T>(0)[0] = sum;
  });
}

template <typename T>
std::unique_ptr<Kernel> cross_entropy_grad(const KernelRequest& request) {
  const VocabularyShape n(request.operands[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t r = 0; r < n.rows; ++r) {
      const std::int64_t target = c.in<std::int32_t>(3)[r];
      for (std::int64_t v = 0; v < n.width; ++v) {
        const std::int64_t i = r * n.width + v;
        const T p = std::exp(c.in<T>(0)[i] - c.in<T>(1)[r]) / c.in<T>(2)[r];
        c.out<T>(0)[i] = target < 0 ? T{0} : c.in<T>(4)[0] * (p - (v + n.here.begin == target ? T{1} : T{0}));
      }
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> count_tokens(const KernelRequest& request) {
  const std::int64_t rows = volume(request.operands[0]);
  return make_kernel([=](const Call& c) {
    c.out<T>(0)[0] = static_cast<T>(
        std::count_if(c.in<std::int32_t>(0), c.in<std::int32_t>(0) + rows, [](std::int32_t t) { return t >= 0; }));
  });
}

template <typename T>
std::unique_ptr<Kernel> squared_error(const KernelRequest& request) {
  const std::int64_t n = volume(request.operands[0]);
  return make_kernel([=](const Call& c) {
    T sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += (c.in<T>(0)[i] - c.in<T>(1)[i]) * (c.in<T>(0)[i] - c.in<T>(1)[i]);
    c.out<T>(0)[0] = sum;
  });
}

template <typename T>
std::unique_ptr<Kernel> squared_error_grad(const KernelRequest& request) {
  const std::int64_t n = volume(request.operands[0]);
  return make_kernel([=](const Call& c) {
    for (std::int64_t i = 0; i < n; ++i) c.out<T>(0)[i] = 2 * c.in<T>(2)[0] * (c.in<T>(0)[i] - c.in<T>(1)[i]);
  });
}

template <typename T>
std::unique_ptr<Kernel> sumsq(const KernelRequest& request) {
  const std::int64_t n = volume(request.operands[0]);
  return make_kernel([=](const Call& c) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(c.in<T>(0)[i]) * static_cast<double>(c.in<T>(0)[i]);
    c.out<T>(0)[0] = static_cast<T>(sum);
  });
}

template <typename T>
std::unique_ptr<Kernel> adamw(const KernelRequest& request) {
  const std::int64_t n = volume(request.results[0]);
  const auto number = [&](const char* name) { return request.attributes->number(name); };
  const double beta1 = number("beta1"), beta2 = number("beta2"), eps = number("eps"), decay = number("weight_decay"),
               clip = number("clip_norm");
  return make_kernel([=](const Call& c) {
    const double count = static_cast<double>(c.in<T>(5)[0]);
    const double norm = std::sqrt(static_cast<double>(c.in<T>(4)[0])) / count;
    if (!std::isfinite(norm)) {  // the run stops; the state stays what it was
      for (std::size_t i = 0; i < 3; ++i) {
        if (c.results[i] != c.operands[i]) std::copy_n(c.in<T>(i), n, c.out<T>(i));
      }
      return;
    }
    const T factor = static_cast<T>((clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0) / count);
    const T lr = c.in<T>(6)[0], c1 = c.in<T>(6)[1], c2 = c.in<T>(6)[2];
    for (std::int64_t i = 0; i < n; ++i) {
      const T g = c.in<T>(3)[i] * factor;
      const T m = static_cast<T>(beta1) * c.in<T>(1)[i] + static_cast<T>(1 - beta1) * g;
      const T v = static_cast<T>(beta2) * c.in<T>(2)[i] + static_cast<T>(1 - beta2) * g * g;
      const T w = c.in<T>(0)[i];
      c.out<T>(0)[i] = w - lr * ((m / c1) / (std::sqrt(v / c2) + static_cast<T>(eps)) + static_cast<T>(decay) * w);
      c.out<T>(1)[i] = m;
      c.out<T>(2)[i] = v;
    }
  });
}

constexpr Entry kTable[] = {
    {"accumulate", accumulate<float>, accumulate<double>},
    {"adamw", adamw<float>, adamw<double>},
    {"add", add<float>, add<double>},
    {"add_bias", add_bias<float>, add_bias<double>},
    {"attention", attention<float>, attention<double>},
    {"attention_grad", attention_grad<float>, attention_grad<double>},
    {"bias_grad", bias_grad<float>, bias_grad<double>},
    {"count_tokens", count_tokens<float>, count_tokens<double>},
    {"cross_entropy_grad", cross_entropy_grad<float>, cross_entropy_grad<double>},
    {"dot", dot<float>, dot<double>},
    {"embedding", embedding<float>, embedding<double>},
    {"embedding_grad", embedding_grad<float>, embedding_grad<double>},
    {"mul", mul<float>, mul<double>},
    {"nll", nll<float>, nll<double>},
    {"pick", pick<float>, pick<double>},
    {"rms_norm", rms_norm<float>, rms_norm<double>},
    {"rms_norm_grad", rms_norm_grad<float>, rms_norm_grad<double>},
    {"rope", rope<float>, rope<double>},
    {"scale", scale<float>, scale<double>},
    {"silu_mul", silu_mul<float>, silu_mul<double>},
    {"silu_mul_grad", silu_mul_grad<float>, silu_mul_grad<double>},
    {"squared_error", squared_error<float>, squared_error<double>},
    {"squared_error_grad", squared_error_grad<float>, squared_error_grad<double>},
    {"sum_exp", sum_exp<float>, sum_exp<double>},
    {"sumsq", sumsq<float>, sumsq<double>},
    {"tanh", tanh<float>, tanh<double>},
    {"tanh_grad", tanh_grad<float>, tanh_grad<double>},
    {"vocab_max", vocab_max<float>, vocab_max<double>},
};

}  // namespace
}  // namespace hspmd::kernels

namespace hspmd {

std::unique_ptr<Kernel> make_reference_kernel(const KernelRequest& request) {
  const kernels::Maker make = kernels::find_maker(kernels::kTable, request);
  if (make == nullptr) invalid("[kernels] the reference backend must have a kernel of {}", request.op->name());
  return make(request);
}

}  // namespace hspmd
