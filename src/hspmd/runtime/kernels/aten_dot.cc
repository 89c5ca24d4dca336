#include "hspmd/runtime/kernels/aten_dot.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/mm.h>

#include <array>

#include "hspmd/runtime/kernels/plain_tensors.h"

namespace hspmd::kernels {
namespace {

std::string only(const std::string& dims, const std::string& others) {
  std::string found;
  for (const char f : dims) {
    if (others.find(f) != std::string::npos) found += f;
  }
  return found;
}

struct Product {
  std::int64_t m = 1, n = 1, k = 1;
  bool a_transposed = false, b_transposed = false;
};

// Does `dims` read first + second, or second + first?
std::optional<bool> swapped(const std::string& dims, const std::string& first, const std::string& second) {
  if (dims == first + second) return false;
  if (dims == second + first) return true;
  return std::nullopt;
}

std::optional<Product> as_product(const std::string& a, const std::string& b, const std::string& y,
                                  const KernelRequest& request) {
  const std::string rows = only(a, y);
  const std::string columns = only(b, y);
  const std::string sum = only(a, b);
  if (rows.size() + columns.size() != y.size() || rows.size() + sum.size() != a.size() ||
      columns.size() + sum.size() != b.size())
    return std::nullopt;
  const auto a_swapped = swapped(a, rows, sum);
  const auto b_swapped = swapped(b, sum, columns);
  if (y != rows + columns || !a_swapped || !b_swapped) return std::nullopt;
  Product product{1, 1, 1, *a_swapped, *b_swapped};
  for (std::size_t d = 0; d < a.size(); ++d)
    (rows.find(a[d]) != std::string::npos ? product.m : product.k) *= request.operands[0][d].size();
  for (std::size_t d = 0; d < b.size(); ++d) {
    if (columns.find(b[d]) != std::string::npos) product.n *= request.operands[1][d].size();
  }
  return product;
}

std::unique_ptr<Kernel> matrix_product(const KernelRequest& request, const Product& p) {
  PlainTensors t(request);
  at::Tensor a = p.a_transposed ? t.in(0, {p.k, p.m}).t() : t.in(0, {p.m, p.k});
  at::Tensor b = p.b_transposed ? t.in(1, {p.n, p.k}).t() : t.in(1, {p.k, p.n});
  at::Tensor y = t.out(0, {p.m, p.n});
  const bool adds = request.write == Write::kAdd;
  const bool empty = p.k == 0;
  return t.kernel([=]() mutable {
    if (empty) {
      if (!adds) y.zero_();
    } else if (adds) {
      at::addmm_out(y, y, a, b);
    } else {
      at::mm_out(y, a, b);
    }
  });
}

std::unique_ptr<Kernel> any_contraction(const KernelRequest& request, const std::string& factors) {
  PlainTensors t(request);
  const std::array<at::Tensor, 2> operands = {t.in(0), t.in(1)};
  at::Tensor y = t.out(0);
  if (request.write == Write::kAdd) return t.kernel([=]() mutable { y.add_(at::einsum(factors, operands)); });
  return t.kernel([=]() mutable { y.copy_(at::einsum(factors, operands)); });
}

}  // namespace

std::unique_ptr<Kernel> aten_dot(const KernelRequest& request) {
  const c10::InferenceMode no_autograd;
  const std::string& text = request.attributes->text("factors");
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  const std::string a = text.substr(0, comma);
  const std::string b = text.substr(comma + 1, arrow - comma - 1);
  const auto product = as_product(a, b, text.substr(arrow + 2), request);
  return product ? matrix_product(request, *product) : any_contraction(request, text);
}

}  // namespace hspmd::kernels
