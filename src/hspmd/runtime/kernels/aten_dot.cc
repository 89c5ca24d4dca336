#include "hspmd/runtime/kernels/aten_dot.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>

#include "hspmd/runtime/kernels/kernel_call.h"

namespace hspmd::kernels {
namespace {

// A matrix over planned memory: made once; a run points it elsewhere without allocating anything.
class MatrixView {
 public:
  MatrixView(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
    tensor_ = at::from_blob(&placeholder_, {rows, columns}, at::TensorOptions().dtype(type));
  }
  const at::Tensor& at(const void* data) {
    if (data != data_) {
      tensor_.storage().set_data_ptr_noswap(at::DataPtr(const_cast<void*>(data), c10::Device(c10::kCPU)));
      data_ = data;
    }
    return tensor_;
  }
  // The transposed matrix shares the storage.
  void transpose() { tensor_ = tensor_.t(); }

 private:
  static inline double placeholder_ = 0;
  at::Tensor tensor_;
  const void* data_ = nullptr;
};

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

class DotKernel final : public Kernel {
 public:
  DotKernel(const Product& p, const KernelRequest& request)
      : type_(request.precision == Precision::kFp64 ? at::kDouble : at::kFloat),
        empty_(p.m == 0 || p.n == 0),
        no_sum_(p.k == 0),
        adds_(request.write == Write::kAdd),
        result_bytes_(static_cast<std::size_t>(p.m * p.n) * element_bytes(request.precision)),
        a_(p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, type_),
        b_(p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, type_),
        y_(p.m, p.n, type_) {
    if (p.a_transposed) a_.transpose();
    if (p.b_transposed) b_.transpose();
  }

  void run(std::span<const void* const> operands, std::span<void* const> results, void*) override {
    if (empty_) return;
    if (no_sum_) {
      if (!adds_) std::memset(results[0], 0, result_bytes_);
      return;
    }
    const c10::InferenceMode no_autograd;
    at::Tensor y = y_.at(results[0]);
    y.addmm_(a_.at(operands[0]), b_.at(operands[1]), adds_ ? 1 : 0);  // times 0: what lay there is not read
  }

 private:
  at::ScalarType type_;
  bool empty_, no_sum_, adds_;
  std::size_t result_bytes_;
  MatrixView a_, b_, y_;
};

}  // namespace

std::unique_ptr<Kernel> aten_dot(const KernelRequest& request) {
  const std::string& text = request.attributes->text("factors");
  const std::size_t comma = text.find(',');
  const std::size_t arrow = text.find("->");
  const std::string a = text.substr(0, comma);
  const std::string b = text.substr(comma + 1, arrow - comma - 1);
  const auto product = as_product(a, b, text.substr(arrow + 2), request);
  if (!product) return make_reference_kernel(request);
  return std::make_unique<DotKernel>(*product, request);
}

}  // namespace hspmd::kernels
