// Every kernel of every backend against the reference; and what all of them promise: they write their results whole and
// nothing else, read no memory that nobody set, give the same bits in place, and allocate no tensor storage. The
// reference itself is tested in reference_kernels_test.cc.
#include "hspmd/runtime/kernels/kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "hspmd/runtime/kernels/guarded_run.h"
#include "hspmd/runtime/kernels/kernel_cases.h"

#ifdef HSPMD_HAS_ATEN
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#endif

namespace hspmd {
namespace {

struct Backend {
  const char* name;
  Maker make;
};

std::vector<Backend> backends() {
#ifdef HSPMD_HAS_ATEN
  limit_kernel_threads(1);
  return {{"reference", make_reference_kernel}, {"aten", make_aten_kernel}, {"plain", make_plain_kernel}};
#else
  return {{"reference", make_reference_kernel}};
#endif
}

template <typename T>
void expect_alike(const Case& c, const Backend& backend, double tolerance, Write write) {
  SCOPED_TRACE(fmt::format("{} {} {} {} bytes{}", backend.name, c.op, to_string(c.operands[0]), sizeof(T),
                           write == Write::kAdd ? ", adding" : ""));
  const KernelRequest request = request_of<T>(c, write);

  const auto expected = run_guarded<T>(c, request, make_reference_kernel);
  const auto actual = run_guarded<T>(c, request, backend.make);

  for (std::size_t r = 0; r < c.results.size(); ++r) {
    for (std::size_t i = 0; i < expected[r].size(); ++i) {
      const double e = static_cast<double>(expected[r][i]);
      const double a = static_cast<double>(actual[r][i]);
      if (std::isinf(e)) {
        ASSERT_EQ(e, a) << "result " << r << " element " << i;
      } else {
        ASSERT_NEAR(e, a, tolerance * (1 + std::abs(e))) << "result " << r << " element " << i;
      }
    }
  }
}

// Every choice of results that may overwrite an operand.
template <typename T>
void expect_same_in_place(const Case& c, const Backend& backend) {
  SCOPED_TRACE(fmt::format("{} {} {} {} bytes", backend.name, c.op, to_string(c.operands[0]), sizeof(T)));
  const KernelRequest request = request_of<T>(c, Write::kSet);
  unsigned allowed = 0;
  for (std::size_t r = 0; r < c.results.size(); ++r) {
    if (request.op->overwrites(static_cast<int>(r)) >= 0) allowed |= 1U << r;
  }

  const auto apart = run_guarded<T>(c, request, backend.make);
  for (unsigned in_place = allowed; in_place != 0; in_place = (in_place - 1) & allowed) {
    const auto together = run_guarded<T>(c, request, backend.make, in_place);
    for (std::size_t r = 0; r < apart.size(); ++r) {
      for (std::size_t i = 0; i < apart[r].size(); ++i)
        ASSERT_EQ(apart[r][i], together[r][i]) << "in place " << in_place << " result " << r << " element " << i;
    }
  }
}

TEST(Kernels, CasesHoldEveryOperator) {
  std::set<std::string_view> seen;
  for (const Case& c : cases()) seen.insert(c.op);

  for (const Operator* op : ops::all()) EXPECT_TRUE(seen.contains(op->name())) << op->name();
}

TEST(Kernels, AgreeWithReference) {
  const std::vector<Case> all = cases();
  for (const Backend& backend : backends()) {
    for (const Case& c : all) {
      expect_alike<float>(c, backend, 2e-5, Write::kSet);
      expect_alike<double>(c, backend, 1e-12, Write::kSet);
      if (!ops::find(c.op)->can_add()) continue;
      expect_alike<float>(c, backend, 2e-5, Write::kAdd);
      expect_alike<double>(c, backend, 1e-12, Write::kAdd);
    }
  }
}

TEST(Kernels, GiveTheSameBitsInPlace) {
  const std::vector<Case> all = cases();
  for (const Backend& backend : backends()) {
    for (const Case& c : all) {
      expect_same_in_place<float>(c, backend);
      expect_same_in_place<double>(c, backend);
    }
  }
}

#ifdef HSPMD_HAS_ATEN
// Counts what libtorch allocates for tensors.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) const override {
    ++count;
    return c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  mutable int count = 0;
};

// A kernel that counts the allocations of its runs.
class Counted final : public Kernel {
 public:
  Counted(std::unique_ptr<Kernel> kernel, const CountingAllocator& allocator, int& runs_count)
      : kernel_(std::move(kernel)), allocator_(allocator), count_(runs_count) {}
  [[nodiscard]] std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void run(std::span<const void* const> operands, std::span<void* const> results, void* workspace) override {
    const int before = allocator_.count;
    kernel_->run(operands, results, workspace);
    count_ = allocator_.count - before;
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  const CountingAllocator& allocator_;
  int& count_;
};

CountingAllocator counting_allocator;
int allocations_of_last_run = 0;

template <Maker make>
std::unique_ptr<Kernel> make_counted(const KernelRequest& request) {
  return std::make_unique<Counted>(make(request), counting_allocator, allocations_of_last_run);
}

// Does einsum make it, which has no out= form?
bool is_no_matrix_product(const Case& c) {
  const std::set<std::string> factors = {"abc,cbd->ad", "nab,nbc->nac", "ab,bc->ca"};
  return c.attributes.has("factors") && factors.contains(c.attributes.text("factors"));
}

TEST(Kernels, RunsAllocateNoTensorStorage) {
  c10::SetCPUAllocator(&counting_allocator, 100);
  { const c10::DataPtr probe = c10::GetAllocator(c10::kCPU)->allocate(8); }
  ASSERT_EQ(counting_allocator.count, 1) << "the counter must see allocations";
  for (const Case& c : cases()) {
    if (is_no_matrix_product(c)) continue;
    for (const Backend& backend :
         {Backend{"aten", make_counted<make_aten_kernel>}, Backend{"plain", make_counted<make_plain_kernel>}}) {
      const Write write = ops::find(c.op)->can_add() ? Write::kAdd : Write::kSet;

      (void)run_guarded<float>(c, request_of<float>(c, write), backend.make);

      EXPECT_EQ(allocations_of_last_run, 0) << backend.name << " " << c.op << " " << to_string(c.operands[0]);
    }
  }
}
#endif

#ifdef HSPMD_HAS_ATEN
// What stands in for a GPU where there is none: tensors of libtorch's "meta" device. Not the two that need `where` and
// `index_select`, which libtorch 1.13 does not have there.
TEST(Kernels, RunOnADeviceThatIsNotTheHost) {
  for (const Case& c : cases()) {
    if (c.op == std::string_view("adamw") || c.op == std::string_view("embedding") || is_no_matrix_product(c)) continue;
    SCOPED_TRACE(fmt::format("{} {}", c.op, to_string(c.operands[0])));
    KernelRequest request = request_of<float>(c, ops::find(c.op)->can_add() ? Write::kAdd : Write::kSet);
    request.processor = Processor::kNone;

    EXPECT_NO_THROW((void)run_guarded<float>(c, request, make_aten_kernel));
  }
}
#endif

#ifndef HSPMD_HAS_ATEN
TEST(Kernels, ABuildWithoutLibtorchSaysSo) {
  const std::vector<Case> all = cases();
  const KernelRequest request = request_of<float>(all.front(), Write::kSet);
  EXPECT_THROW((void)make_aten_kernel(request), InvalidArgument);
  EXPECT_THROW((void)make_plain_kernel(request), InvalidArgument);
}
#endif

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A norm that is no number leaves the state as it was, in place or not.
TEST(Kernels, AdamWKeepsItsStateWhereTheNormIsNotFinite) {
  const Attributes attributes{
      {"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"clip_norm", 1.0}};
  const Box box3 = box({3});
  struct Row {
    double sumsq, count;
  };
  for (const Backend& backend : backends()) {
    for (const Row& row : {Row{kNaN, 2}, Row{std::numeric_limits<double>::infinity(), 2}, Row{1, 0}, Row{0, 0}}) {
      SCOPED_TRACE(fmt::format("{} sumsq {} count {}", backend.name, row.sumsq, row.count));

      const auto values = run_given<float>(backend.make, "adamw", attributes,
                                           {{box3, {1, -2, 3}},
                                            {box3, {4, 5, -6}},
                                            {box3, {7, 8, 9}},
                                            {box3, {kNaN, 1, -1}},
                                            {Box{}, {row.sumsq}},
                                            {Box{}, {row.count}},
                                            {box3, {0.1, 0.5, 0.25}}},
                                           {box3, box3, box3});

      EXPECT_EQ(values[0], (std::vector<double>{1, -2, 3}));
      EXPECT_EQ(values[1], (std::vector<double>{4, 5, -6}));
      EXPECT_EQ(values[2], (std::vector<double>{7, 8, 9}));
    }
  }
}

// A query all of whose scores are no numbers sees keys all the same: it must not pass for one that sees none.
TEST(Kernels, AttentionDoesNotHideWhatIsNotANumber) {
  const std::vector<Given> forward = {{box({1, 2, 1, 1, 2}), {kNaN, 1, 1, 1}},
                                      {box({1, 2, 1, 2}), {1, 2, 3, 4}},
                                      {box({1, 2, 1, 2}), {1, 2, 3, 4}},
                                      {box({1, 2}), {}, {0, 1}},
                                      {box({1, 2}), {}, {0, 1}},
                                      {box({1, 2}), {}, {0, 0}},
                                      {box({1, 2}), {}, {0, 0}}};
  for (const auto& [name, make] : backends()) {
    SCOPED_TRACE(name);
    const auto values = run_given<float>(make, "attention", {}, forward, {box({1, 2, 1, 1, 2}), box({1, 2, 1, 1})});
    std::vector<Given> backward = forward;
    backward.insert(
        backward.end(),
        {{box({1, 2, 1, 1, 2}), values[0]}, {box({1, 2, 1, 1}), values[1]}, {box({1, 2, 1, 1, 2}), {1, 1, 1, 1}}});
    const auto gradients =
        run_given<float>(make, "attention_grad", {}, backward, {forward[0].box, forward[1].box, forward[2].box});

    EXPECT_TRUE(std::isnan(values[0][0]) && std::isnan(values[1][0])) << "out and lse of the first query";
    EXPECT_TRUE(std::isfinite(values[0][2]) && std::isfinite(values[1][1])) << "out and lse of the second query";
    EXPECT_TRUE(std::isnan(gradients[0][0])) << "dq of the first query";
  }
}

#ifdef HSPMD_HAS_ATEN
// The own exponential, seen through the gradient of cross entropy over one wide row (so the vectorised loop makes it)
// whose target lies elsewhere: relative error of fp32 and fp64, and an exact 0 for what is masked.
TEST(Kernels, ExponentialKeepsItsAccuracy) {
  constexpr std::int64_t kPoints = 100003;
  std::vector<double> points = {-std::numeric_limits<double>::infinity(), -1000};
  while (std::ssize(points) < kPoints)
    points.push_back(
        static_cast<double>(static_cast<float>(-86.9 + 174.8 * static_cast<double>(points.size()) / kPoints)));
  const Box row = box({1, 1, kPoints});
  const std::vector<Given> given = {
      {row, points}, {box({1, 1}), {0}}, {box({1, 1}), {1}}, {box({1, 1}), {}, {kPoints + 5}}, {Box{}, {1}}};

  const auto floats = run_given<float>(make_aten_kernel, "cross_entropy_grad", {}, given, {row})[0];
  const auto doubles = run_given<double>(make_aten_kernel, "cross_entropy_grad", {}, given, {row})[0];

  double worst_float = 0, worst_double = 0;
  for (std::size_t i = 2; i < points.size(); ++i) {
    const double exact = std::exp(points[i]);
    worst_float = std::max(worst_float, std::abs(floats[i] / exact - 1));
    worst_double = std::max(worst_double, std::abs(doubles[i] / exact - 1));
  }
  EXPECT_LT(worst_float, 2e-7);
  EXPECT_LT(worst_double, 1e-15);
  EXPECT_EQ(floats[0], 0);
  EXPECT_EQ(floats[1], 0);
  EXPECT_EQ(doubles[0], 0);
}
#endif

}  // namespace
}  // namespace hspmd
