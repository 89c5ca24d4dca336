// The reference against values computed by hand, and its gradients against finite differences of its forwards.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "hspmd/runtime/kernels/given_values.h"

namespace hspmd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(actual[i], expected[i], 1e-14) << "element " << i;
    }
  }
}

TEST(ReferenceKernels, GiveWhatIsComputedByHand) {
  struct Row {
    const char* op;
    Attributes attributes;
    std::vector<Given> given;
    std::vector<Box> boxes;
    std::vector<std::vector<double>> expected;
  };
  const double e = std::exp(1.0), ln2 = std::log(2.0), r = 1 / std::sqrt(12.5);
  const Attributes quarter_turn{
      {"theta", 1.0},           {"inverse", std::int64_t{0}}, {"factor", 1.0},
      {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},    {"original_max_position", 8192.0}};
  const Box part{{0, 1}, {0, 3}, {2, 4}};  // two of a vocabulary's rows, from 2 on
  const std::vector<Row> rows = {
      {"dot",
       {{"factors", std::string("ab,cb->ac")}},
       {{box({2, 2}), {1, 2, 3, 4}}, {box({1, 2}), {5, 6}}},
       {box({2, 1})},
       {{17, 39}}},
      {"dot",
       {{"factors", std::string("nab,nbc->nac")}},
       {{box({2, 1, 2}), {1, 2, 3, 4}}, {box({2, 2, 1}), {5, 6, 7, 8}}},
       {box({2, 1, 1})},
       {{17, 53}}},
      {"add", {}, {{box({2}), {1, 2}}, {box({2}), {3, 4}}, {box({2}), {10, 20}}}, {box({2})}, {{14, 26}}},
      {"mul", {}, {{box({2}), {2, -3}}, {box({2}), {5, 7}}}, {box({2})}, {{10, -21}}},
      {"scale", {{"factor", -0.5}}, {{box({2}), {2, -3}}}, {box({2})}, {{-1, 1.5}}},
      {"accumulate", {}, {{box({2}), {2, -3}}}, {box({2})}, {{2, -3}}},
      {"sumsq", {}, {{box({2}), {3, 4}}}, {Box{}}, {{25}}},
      {"squared_error", {}, {{box({2}), {1, 2}}, {box({2}), {3, 5}}}, {Box{}}, {{13}}},
      {"squared_error_grad", {}, {{box({2}), {1, 2}}, {box({2}), {3, 5}}, {Box{}, {0.5}}}, {box({2})}, {{-2, -3}}},
      {"tanh", {}, {{box({2}), {0, ln2}}}, {box({2})}, {{0, 0.6}}},
      {"tanh_grad", {}, {{box({2}), {0, 0.6}}, {box({2}), {3, 2}}}, {box({2})}, {{3, 1.28}}},
      {"add_bias", {}, {{box({2, 2}), {1, 2, 3, 4}}, {box({2}), {10, 20}}}, {box({2, 2})}, {{11, 22, 13, 24}}},
      {"bias_grad", {}, {{box({2})}, {box({2, 2}), {1, 2, 3, 4}}}, {box({2})}, {{4, 6}}},
      {"silu_mul", {}, {{box({2}), {0, ln2}}, {box({2}), {7, 3}}}, {box({2})}, {{0, 2 * ln2}}},
      {"silu_mul_grad", {}, {{box({1}), {0}}, {box({1}), {7}}, {box({1}), {2}}}, {box({1}), box({1})}, {{7}, {0}}},
      {"rms_norm",
       {{"eps", 0.0}},
       {{box({1, 2}), {3, 4}}, {box({2}), {1, 10}}},
       {box({1, 2}), box({1})},
       {{3 * r, 40 * r}, {r}}},
      // dw = x dy rstd; dx = rstd (dy - x mean(dy x) rstd^2) = r (1 - 3 * 1.5 / 12.5, -4 * 1.5 / 12.5)
      {"rms_norm_grad",
       {{"eps", 0.0}},
       {{box({1, 2}), {3, 4}}, {box({2}), {1, 1}}, {box({1}), {r}}, {box({1, 2}), {1, 0}}},
       {box({1, 2}), box({2})},
       {{0.64 * r, -0.48 * r}, {3 * r, 0}}},
      {"rope",
       quarter_turn,
       {{box({1, 2, 1, 2}), {1, 2, 1, 0}}, {box({1, 2}), {}, {0, 1}}},
       {box({1, 2, 1, 2})},
       {{1, 2, std::cos(1.0), std::sin(1.0)}}},
      {"embedding",
       {},
       {{box({1, 3}), {}, {3, 1, 2}}, {{{2, 4}, {0, 2}}, {1, 2, 3, 4}}},
       {box({1, 3, 2})},
       {{3, 4, 0, 0, 1, 2}}},
      {"embedding_grad",
       {},
       {{box({1, 3}), {}, {3, 1, 3}}, {{{2, 4}, {0, 2}}}, {box({1, 3, 2}), {1, 2, 3, 4, 5, 6}}},
       {{{2, 4}, {0, 2}}},
       {{0, 0, 6, 8}}},
      {"vocab_max", {}, {{part, {1, 2, 4, 3, -5, -6}}}, {box({1, 3})}, {{2, 4, -5}}},
      {"vocab_max", {}, {{box({1, 2, 0})}}, {box({1, 2})}, {{-kInfinity, -kInfinity}}},
      {"sum_exp", {}, {{part, {0, 1, 0, 0, 2, 2}}, {box({1, 3}), {0, 0, 1}}}, {box({1, 3})}, {{1 + e, 2, 2 * e}}},
      {"pick", {}, {{part, {1, 2, 3, 4, 5, 6}}, {box({1, 3}), {}, {3, 1, 2}}}, {box({1, 3})}, {{2, 0, 5}}},
      {"nll",
       {},
       {{box({1, 3}), {1, 2, 3}}, {box({1, 3}), {1, e, 7}}, {box({1, 3}), {0.5, 2, 0}}, {box({1, 3}), {}, {0, 4, -1}}},
       {Box{}},
       {{1.5}}},
      {"cross_entropy_grad",
       {},
       {{part, {0, 0, 0, ln2, 1, 2}},
        {box({1, 3}), {0, 0, 0}},
        {box({1, 3}), {2, 4, 1}},
        {box({1, 3}), {}, {2, 0, -1}},
        {Box{}, {2}}},
       {part},
       {{-1, 1, 0.5, 1, 0, 0}}},
      {"count_tokens", {}, {{box({1, 4}), {}, {0, -1, 5, -7}}}, {Box{}}, {{2}}},
      // The first query sees the first key alone, the second both alike, the third (another segment) none.
      {"attention",
       {},
       {{box({1, 3, 1, 1, 1}), {1, 0, 1}},
        {box({1, 2, 1, 1}), {5, 9}},
        {box({1, 2, 1, 1}), {4, 8}},
        {box({1, 3}), {}, {0, 1, 1}},
        {box({1, 2}), {}, {0, 1}},
        {box({1, 3}), {}, {0, 0, 1}},
        {box({1, 2}), {}, {0, 0}}},
       {box({1, 3, 1, 1, 1}), box({1, 3, 1, 1})},
       {{4, 6, 0}, {5, ln2, -kInfinity}}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.op);

    const auto values = run_given<double>(make_reference_kernel, row.op, row.attributes, row.given, row.boxes);

    for (std::size_t i = 0; i < values.size(); ++i) expect_near(values[i], row.expected[i]);
  }
}

// g = gradient_sum / count, clipped to norm 1: norm = 5 / 2, so g = {3, 4} / 5 (but for the 1e-6 beside the norm).
TEST(ReferenceKernels, AdamWGivesWhatIsComputedByHand) {
  const Attributes attributes{{"beta1", 0.5}, {"beta2", 0.75}, {"eps", 0.0}, {"weight_decay", 0.5}, {"clip_norm", 1.0}};
  double master[] = {2, -4}, m[] = {0, 0}, v[] = {0, 0};
  const double gradient[] = {3, 4}, sumsq[] = {25}, count[] = {2}, inputs[] = {0.1, 0.5, 0.25};
  const KernelRequest request{ops::find("adamw"),
                              &attributes,
                              {box({2}), box({2}), box({2}), box({2}), Box{}, Box{}, box({3})},
                              {box({2}), box({2}), box({2})},
                              Precision::kFp64,
                              Write::kSet};
  const void* operands[] = {master, m, v, gradient, sumsq, count, inputs};
  void* results[] = {master, m, v};

  make_reference_kernel(request)->run(operands, results, nullptr);

  EXPECT_NEAR(m[0], 0.3, 1e-6);
  EXPECT_NEAR(m[1], 0.4, 1e-6);
  EXPECT_NEAR(v[0], 0.09, 1e-6);
  EXPECT_NEAR(v[1], 0.16, 1e-6);
  EXPECT_NEAR(master[0], 2 - 0.1 * (1 + 0.5 * 2), 1e-9);
  EXPECT_NEAR(master[1], -4 - 0.1 * (1 + 0.5 * -4), 1e-9);
}

using Tensors = std::vector<std::vector<double>>;

// A scalar function of some tensors, and its gradient, both made of reference kernels.
struct Differentiable {
  const char* name;
  Tensors at;
  std::function<double(const Tensors&)> value;
  std::function<Tensors(const Tensors&)> gradient;
};

std::vector<double> noise(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = normal(random);
  return values;
}

double inner(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Tensors reference(const char* op, const Attributes& attributes, const std::vector<Given>& given,
                  const std::vector<Box>& results) {
  return run_given<double>(make_reference_kernel, op, attributes, given, results);
}

// The value is the inner product of the forward's first result with a constant `dy`, which is what the gradient is
// given.
std::vector<Differentiable> differentiables() {
  std::vector<Differentiable> all;
  const Box x = box({2, 3, 5}), w = box({5}), rows = box({2, 3});
  const std::vector<double> dy = noise(30, 1);
  const Attributes eps{{"eps", 1e-2}};
  all.push_back({"rms_norm",
                 {noise(30, 2), noise(5, 3)},
                 [=](const Tensors& t) {
                   return inner(dy, reference("rms_norm", eps, {{x, t[0]}, {w, t[1]}}, {x, rows})[0]);
                 },
                 [=](const Tensors& t) {
                   const auto rstd = reference("rms_norm", eps, {{x, t[0]}, {w, t[1]}}, {x, rows})[1];
                   return reference("rms_norm_grad", eps, {{x, t[0]}, {w, t[1]}, {rows, rstd}, {x, dy}}, {x, w});
                 }});
  all.push_back({"silu_mul",
                 {noise(30, 4), noise(30, 5)},
                 [=](const Tensors& t) {
                   return inner(dy, reference("silu_mul", {}, {{x, t[0]}, {x, t[1]}}, {x})[0]);
                 },
                 [=](const Tensors& t) {
                   return reference("silu_mul_grad", {}, {{x, t[0]}, {x, t[1]}, {x, dy}}, {x, x});
                 }});
  all.push_back({"tanh",
                 {noise(30, 6)},
                 [=](const Tensors& t) {
                   return inner(dy, reference("tanh", {}, {{x, t[0]}}, {x})[0]);
                 },
                 [=](const Tensors& t) {
                   return reference("tanh_grad", {}, {{x, reference("tanh", {}, {{x, t[0]}}, {x})[0]}, {x, dy}}, {x});
                 }});
  all.push_back({"add_bias, by the bias",
                 {noise(5, 7)},
                 [=](const Tensors& t) {
                   return inner(dy, reference("add_bias", {}, {{x, noise(30, 8)}, {w, t[0]}}, {x})[0]);
                 },
                 [=](const Tensors& t) {
                   return reference("bias_grad", {}, {{w, t[0]}, {x, dy}}, {w});
                 }});
  all.push_back({"squared_error",
                 {noise(30, 9)},
                 [=](const Tensors& t) {
                   return 0.7 * reference("squared_error", {}, {{x, t[0]}, {x, dy}}, {Box{}})[0][0];
                 },
                 [=](const Tensors& t) {
                   return reference("squared_error_grad", {}, {{x, t[0]}, {x, dy}, {Box{}, {0.7}}}, {x});
                 }});
  const Box turned = box({2, 3, 2, 6});
  const Given positions{rows, {}, {0, 5, 9, 1, 70, 3}};
  Attributes turn{{"theta", 100.0},         {"inverse", std::int64_t{0}}, {"factor", 8.0},
                  {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},    {"original_max_position", 32.0}};
  Attributes back = turn;
  back.set("inverse", std::int64_t{1});
  all.push_back({"rope",
                 {noise(72, 10)},
                 [=](const Tensors& t) {
                   return inner(noise(72, 11), reference("rope", turn, {{turned, t[0]}, positions}, {turned})[0]);
                 },
                 [=](const Tensors&) {
                   return reference("rope", back, {{turned, noise(72, 11)}, positions}, {turned});
                 }});
  const Box table{{2, 6}, {0, 5}};
  const Given ids{rows, {}, {3, 0, 5, 3, 6, 2}};
  all.push_back({"embedding",
                 {noise(20, 12)},
                 [=](const Tensors& t) {
                   return inner(dy, reference("embedding", {}, {ids, {table, t[0]}}, {x})[0]);
                 },
                 [=](const Tensors&) {
                   return reference("embedding_grad", {}, {ids, {table}, {x, dy}}, {table});
                 }});
  const Given targets{rows, {}, {4, 0, -1, 2, 1, 4}};
  const auto statistics = [=](const Tensors& t) {
    const auto most = reference("vocab_max", {}, {{x, t[0]}}, {rows})[0];
    return Tensors{most, reference("sum_exp", {}, {{x, t[0]}, {rows, most}}, {rows})[0],
                   reference("pick", {}, {{x, t[0]}, targets}, {rows})[0]};
  };
  all.push_back(
      {"cross entropy",
       {noise(30, 13)},
       [=](const Tensors& t) {
         const Tensors s = statistics(t);
         return 0.7 * reference("nll", {}, {{rows, s[0]}, {rows, s[1]}, {rows, s[2]}, targets}, {Box{}})[0][0];
       },
       [=](const Tensors& t) {
         const Tensors s = statistics(t);
         return reference("cross_entropy_grad", {}, {{x, t[0]}, {rows, s[0]}, {rows, s[1]}, targets, {Box{}, {0.7}}},
                          {x});
       }});
  return all;
}

// Two groups of three queries a key, permuted positions, two segments; the first query sees no key.
Differentiable differentiable_attention() {
  const Box q = box({1, 4, 2, 3, 2}), kv = box({1, 5, 2, 2}), lse = box({1, 4, 2, 3});
  const std::vector<double> dout = noise(48, 1);
  const auto operands = [=](const Tensors& t) {
    return std::vector<Given>{{q, t[0]},
                              {kv, t[1]},
                              {kv, t[2]},
                              {box({1, 4}), {}, {0, 6, 2, 9}},
                              {box({1, 5}), {}, {4, 1, 2, 8, 3}},
                              {box({1, 4}), {}, {0, 0, 0, 1}},
                              {box({1, 5}), {}, {0, 0, 0, 1, 1}}};
  };
  return {"attention",
          {noise(48, 2), noise(20, 3), noise(20, 4)},
          [=](const Tensors& t) {
            return inner(dout, reference("attention", {}, operands(t), {q, lse})[0]);
          },
          [=](const Tensors& t) {
            const auto forward = reference("attention", {}, operands(t), {q, lse});
            std::vector<Given> backward = operands(t);
            backward.insert(backward.end(), {{q, forward[0]}, {lse, forward[1]}, {q, dout}});
            return reference("attention_grad", {}, backward, {q, kv, kv});
          }};
}

TEST(ReferenceKernels, GradientsAgreeWithFiniteDifferences) {
  constexpr double kStep = 1e-5;
  std::vector<Differentiable> all = differentiables();
  all.push_back(differentiable_attention());
  for (const Differentiable& function : all) {
    SCOPED_TRACE(function.name);

    const Tensors gradient = function.gradient(function.at);

    ASSERT_EQ(gradient.size(), function.at.size());
    for (std::size_t t = 0; t < gradient.size(); ++t) {
      ASSERT_EQ(gradient[t].size(), function.at[t].size());
      for (std::size_t i = 0; i < gradient[t].size(); ++i) {
        Tensors ahead = function.at, behind = function.at;
        ahead[t][i] += kStep;
        behind[t][i] -= kStep;
        const double slope = (function.value(ahead) - function.value(behind)) / (2 * kStep);
        EXPECT_NEAR(gradient[t][i], slope, 1e-8 * (1 + std::abs(slope))) << "tensor " << t << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hspmd
