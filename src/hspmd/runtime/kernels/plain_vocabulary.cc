#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/div.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <limits>

#include "hspmd/runtime/kernels/kernel_call.h"
#include "hspmd/runtime/kernels/plain_kernels.h"
#include "hspmd/runtime/kernels/plain_tensors.h"

namespace hspmd::kernels {
namespace {

// Where each id lies in the part of the vocabulary that is here: `rows` (0 for ids that are `elsewhere`).
class Found {
 public:
  Found(PlainTensors& t, std::size_t operand, std::int64_t n, const Interval& here)
      : rows(t.scratch({n}, at::kLong)),
        elsewhere(t.scratch({n}, at::kBool)),
        ids_(t.ids(operand, {n})),
        later_(t.scratch({n}, at::kBool)),
        begin_(t.constant(static_cast<double>(here.begin), at::kLong)),
        zero_(t.constant(0, at::kLong)),
        size_(t.constant(static_cast<double>(here.size()), at::kLong)) {}

  void find() {
    rows.copy_(ids_);
    rows.sub_(begin_);
    at::lt_out(elsewhere, rows, zero_);
    at::ge_out(later_, rows, size_);
    at::bitwise_or_out(elsewhere, elsewhere, later_);
    rows.masked_fill_(elsewhere, 0);
  }

  at::Tensor rows, elsewhere;

 private:
  at::Tensor ids_, later_, begin_, zero_, size_;
};

std::int64_t row_count(const Box& logits) {
  return rows_before(logits, 2);
}

std::unique_ptr<Kernel> embedding(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t tokens = volume(request.operands[0]);
  at::Tensor table = t.in(1), y = t.out(0, {tokens, table.size(1)});
  if (table.size(0) == 0) return t.kernel([=]() mutable { y.zero_(); });
  Found found(t, 0, tokens, request.operands[1][0]);
  return t.kernel([=]() mutable {
    found.find();
    at::index_select_out(y, table, 0, found.rows);
    y.masked_fill_(found.elsewhere.unsqueeze(1), 0);
  });
}

std::unique_ptr<Kernel> embedding_grad(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t tokens = volume(request.operands[0]);
  const bool adds = request.write == Write::kAdd;
  at::Tensor table = t.out(0), dy = t.in(2, {tokens, table.size(1)});
  if (table.numel() == 0) return t.kernel([] {});
  Found found(t, 0, tokens, request.operands[1][0]);
  at::Tensor masked = t.scratch({tokens, table.size(1)});
  c10::List<c10::optional<at::Tensor>> rows;
  rows.push_back(found.rows);
  return t.kernel([=]() mutable {
    if (!adds) table.zero_();
    found.find();
    masked.copy_(dy);
    masked.masked_fill_(found.elsewhere.unsqueeze(1), 0);
    at::index_put_(table, rows, masked, true);  // adds up
  });
}

std::unique_ptr<Kernel> vocab_max(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t rows = row_count(request.operands[0]), width = dim(request.operands[0], 2);
  at::Tensor logits = t.in(0, {rows, width}), y = t.out(0, {rows});
  if (width == 0) return t.kernel([=]() mutable { y.fill_(-std::numeric_limits<double>::infinity()); });
  return t.kernel([=]() mutable { at::amax_out(y, logits, at::IntArrayRef({1})); });
}

std::unique_ptr<Kernel> sum_exp(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t rows = row_count(request.operands[0]), width = dim(request.operands[0], 2);
  at::Tensor logits = t.in(0, {rows, width}), most = t.in(1, {rows, 1}), y = t.out(0, {rows});
  at::Tensor exponentials = t.scratch({rows, width});
  return t.kernel([=]() mutable {
    at::sub_out(exponentials, logits, most);
    exponentials.exp_();
    at::sum_out(y, exponentials, at::IntArrayRef({1}));
  });
}

std::unique_ptr<Kernel> pick(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t rows = row_count(request.operands[0]), width = dim(request.operands[0], 2);
  at::Tensor logits = t.in(0, {rows, width}), y = t.out(0, {rows, 1});
  if (width == 0) return t.kernel([=]() mutable { y.zero_(); });
  Found found(t, 1, rows, request.operands[0][2]);
  return t.kernel([=]() mutable {
    found.find();
    at::gather_out(y, logits, 1, found.rows.unsqueeze(1));
    y.masked_fill_(found.elsewhere.unsqueeze(1), 0);
  });
}

std::unique_ptr<Kernel> nll(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t rows = volume(request.operands[0]);
  at::Tensor most = t.in(0, {rows}), sum = t.in(1, {rows}), picked = t.in(2, {rows}), targets = t.ids(3, {rows});
  at::Tensor y = t.out(0), losses = t.scratch({rows}), ignored = t.scratch({rows}, at::kBool);
  at::Tensor zero = t.constant(0, at::kInt);
  return t.kernel([=]() mutable {
    at::log_out(losses, sum);
    losses.add_(most);
    losses.sub_(picked);
    at::lt_out(ignored, targets, zero);
    losses.masked_fill_(ignored, 0);
    at::sum_out(y, losses, at::IntArrayRef({0}));
  });
}

// dloss / sum * exp(logit - max), less dloss at the target if it is here.
std::unique_ptr<Kernel> cross_entropy_grad(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t rows = row_count(request.operands[0]), width = dim(request.operands[0], 2);
  at::Tensor logits = t.in(0, {rows, width}), most = t.in(1, {rows, 1}), sum = t.in(2, {rows, 1}), dloss = t.in(4);
  at::Tensor y = t.out(0, {rows, width});
  if (width == 0) return t.kernel([] {});
  Found target(t, 3, rows, request.operands[0][2]);
  at::Tensor targets = t.ids(3, {rows, 1}), ignored = t.scratch({rows, 1}, at::kBool);
  at::Tensor factor = t.scratch({rows, 1}), less = t.scratch({rows, 1}), zero = t.constant(0, at::kInt);
  return t.kernel([=]() mutable {
    target.find();
    at::lt_out(ignored, targets, zero);
    at::div_out(factor, dloss, sum);
    at::sub_out(y, logits, most);
    y.exp_();
    y.mul_(factor);
    y.masked_fill_(ignored, 0);
    less.copy_(dloss);
    less.neg_();
    less.masked_fill_(target.elsewhere.unsqueeze(1), 0);
    y.scatter_add_(1, target.rows.unsqueeze(1), less);  // one element a row: no two meet
  });
}

// Counted in integers: a float would stop at 2^24.
std::unique_ptr<Kernel> count_tokens(const KernelRequest& request) {
  PlainTensors t(request);
  const std::int64_t rows = volume(request.operands[0]);
  at::Tensor targets = t.ids(0, {rows}), y = t.out(0), zero = t.constant(0, at::kInt);
  at::Tensor real = t.scratch({rows}, at::kBool), ones = t.scratch({rows}, at::kLong);
  at::Tensor total = t.scratch({}, at::kLong);
  return t.kernel([=]() mutable {
    at::ge_out(real, targets, zero);
    ones.copy_(real);
    at::sum_out(total, ones, at::IntArrayRef({0}));
    y.copy_(total);
  });
}

constexpr Entry kTable[] = {
    {"count_tokens", count_tokens},
    {"cross_entropy_grad", cross_entropy_grad},
    {"embedding", embedding},
    {"embedding_grad", embedding_grad},
    {"nll", nll},
    {"pick", pick},
    {"sum_exp", sum_exp},
    {"vocab_max", vocab_max},
};

}  // namespace

std::span<const Entry> plain_vocabulary() {
  return kTable;
}

}  // namespace hspmd::kernels
