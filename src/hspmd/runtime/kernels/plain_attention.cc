#include <ATen/ops/addmm.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/log.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hspmd/runtime/kernels/attention_shape.h"
#include "hspmd/runtime/kernels/plain_kernels.h"
#include "hspmd/runtime/kernels/plain_tensors.h"

namespace hspmd::kernels {
namespace {

constexpr std::int64_t kQueries = 512;  // a block of queries
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t queries_at_once(const AttentionShape& n) {
  return std::min(n.s, kQueries);
}

// Queries [first, first + count) of a sequence; rows of scratch tensors beyond `count` are not used.
struct Block {
  std::int64_t b, first, count;
  [[nodiscard]] at::Tensor of(const at::Tensor& per_query) const {  // [b,s,...] -> [count,...]
    return per_query.select(0, b).narrow(0, first, count);
  }
  [[nodiscard]] at::Tensor rows(const at::Tensor& scratch) const { return scratch.narrow(0, 0, count); }
};

template <typename Visit>
void for_each_block(const AttentionShape& n, Visit visit) {
  for (std::int64_t b = 0; b < n.b; ++b) {
    for (std::int64_t first = 0; first < n.s; first += kQueries)
      visit(Block{b, first, std::min(kQueries, n.s - first)});
  }
}

template <typename Visit>
void for_each_head(const AttentionShape& n, Visit visit) {
  for (std::int64_t k = 0; k < n.k; ++k) {
    for (std::int64_t g = 0; g < n.g; ++g) visit(k, g);
  }
}

// Which keys a block of queries does not see: [queries, t].
class Hidden {
 public:
  Hidden(PlainTensors& t, const AttentionShape& n)
      : q_position_(t.ids(3, {n.b, n.s, 1})),
        k_position_(t.ids(4, {n.b, 1, n.t})),
        q_segment_(t.ids(5, {n.b, n.s, 1})),
        k_segment_(t.ids(6, {n.b, 1, n.t})),
        hidden_(t.scratch({queries_at_once(n), n.t}, at::kBool)),
        later_(t.scratch({queries_at_once(n), n.t}, at::kBool)) {}

  [[nodiscard]] at::Tensor find(const Block& block) const {
    at::Tensor hidden = block.rows(hidden_), later = block.rows(later_);
    at::ne_out(hidden, block.of(q_segment_), k_segment_.select(0, block.b));
    at::gt_out(later, k_position_.select(0, block.b), block.of(q_position_));
    at::bitwise_or_out(hidden, hidden, later);
    return hidden;
  }

 private:
  at::Tensor q_position_, k_position_, q_segment_, k_segment_, hidden_, later_;
};

// One head of a block of queries ([s,k,g,...] -> [s,...]) and one of the keys ([b,t,k,d] -> [t,d]).
at::Tensor head(const at::Tensor& queries, std::int64_t k, std::int64_t g) {
  return queries.select(1, k).select(1, g);
}
at::Tensor head_of_keys(const at::Tensor& keys, std::int64_t b, std::int64_t k) {
  return keys.select(0, b).select(1, k);
}

std::unique_ptr<Kernel> attention(const KernelRequest& request) {
  PlainTensors t(request);
  const AttentionShape n(request);
  at::Tensor query = t.in(0), key = t.in(1), value = t.in(2), out = t.out(0), lse = t.out(1);
  if (n.t == 0) {
    return t.kernel([=]() mutable {
      out.zero_();
      lse.fill_(-kInfinity);
    });
  }
  const Hidden hidden(t, n);
  const at::Tensor all_scores = t.scratch({queries_at_once(n), n.t});
  const at::Tensor all_most = t.scratch({queries_at_once(n)}), all_sums = t.scratch({queries_at_once(n)});
  const at::Tensor all_blind = t.scratch({queries_at_once(n)}, at::kBool);
  const at::Tensor scale = t.constant(1 / std::sqrt(static_cast<double>(n.d))), least = t.constant(-kInfinity);
  return t.kernel([=] {
    for_each_block(n, [&](const Block& block) {
      const at::Tensor unseen = hidden.find(block);
      at::Tensor scores = block.rows(all_scores), most = block.rows(all_most), sums = block.rows(all_sums);
      at::Tensor blind = block.rows(all_blind);  // queries that see no key
      for_each_head(n, [&](std::int64_t k, std::int64_t g) {
        at::mm_out(scores, head(block.of(query), k, g), head_of_keys(key, block.b, k).t());
        scores.mul_(scale);
        scores.masked_fill_(unseen, -kInfinity);
        at::amax_out(most, scores, at::IntArrayRef({1}));
        at::eq_out(blind, most, least);
        most.masked_fill_(blind, 0);
        scores.sub_(most.unsqueeze(1));
        scores.exp_();
        at::sum_out(sums, scores, at::IntArrayRef({1}));
        at::Tensor context = head(block.of(out), k, g), log_sums = head(block.of(lse), k, g);
        at::mm_out(context, scores, head_of_keys(value, block.b, k));
        context.div_(sums.unsqueeze(1));
        context.masked_fill_(blind.unsqueeze(1), 0);
        at::log_out(log_sums, sums);
        log_sums.add_(most);
      });
    });
  });
}

std::unique_ptr<Kernel> attention_grad(const KernelRequest& request) {
  PlainTensors t(request);
  const AttentionShape n(request);
  at::Tensor query = t.in(0), key = t.in(1), value = t.in(2), out = t.in(7), lse = t.in(8), dout = t.in(9);
  at::Tensor dquery = t.out(0), dkey = t.out(1), dvalue = t.out(2);
  if (n.t == 0) return t.kernel([=]() mutable { dquery.zero_(); });
  const Hidden hidden(t, n);
  const at::Tensor all_p = t.scratch({queries_at_once(n), n.t}), all_ds = t.scratch({queries_at_once(n), n.t});
  const at::Tensor all_products = t.scratch({queries_at_once(n), n.d}), all_deltas = t.scratch({queries_at_once(n)});
  const at::Tensor scale = t.constant(1 / std::sqrt(static_cast<double>(n.d)));
  return t.kernel([=] {
    dkey.zero_();
    dvalue.zero_();
    for_each_block(n, [&](const Block& block) {
      const at::Tensor unseen = hidden.find(block);
      at::Tensor p = block.rows(all_p), ds = block.rows(all_ds);
      at::Tensor products = block.rows(all_products), deltas = block.rows(all_deltas);
      for_each_head(n, [&](std::int64_t k, std::int64_t g) {
        const at::Tensor q = head(block.of(query), k, g), dcontext = head(block.of(dout), k, g);
        const at::Tensor keys = head_of_keys(key, block.b, k);
        at::mm_out(p, q, keys.t());
        p.mul_(scale);
        p.sub_(head(block.of(lse), k, g).unsqueeze(1));
        p.exp_();
        p.masked_fill_(unseen, 0);  // not before: a query that sees no key has an lse of minus infinity
        at::mm_out(ds, dcontext, head_of_keys(value, block.b, k).t());
        at::mul_out(products, dcontext, head(block.of(out), k, g));
        at::sum_out(deltas, products, at::IntArrayRef({1}));
        ds.sub_(deltas.unsqueeze(1));
        ds.mul_(p);
        ds.mul_(scale);
        at::Tensor dq = head(block.of(dquery), k, g);
        at::Tensor dk = head_of_keys(dkey, block.b, k), dv = head_of_keys(dvalue, block.b, k);
        at::mm_out(dq, ds, keys);
        at::addmm_out(dk, dk, ds.t(), q);
        at::addmm_out(dv, dv, p.t(), dcontext);
      });
    });
  });
}

constexpr Entry kTable[] = {
    {"attention", attention},
    {"attention_grad", attention_grad},
};

}  // namespace

std::span<const Entry> plain_attention() {
  return kTable;
}

}  // namespace hspmd::kernels
