#include "hspmd/runtime/kernels/fused_attention.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hspmd/runtime/kernels/attention_shape.h"
#include "hspmd/runtime/kernels/fused_loops.h"
#include "hspmd/runtime/kernels/kernel_call.h"

namespace hspmd::kernels {
namespace {

constexpr std::int64_t kQueries = 64;  // a block of queries
constexpr std::int64_t kKeys = 64;     // visibility is decided for so many keys at once

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(lda), b, static_cast<int>(ldb), beta, c, static_cast<int>(ldc));
}

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
          const double* a, std::int64_t lda, const double* b, std::int64_t ldb, double beta, double* c,
          std::int64_t ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(lda), b, static_cast<int>(ldb), beta, c, static_cast<int>(ldc));
}

struct Range {
  std::int32_t low, high;
};

Range range_of(const std::int32_t* values, std::int64_t n) {
  Range r{values[0], values[0]};
  for (std::int64_t i = 1; i < n; ++i) {
    r.low = std::min(r.low, values[i]);
    r.high = std::max(r.high, values[i]);
  }
  return r;
}

// Who sees whom, of one sequence: ids of queries and keys.
struct Ids {
  const std::int32_t *q_position, *k_position, *q_segment, *k_segment;
};

enum class Seen { kNone, kSome, kAll };

Seen block_seen(const Ids& ids, std::int64_t q, std::int64_t nq, std::int64_t t, std::int64_t nt) {
  const Range qp = range_of(ids.q_position + q, nq);
  const Range kp = range_of(ids.k_position + t, nt);
  const Range qs = range_of(ids.q_segment + q, nq);
  const Range ks = range_of(ids.k_segment + t, nt);
  if (kp.low > qp.high || ks.low > qs.high || ks.high < qs.low) return Seen::kNone;
  const bool one_segment = qs.low == qs.high && ks.low == ks.high && qs.low == ks.low;
  return one_segment && kp.high <= qp.low ? Seen::kAll : Seen::kSome;
}

// The keys [begin, end) that a block of queries may see.
struct Visible {
  std::int64_t begin = 0, end = 0;
};

Visible visible_keys(const Ids& ids, const AttentionShape& n, std::int64_t q, std::int64_t nq) {
  Visible v{n.t, 0};
  for (std::int64_t t = 0; t < n.t; t += kKeys) {
    const std::int64_t nt = std::min(kKeys, n.t - t);
    if (block_seen(ids, q, nq, t, nt) == Seen::kNone) continue;
    v.begin = std::min(v.begin, t);
    v.end = t + nt;
  }
  v.begin = std::min(v.begin, v.end);
  return v;
}

// Scores that must not count become minus infinity.
template <typename T>
void mask(T* scores, const Ids& ids, std::int64_t q, std::int64_t nq, const Visible& v) {
  const std::int64_t width = v.end - v.begin;
  for (std::int64_t t = v.begin; t < v.end; t += kKeys) {
    const std::int64_t nt = std::min(kKeys, v.end - t);
    if (block_seen(ids, q, nq, t, nt) == Seen::kAll) continue;
    for (std::int64_t r = 0; r < nq; ++r) {
      const std::int32_t position = ids.q_position[q + r];
      const std::int32_t segment = ids.q_segment[q + r];
      T* row = scores + r * width + (t - v.begin);
      for (std::int64_t i = 0; i < nt; ++i) {
        const bool sees = ids.k_segment[t + i] == segment && ids.k_position[t + i] <= position;
        row[i] = sees ? row[i] : -std::numeric_limits<T>::infinity();
      }
    }
  }
}

Ids ids_of(const Call& c, const AttentionShape& n, std::int64_t b) {
  return {c.in<std::int32_t>(3) + b * n.s, c.in<std::int32_t>(4) + b * n.t, c.in<std::int32_t>(5) + b * n.s,
          c.in<std::int32_t>(6) + b * n.t};
}

// Calls visit(b, k, g, first query, queries, visible keys).
template <typename Visit>
void for_each_block(const Call& c, const AttentionShape& n, Visit visit) {
  for (std::int64_t b = 0; b < n.b; ++b) {
    const Ids ids = ids_of(c, n, b);
    for (std::int64_t q = 0; q < n.s; q += kQueries) {
      const std::int64_t nq = std::min(kQueries, n.s - q);
      const Visible v = n.t > 0 ? visible_keys(ids, n, q, nq) : Visible{};
      for (std::int64_t k = 0; k < n.k; ++k) {
        for (std::int64_t g = 0; g < n.g; ++g) visit(ids, b, k, g, q, nq, v);
      }
    }
  }
}

template <typename T>
void forward_block(const Call& c, const AttentionShape& n, const Ids& ids, std::int64_t b, std::int64_t k,
                   std::int64_t g, std::int64_t q, std::int64_t nq, const Visible& v) {
  const auto& l = loops<T>();
  const std::int64_t width = v.end - v.begin;
  const std::int64_t row0 = ((b * n.s + q) * n.k + k) * n.g + g;
  T* out = c.out<T>(0) + row0 * n.d;
  T* scores = static_cast<T*>(c.workspace);
  const T* keys = c.in<T>(1) + ((b * n.t + v.begin) * n.k + k) * n.d;
  const T* values = c.in<T>(2) + ((b * n.t + v.begin) * n.k + k) * n.d;
  if (width > 0) {
    gemm(CblasNoTrans, CblasTrans, nq, width, n.d, 1 / std::sqrt(static_cast<T>(n.d)), c.in<T>(0) + row0 * n.d,
         n.query_stride(), keys, n.key_stride(), T{0}, scores, width);
    mask(scores, ids, q, nq, v);
  }
  T* inverses = scores + kQueries * n.t;  // of the sums: out is divided, not the scores, which are more
  for (std::int64_t r = 0; r < nq; ++r) {
    T* row = scores + r * width;
    const T most = l.max(row, width);
    // Scores that all are minus infinity sum to 0: the query sees no key. Scores that are no numbers stay so.
    const T shift = most > -std::numeric_limits<T>::infinity() ? most : T{0};
    const T sum = l.exp_sum(row, shift, width);
    inverses[r] = sum == 0 ? T{0} : 1 / sum;
    c.out<T>(1)[row0 + r * n.k * n.g] = shift + std::log(sum);
  }
  if (width > 0)
    gemm(CblasNoTrans, CblasNoTrans, nq, n.d, width, T{1}, scores, width, values, n.key_stride(), T{0}, out,
         n.query_stride());
  for (std::int64_t r = 0; r < nq; ++r) {
    T* row = out + r * n.query_stride();
    if (width > 0) {
      l.scale(row, inverses[r], row, n.d);
    } else {
      std::fill_n(row, n.d, T{0});
    }
  }
}

template <typename T>
void backward_block(const Call& c, const AttentionShape& n, const Ids& ids, std::int64_t b, std::int64_t k,
                    std::int64_t g, std::int64_t q, std::int64_t nq, const Visible& v) {
  const auto& l = loops<T>();
  const std::int64_t width = v.end - v.begin;
  const std::int64_t row0 = ((b * n.s + q) * n.k + k) * n.g + g;
  const std::int64_t key0 = ((b * n.t + v.begin) * n.k + k) * n.d;
  const std::int64_t qs = n.query_stride(), ks = n.key_stride();
  const T scale = 1 / std::sqrt(static_cast<T>(n.d));
  const T* query = c.in<T>(0) + row0 * n.d;
  const T* context = c.in<T>(7) + row0 * n.d;
  const T* dout = c.in<T>(9) + row0 * n.d;
  T* dq = c.out<T>(0) + row0 * n.d;
  if (width == 0) {
    for (std::int64_t r = 0; r < nq; ++r) std::fill_n(dq + r * qs, n.d, T{0});
    return;
  }
  T* p = static_cast<T*>(c.workspace);
  T* ds = p + kQueries * n.t;
  gemm(CblasNoTrans, CblasTrans, nq, width, n.d, scale, query, qs, c.in<T>(1) + key0, ks, T{0}, p, width);
  gemm(CblasNoTrans, CblasTrans, nq, width, n.d, T{1}, dout, qs, c.in<T>(2) + key0, ks, T{0}, ds, width);
  mask(p, ids, q, nq, v);
  for (std::int64_t r = 0; r < nq; ++r) {
    const T lse = c.in<T>(8)[row0 + r * n.k * n.g];
    if (lse == -std::numeric_limits<T>::infinity()) {  // the query sees no key
      std::fill_n(p + r * width, width, T{0});
      std::fill_n(ds + r * width, width, T{0});
      continue;
    }
    l.attention_grad(p + r * width, ds + r * width, lse, l.dot(dout + r * qs, context + r * qs, n.d), scale, width);
  }
  gemm(CblasNoTrans, CblasNoTrans, nq, n.d, width, T{1}, ds, width, c.in<T>(1) + key0, ks, T{0}, dq, qs);
  gemm(CblasTrans, CblasNoTrans, width, n.d, nq, T{1}, ds, width, query, qs, T{1}, c.out<T>(1) + key0, ks);
  gemm(CblasTrans, CblasNoTrans, width, n.d, nq, T{1}, p, width, dout, qs, T{1}, c.out<T>(2) + key0, ks);
}

}  // namespace

template <typename T>
std::unique_ptr<Kernel> fused_attention(const KernelRequest& request) {
  const AttentionShape n(request);
  return make_kernel(
      [n](const Call& c) { for_each_block(c, n, [&](const auto&... block) { forward_block<T>(c, n, block...); }); },
      static_cast<std::size_t>(kQueries * (n.t + 1)) * sizeof(T));
}

template <typename T>
std::unique_ptr<Kernel> fused_attention_grad(const KernelRequest& request) {
  const AttentionShape n(request);
  return make_kernel(
      [n](const Call& c) {
        std::fill_n(c.out<T>(1), n.b * n.t * n.key_stride(), T{0});
        std::fill_n(c.out<T>(2), n.b * n.t * n.key_stride(), T{0});
        for_each_block(c, n, [&](const auto&... block) { backward_block<T>(c, n, block...); });
      },
      2 * static_cast<std::size_t>(kQueries * n.t) * sizeof(T));
}

template std::unique_ptr<Kernel> fused_attention<float>(const KernelRequest&);
template std::unique_ptr<Kernel> fused_attention<double>(const KernelRequest&);
template std::unique_ptr<Kernel> fused_attention_grad<float>(const KernelRequest&);
template std::unique_ptr<Kernel> fused_attention_grad<double>(const KernelRequest&);

}  // namespace hspmd::kernels
