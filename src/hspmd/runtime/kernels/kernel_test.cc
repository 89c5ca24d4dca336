// Every aten kernel against the reference, over odd sizes, empty shards, split vocabularies, segments and permuted
// positions. The reference itself is tested in reference_kernels_test.cc.
#include "hspmd/runtime/kernels/kernel.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "hspmd/ops/ops.h"
#include "hspmd/runtime/kernels/given_values.h"

namespace hspmd {
namespace {

enum class Fill { kNormal, kPositive, kPositions, kIds, kSegments, kTargets };

struct Case {
  const char* op;
  Attributes attributes;
  std::vector<Box> operands;
  std::vector<Fill> fills;  // kNormal where absent
  std::vector<Box> results;
};

bool is_integer(Fill fill) {
  return fill != Fill::kNormal && fill != Fill::kPositive;
}

template <typename T>
class Buffers {
 public:
  explicit Buffers(const Case& c) : case_(c) {
    std::mt19937 random(17);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      const Fill fill = i < c.fills.size() ? c.fills[i] : Fill::kNormal;
      const auto n = static_cast<std::size_t>(volume(c.operands[i]));
      std::vector<T> floats(n);
      std::vector<std::int32_t> ints(n);
      for (std::size_t e = 0; e < n; ++e) {
        floats[e] = static_cast<T>(fill == Fill::kPositive ? 1 + std::abs(normal(random)) : normal(random));
        const auto r = static_cast<std::int32_t>(random() % 9);
        ints[e] = fill == Fill::kPositions  ? static_cast<std::int32_t>((e * 5) % 11)
                  : fill == Fill::kSegments ? r / 5
                  : fill == Fill::kTargets  ? r - 2
                                            : r;
      }
      floats_.push_back(floats);
      ints_.push_back(ints);
    }
    for (const Box& result : c.results) results_.emplace_back(static_cast<std::size_t>(volume(result)), T{0.25});
  }

  void run(Kernel& kernel) {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (std::size_t i = 0; i < floats_.size(); ++i) {
      const bool integers = i < case_.fills.size() && is_integer(case_.fills[i]);
      in.push_back(integers ? static_cast<const void*>(ints_[i].data()) : floats_[i].data());
    }
    for (auto& result : results_) out.push_back(result.data());
    // Results that are updates of operands start from them.
    if (std::string(case_.op) == "adamw") {
      for (std::size_t r = 0; r < 3; ++r) results_[r] = floats_[r];
    }
    std::vector<std::byte> workspace(kernel.workspace_bytes() + 64, std::byte{0xEE});
    kernel.run(in, out, workspace.data());
    for (std::size_t i = kernel.workspace_bytes(); i < workspace.size(); ++i)
      ASSERT_EQ(workspace[i], std::byte{0xEE}) << "the workspace is exceeded";
  }

  [[nodiscard]] const std::vector<std::vector<T>>& results() const { return results_; }

 private:
  const Case& case_;
  std::vector<std::vector<T>> floats_;
  std::vector<std::vector<std::int32_t>> ints_;
  std::vector<std::vector<T>> results_;
};

KernelRequest request_of(const Case& c, Precision precision, Write write) {
  const Operator* op = ops::find(c.op);
  return {op, &c.attributes, c.operands, c.results, precision, write};
}

template <typename T>
void expect_alike(const Case& c, Precision precision, double tolerance, Write write) {
  SCOPED_TRACE(
      fmt::format("{} {} {}", c.op, to_string(c.operands[0]), precision == Precision::kFp64 ? "fp64" : "fp32"));
  const KernelRequest request = request_of(c, precision, write);
  Buffers<T> expected(c), actual(c);

  expected.run(*make_reference_kernel(request));
  actual.run(*make_aten_kernel(request));

  for (std::size_t r = 0; r < c.results.size(); ++r) {
    for (std::size_t i = 0; i < expected.results()[r].size(); ++i) {
      const double e = static_cast<double>(expected.results()[r][i]);
      const double a = static_cast<double>(actual.results()[r][i]);
      if (std::isinf(e)) {
        ASSERT_EQ(e, a) << "result " << r << " element " << i;
      } else {
        ASSERT_NEAR(e, a, tolerance * (1 + std::abs(e))) << "result " << r << " element " << i;
      }
    }
  }
}

std::vector<Case> cases() {
  const Attributes rope{{"theta", 10000.0},       {"inverse", std::int64_t{0}}, {"factor", 1.0},
                        {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},    {"original_max_position", 8192.0}};
  Attributes back = rope;
  back.set("inverse", std::int64_t{1});
  back.set("factor", 8.0);
  const Attributes adamw{{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"clip_norm", 1.0}};
  const auto dot = [](const char* factors) { return Attributes{{"factors", std::string(factors)}}; };
  std::vector<Case> all = {
      {"dot", dot("bsh,fh->bsf"), {box({2, 3, 5}), box({7, 5})}, {}, {box({2, 3, 7})}},
      {"dot", dot("bsf,bsh->fh"), {box({2, 3, 7}), box({2, 3, 5})}, {}, {box({7, 5})}},
      {"dot", dot("bsf,fh->bsh"), {box({2, 3, 7}), box({7, 5})}, {}, {box({2, 3, 5})}},
      {"dot", dot("bsh,kgdh->bskgd"), {box({2, 3, 5}), box({2, 3, 4, 5})}, {}, {box({2, 3, 2, 3, 4})}},
      {"dot", dot("bskgd,hkgd->bsh"), {box({1, 3, 2, 3, 4}), box({5, 2, 3, 4})}, {}, {box({1, 3, 5})}},
      {"dot", dot("bsh,bskgd->hkgd"), {box({1, 3, 5}), box({1, 3, 2, 3, 4})}, {}, {box({5, 2, 3, 4})}},
      {"dot", dot("abc,bcd->ad"), {box({3, 2, 5}), box({2, 5, 4})}, {}, {box({3, 4})}},
      {"dot", dot("abc,cbd->ad"), {box({3, 2, 5}), box({5, 2, 4})}, {}, {box({3, 4})}},
      {"dot", dot("nab,nbc->nac"), {box({3, 2, 5}), box({3, 5, 4})}, {}, {box({3, 2, 4})}},
      {"dot", dot("ab,bc->ca"), {box({3, 5}), box({5, 4})}, {}, {box({4, 3})}},
      {"dot", dot("ab,bc->ac"), {box({1, 1}), box({1, 1})}, {}, {box({1, 1})}},
      {"dot", dot("bsh,fh->bsf"), {box({2, 3, 0}), box({7, 0})}, {}, {box({2, 3, 7})}},
      {"dot", dot("bsh,fh->bsf"), {box({2, 0, 5}), box({7, 5})}, {}, {box({2, 0, 7})}},
      {"rms_norm", {{"eps", 1e-5}}, {box({2, 3, 37}), box({37})}, {}, {box({2, 3, 37}), box({2, 3})}},
      {"rms_norm_grad",
       {},
       {box({2, 3, 37}), box({37}), box({2, 3}), box({2, 3, 37})},
       {},
       {box({2, 3, 37}), box({37})}},
      {"rms_norm_grad", {}, {box({2, 0, 8}), box({8}), box({2, 0}), box({2, 0, 8})}, {}, {box({2, 0, 8}), box({8})}},
      {"silu_mul", {}, {box({3, 41}), box({3, 41})}, {}, {box({3, 41})}},
      {"silu_mul_grad", {}, {box({3, 41}), box({3, 41}), box({3, 41})}, {}, {box({3, 41}), box({3, 41})}},
      {"rope", rope, {box({2, 3, 2, 2, 6}), box({2, 3})}, {Fill::kNormal, Fill::kPositions}, {box({2, 3, 2, 2, 6})}},
      {"rope", back, {box({2, 3, 2, 6}), box({2, 3})}, {Fill::kNormal, Fill::kPositions}, {box({2, 3, 2, 6})}},
      {"embedding", {}, {box({2, 5}), {{2, 6}, {0, 7}}}, {Fill::kIds}, {box({2, 5, 7})}},
      {"embedding_grad", {}, {box({2, 5}), {{2, 6}, {0, 7}}, box({2, 5, 7})}, {Fill::kIds}, {{{2, 6}, {0, 7}}}},
      {"vocab_max", {}, {box({2, 3, 19})}, {}, {box({2, 3})}},
      {"vocab_max", {}, {box({2, 3, 0})}, {}, {box({2, 3})}},
      {"sum_exp", {}, {box({2, 3, 19}), box({2, 3})}, {}, {box({2, 3})}},
      {"cross_entropy_grad",
       {},
       {{{0, 2}, {0, 3}, {2, 7}}, box({2, 3}), box({2, 3}), box({2, 3}), Box{}},
       {Fill::kNormal, Fill::kNormal, Fill::kPositive, Fill::kTargets},
       {{{0, 2}, {0, 3}, {2, 7}}}},
      {"sumsq", {}, {box({5, 37})}, {}, {Box{}}},
      {"sumsq", {}, {box({0, 37})}, {}, {Box{}}},
      {"add", {}, {box({7}), box({7}), box({7})}, {}, {box({7})}},
      {"mul", {}, {box({7}), box({7})}, {}, {box({7})}},
      {"scale", {{"factor", 2.5}}, {box({7})}, {}, {box({7})}},
      {"accumulate", {}, {box({33})}, {}, {box({33})}},
      {"adamw",
       adamw,
       {box({5, 9}), box({5, 9}), box({5, 9}), box({5, 9}), Box{}, Box{}, box({3})},
       {Fill::kNormal, Fill::kNormal, Fill::kPositive, Fill::kNormal, Fill::kPositive, Fill::kPositive,
        Fill::kPositive},
       {box({5, 9}), box({5, 9}), box({5, 9})}},
  };
  // Attention: {b, s, t, k, g, d}; s over one block of queries, permuted positions, segments, queries that see nothing.
  for (const auto& n : std::vector<std::array<std::int64_t, 6>>{{2, 5, 5, 2, 1, 4},
                                                                {1, 133, 133, 1, 2, 6},
                                                                {1, 7, 150, 2, 3, 4},
                                                                {1, 1, 1, 1, 1, 2},
                                                                {1, 4, 4, 0, 2, 4},
                                                                {1, 0, 6, 1, 1, 4}}) {
    const auto [b, s, t, k, g, d] = n;
    const std::vector<Fill> fills = {Fill::kNormal,    Fill::kNormal,   Fill::kNormal,  Fill::kPositions,
                                     Fill::kPositions, Fill::kSegments, Fill::kSegments};
    const std::vector<Box> operands = {box({b, s, k, g, d}), box({b, t, k, d}), box({b, t, k, d}), box({b, s}),
                                       box({b, t}),          box({b, s}),       box({b, t})};
    all.push_back({"attention", {}, operands, fills, {box({b, s, k, g, d}), box({b, s, k, g})}});
    std::vector<Box> backward = operands;
    backward.insert(backward.end(), {box({b, s, k, g, d}), box({b, s, k, g}), box({b, s, k, g, d})});
    std::vector<Fill> filled = fills;
    filled.insert(filled.end(), {Fill::kNormal, Fill::kPositive, Fill::kNormal});
    all.push_back({"attention_grad", {}, backward, filled, {operands[0], operands[1], operands[2]}});
  }
  return all;
}

#ifdef HSPMD_HAS_ATEN
TEST(Kernels, AtenAgreesWithReference) {
  limit_kernel_threads(1);
  for (const Case& c : cases()) {
    expect_alike<float>(c, Precision::kFp32, 2e-5, Write::kSet);
    expect_alike<double>(c, Precision::kFp64, 1e-12, Write::kSet);
    if (!ops::find(c.op)->can_add()) continue;
    expect_alike<float>(c, Precision::kFp32, 2e-5, Write::kAdd);
    expect_alike<double>(c, Precision::kFp64, 1e-12, Write::kAdd);
  }
}
#else
TEST(Kernels, ABuildWithoutLibtorchSaysSo) {
  const std::vector<Case> all = cases();
  EXPECT_THROW((void)make_aten_kernel(request_of(all.front(), Precision::kFp32, Write::kSet)), InvalidArgument);
}
#endif

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<Maker> makers() {
#ifdef HSPMD_HAS_ATEN
  return {make_reference_kernel, make_aten_kernel};
#else
  return {make_reference_kernel};
#endif
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
  for (const Maker make : makers()) {
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
