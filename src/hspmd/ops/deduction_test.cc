// The deduction table of every operator: layouts of its operands, and those of its results or the reason of the
// conflict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "hspmd/graph/deduce.h"
#include "hspmd/ops/ops.h"

namespace hspmd {
namespace {

using ::testing::HasSubstr;

// An operator on operands of these ranks.
struct Use {
  std::string op;
  std::vector<std::size_t> ranks;
  Attributes attributes = {};
};

ShardingRule rule_of(const Use& use) {
  std::vector<TensorType> types;
  for (const std::size_t rank : use.ranks) types.push_back({SymbolicShape(rank, Dim{std::int64_t{4}}), DType::kFloat});
  return ops::find(use.op)->rule(use.attributes, types);
}

// The results' layouts joined by "; ", or the reason of the conflict.
std::string deduced(const ShardingRule& rule, const std::vector<Annotation>& operands) {
  std::vector<const Annotation*> pointers;
  for (const Annotation& a : operands) pointers.push_back(&a);
  const Deduced result = deduce(rule, pointers);
  if (const auto* conflict = std::get_if<Conflict>(&result)) return conflict->reason;
  std::string text;
  for (const Annotation& a : std::get<0>(result)) text += (text.empty() ? "" : "; ") + to_string(a);
  return text;
}

Use dot(const char* factors, std::size_t a, std::size_t b) {
  return {"dot", {a, b}, {{"factors", std::string(factors)}}};
}

// Every operator once: for the laws.
const std::vector<Use>& every_operator() {
  static const std::vector<Use> uses = {
      {"accumulate", {3}},
      {"adamw", {2, 2, 2, 2, 0, 0, 1}},
      {"add", {3, 3, 3}},
      {"add_bias", {3, 1}},
      {"attention", {5, 4, 4, 2, 2, 2, 2}},
      {"attention_grad", {5, 4, 4, 2, 2, 2, 2, 5, 4, 5}},
      {"bias_grad", {1, 3}},
      {"count_tokens", {2}},
      {"cross_entropy_grad", {3, 2, 2, 2, 0}},
      dot("bsh,fh->bsf", 3, 2),
      {"embedding", {2, 2}},
      {"embedding_grad", {2, 2, 3}},
      {"mul", {3, 3}},
      {"nll", {2, 2, 2, 2}},
      {"pick", {3, 2}},
      {"rms_norm", {3, 1}},
      {"rms_norm_grad", {3, 1, 2, 3}},
      {"rope", {5, 2}},
      {"scale", {3}},
      {"silu_mul", {3, 3}},
      {"silu_mul_grad", {3, 3, 3}},
      {"squared_error", {3, 3}},
      {"squared_error_grad", {3, 3, 0}},
      {"sum_exp", {3, 2}},
      {"sumsq", {3}},
      {"tanh", {3}},
      {"tanh_grad", {3, 3}},
      {"vocab_max", {3}},
  };
  return uses;
}

// A layout over two devices, on either tier: by the same function, so with the same outcome.
using Tier = Annotation (*)(const Placement&, const Weights&);
Annotation below(const Placement& placement, const Weights& weights) {
  return Annotation(Subgroup({0, 1}, {{placement, 2, weights}}));
}
Annotation above(const Placement& placement, const Weights& weights) {
  return Annotation({Subgroup({0}, {}), Subgroup({1}, {})}, Top{placement, weights});
}
constexpr Tier kTiers[] = {below, above};

std::vector<Annotation> copies(const ShardingRule& rule, Tier tier) {
  return std::vector<Annotation>(rule.operands.size(), tier(Duplicate{}, {}));
}

std::string joined(const std::vector<Annotation>& annotations) {
  std::string text;
  for (const Annotation& a : annotations) text += (text.empty() ? "" : "; ") + to_string(a);
  return text;
}

std::set<char> factors_of(const ShardingRule& rule) {
  std::set<char> factors;
  for (const std::string& operand : rule.operands) factors.insert(operand.begin(), operand.end());
  return factors;
}

TEST(DeductionLaw, NamesEveryOperator) {
  std::set<std::string_view> named;
  for (const Use& use : every_operator()) named.insert(use.op);
  for (const Operator* op : ops::all()) EXPECT_TRUE(named.contains(op->name())) << op->name();
}

TEST(DeductionLaw, CopiesGiveCopies) {
  for (const Use& use : every_operator()) {
    for (const Tier tier : kTiers) {
      const ShardingRule rule = rule_of(use);

      const std::vector<Annotation> results(rule.results.size(), tier(Duplicate{}, {}));
      EXPECT_EQ(deduced(rule, copies(rule, tier)), joined(results)) << use.op;
    }
  }
}

// Split where the factor is kept, Partial where it is gone; unsplittable factors conflict; weights go along.
TEST(DeductionLaw, ASplitFactorIsKeptOrSummed) {
  for (const Use& use : every_operator()) {
    const ShardingRule rule = rule_of(use);
    for (const char factor : factors_of(rule)) {
      for (const Weights& weights : {Weights{}, Weights{3, 1}, Weights{0, 1}}) {
        for (const Tier tier : kTiers) {
          const auto lay = [&](const std::string& dims, const Placement& without) {
            const std::size_t dim = dims.find(factor);
            return dim == std::string::npos ? tier(without, {}) : tier(Split{static_cast<int>(dim)}, weights);
          };
          std::vector<Annotation> operands, results;
          for (const std::string& operand : rule.operands) operands.push_back(lay(operand, Duplicate{}));
          for (const std::string& result : rule.results) results.push_back(lay(result, Partial{rule.contraction}));

          const std::string received = deduced(rule, operands);

          if (rule.unsplittable.find(factor) == std::string::npos) {
            EXPECT_EQ(received, joined(results)) << use.op << " split on " << factor;
          } else {
            EXPECT_THAT(received, HasSubstr("may not be split")) << use.op << " split on " << factor;
          }
        }
      }
    }
  }
}

// One operand that has the factor and is not split on it: a conflict.
TEST(DeductionLaw, AllThatHaveAFactorAreSplitOnIt) {
  for (const Use& use : every_operator()) {
    const ShardingRule rule = rule_of(use);
    for (const char factor : factors_of(rule)) {
      if (rule.unsplittable.find(factor) != std::string::npos) continue;
      for (std::size_t odd = 0; odd < rule.operands.size(); ++odd) {
        std::vector<Annotation> operands = copies(rule, below);
        int split = 0;
        for (std::size_t i = 0; i < operands.size(); ++i) {
          const std::size_t dim = rule.operands[i].find(factor);
          if (dim == std::string::npos || i == odd) continue;
          operands[i] = below(Split{static_cast<int>(dim)}, {});
          ++split;
        }
        if (split == 0 || rule.operands[odd].find(factor) == std::string::npos) continue;

        EXPECT_THAT(deduced(rule, operands), HasSubstr("must be split on")) << use.op << " operand " << odd;
      }
    }
  }
}

// Which operands pass a Partial sum, each alone. A max passes through nothing.
TEST(DeductionLaw, PartialPassesWhereTheOperatorIsLinear) {
  const std::map<std::string, std::vector<int>> linear = {{"accumulate", {0}},
                                                          {"attention", {2}},
                                                          {"attention_grad", {9}},
                                                          {"bias_grad", {1}},
                                                          {"cross_entropy_grad", {4}},
                                                          {"dot", {0, 1}},
                                                          {"embedding", {1}},
                                                          {"embedding_grad", {2}},
                                                          {"mul", {0, 1}},
                                                          {"pick", {0}},
                                                          {"rms_norm", {1}},
                                                          {"rms_norm_grad", {3}},
                                                          {"rope", {0}},
                                                          {"scale", {0}},
                                                          {"silu_mul", {1}},
                                                          {"silu_mul_grad", {2}},
                                                          {"squared_error_grad", {2}},
                                                          {"tanh_grad", {1}}};
  const std::map<std::string, int> aside = {{"attention", 1}, {"rms_norm", 1}};  // results without the linear operand
  for (const Use& use : every_operator()) {
    const ShardingRule rule = rule_of(use);
    const auto found = linear.find(use.op);
    for (int i = 0; i < static_cast<int>(rule.operands.size()); ++i) {
      for (const Tier tier : kTiers) {
        std::vector<Annotation> operands = copies(rule, tier);
        operands[static_cast<std::size_t>(i)] = tier(Partial{}, {});
        std::vector<Annotation> results(rule.results.size(), tier(Partial{}, {}));
        if (aside.contains(use.op)) results[static_cast<std::size_t>(aside.at(use.op))] = tier(Duplicate{}, {});

        const std::string received = deduced(rule, operands);

        const bool passes =
            found != linear.end() && std::find(found->second.begin(), found->second.end(), i) != found->second.end();
        EXPECT_EQ(received == joined(results), passes) << use.op << " operand " << i << ": " << received;
        operands[static_cast<std::size_t>(i)] = tier(Partial{Reduction::kMax}, {});
        EXPECT_THAT(deduced(rule, operands), HasSubstr("max-Partial")) << use.op << " operand " << i;
      }
    }
  }
}

struct Row {
  Use use;
  std::vector<std::string> operands;
  std::string outcome;  // results, or part of the reason
};

void expect_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    std::vector<Annotation> operands;
    for (const std::string& text : row.operands) operands.push_back(parse_annotation(text));

    EXPECT_THAT(deduced(rule_of(row.use), operands), HasSubstr(row.outcome))
        << row.use.op << " of " << joined(operands);
  }
}

TEST(DeductionTable, Dot) {
  const Use up = dot("bsh,fh->bsf", 3, 2);
  const Use query = dot("bsh,kgdh->bskgd", 3, 4);
  const Use output = dot("bskgd,hkgd->bsh", 5, 4);
  expect_rows({
      {up, {"{0-2: Dx3}", "{0-2: S0x3w2:0:1}"}, "{0-2: S2x3w2:0:1}"},
      {up, {"{0-2: S2x3}", "{0-2: S1x3}"}, "{0-2: Px3}"},
      {up, {"{0-2: S2x3w1:1:2}", "{0-2: S1x3w1:2:1}"}, "by the same weights"},
      {up, {"{0-1: Px2}", "{0-1: Px2}"}, "not linear in it alone"},
      {up, {"{0-1: Px2}", "{0-1: S0x2}"}, "must be Duplicate"},
      {up, {"{0-1: S0x2}", "{0-1: S0x2}"}, "must be Duplicate"},
      {up, {"{0-1: Dx2}", "{0-1: S2x2}"}, "which it lacks"},
      {up, {"{0-5: S1x3 Px2}", "{0-5: Dx6}"}, "{0-5: S1x3 Px2}"},
      {up, {"{0-5: S1x3 Dx2}", "{0-5: Dx3 S0x2}"}, "{0-5: S1x3 S2x2}"},
      {up, {"{0-5: S1x3 Dx2}", "{0-5: Dx2 S0x3}"}, "grids that align"},
      {up, {"{0-1: Dx2}", "{1,0: Dx2}"}, "same devices in the same order"},
      {query, {"{0-5: Dx6}", "{0-5: S0x3 S1x2}"}, "{0-5: S2x3 S3x2}"},
      {output, {"{0-5: S2x3 S3x2}", "{0-5: S1x3 S2x2}"}, "{0-5: Px6}"},
      {output, {"top S0 w4:1 {0-1: S1x2 | 2:}", "top D {0-1: Dx2 | 2:}"}, "top S0 w4:1 {0-1: S1x2 | 2:}"},
      {up, {"top S0 {0: | 1:}", "top D {0: | 1:}"}, "top S0 {0: | 1:}"},
      {up, {"top S0 w2:1 {0: | 1:}", "top S0 w1:2 {0: | 1:}"}, "across the subgroups, operand 1 must be Duplicate"},
      {up, {"top S0 {0: | 1:}", "{0-1: Dx2}"}, "same number of subgroups"},
      {dot("bsf,bsh->fh", 3, 3), {"top S0 {0-1: S1x2 | 2:}", "top S0 {0-1: S1x2 | 2:}"}, "top P {0-1: Px2 | 2:}"},
  });
}

TEST(DeductionTable, AttentionKeepsKeysAndHeadsWhole) {
  const Use attention{"attention", {5, 4, 4, 2, 2, 2, 2}};
  const std::vector<std::string> copies_of_four(4, "{0-3: Dx4}");
  const auto with = [&](std::vector<std::string> operands, std::vector<std::string> ids) {
    operands.insert(operands.end(), ids.begin(), ids.end());
    return operands;
  };
  expect_rows({
      {attention, with({"{0-3: S2x4}", "{0-3: S2x4}", "{0-3: S2x4}"}, copies_of_four), "{0-3: S2x4}; {0-3: S2x4}"},
      {attention, with({"{0-3: S3x4}", "{0-3: Dx4}", "{0-3: Dx4}"}, copies_of_four), "{0-3: S3x4}; {0-3: S3x4}"},
      {attention, with({"{0-3: S2x2 S3x2}", "{0-3: S2x2 Dx2}", "{0-3: S2x2 Dx2}"}, copies_of_four),
       "{0-3: S2x2 S3x2}; {0-3: S2x2 S3x2}"},
      {attention,
       with({"{0-3: S1x4}", "{0-3: Dx4}", "{0-3: Dx4}"}, {"{0-3: S1x4}", "{0-3: Dx4}", "{0-3: S1x4}", "{0-3: Dx4}"}),
       "{0-3: S1x4}; {0-3: S1x4}"},
      {attention, with({"{0-3: S1x4}", "{0-3: Dx4}", "{0-3: Dx4}"}, copies_of_four),
       "operand 3 must be split on \"s\""},
      {attention,
       with({"{0-3: Dx4}", "{0-3: S1x4}", "{0-3: S1x4}"}, {"{0-3: Dx4}", "{0-3: S1x4}", "{0-3: Dx4}", "{0-3: S1x4}"}),
       "\"t\" may not be split"},
      {attention, with({"{0-3: S4x4}", "{0-3: S3x4}", "{0-3: S3x4}"}, copies_of_four), "\"d\" may not be split"},
      {attention, with({"{0-3: Dx4}", "{0-3: Dx4}", "{0-3: Px4}"}, copies_of_four), "{0-3: Px4}; {0-3: Dx4}"},
  });
}

// Keys and values are whole on every device of a context group, so that their gradients come out Partial there.
TEST(DeductionTable, AttentionGradientSumsOverQueries) {
  const std::string q = "{0-5: S1x3 S2x2}", kv = "{0-5: Dx3 S2x2}", qs = "{0-5: S1x3 Dx2}", ks = "{0-5: Dx6}";
  expect_rows({{{"attention_grad", {5, 4, 4, 2, 2, 2, 2, 5, 4, 5}},
                {q, kv, kv, qs, ks, qs, ks, q, q, q},
                "{0-5: S1x3 S2x2}; {0-5: Px3 S2x2}; {0-5: Px3 S2x2}"}});
}

TEST(DeductionTable, NormsAndRotations) {
  const Use norm{"rms_norm", {3, 1}};
  const Use norm_grad{"rms_norm_grad", {3, 1, 2, 3}};
  const Use rope{"rope", {5, 2}};
  expect_rows({
      {norm, {"{0-2: S1x3w1:0:2}", "{0-2: Dx3}"}, "{0-2: S1x3w1:0:2}; {0-2: S1x3w1:0:2}"},
      {norm, {"{0-2: S2x3}", "{0-2: S0x3}"}, "\"c\" may not be split"},
      {norm, {"{0-1: Dx2}", "{0-1: Px2}"}, "{0-1: Px2}; {0-1: Dx2}"},
      {norm, {"{0-1: Px2}", "{0-1: Dx2}"}, "operand 0 is Partial"},
      {norm_grad, {"{0-1: S1x2}", "{0-1: Dx2}", "{0-1: S1x2}", "{0-1: S1x2}"}, "{0-1: S1x2}; {0-1: Px2}"},
      {norm_grad, {"{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Px2}"}, "{0-1: Px2}; {0-1: Px2}"},
      {rope, {"{0-1: S1x2}", "{0-1: S1x2}"}, "{0-1: S1x2}"},
      {rope, {"{0-1: S2x2}", "{0-1: Dx2}"}, "{0-1: S2x2}"},
      {rope, {"{0-1: S4x2}", "{0-1: Dx2}"}, "\"d\" may not be split"},
      {{"rope", {4, 2}}, {"{0-1: S3x2}", "{0-1: Dx2}"}, "\"d\" may not be split"},
      {rope, {"{0-1: S1x2}", "{0-1: Dx2}"}, "operand 1 must be split on \"s\""},
  });
}

TEST(DeductionTable, ASplitVocabulary) {
  const Use embedding{"embedding", {2, 2}};
  const Use grad{"embedding_grad", {2, 2, 3}};
  expect_rows({
      {embedding, {"{0-1: Dx2}", "{0-1: S0x2w2:1}"}, "{0-1: Px2}"},
      {embedding, {"{0-1: Dx2}", "{0-1: S1x2}"}, "{0-1: S2x2}"},
      {embedding, {"top S0 {0-1: Dx2 | 2:}", "top D {0-1: S0x2 | 2:}"}, "top S0 {0-1: Px2 | 2:}"},
      {grad, {"{0-1: Dx2}", "{0-1: S0x2}", "{0-1: Dx2}"}, "{0-1: S0x2}"},
      {grad, {"{0-1: S1x2}", "{0-1: Dx2}", "{0-1: S1x2}"}, "{0-1: Px2}"},
      {grad, {"{0-1: Dx2}", "{0-1: S0x2}", "{0-1: Px2}"}, "operand 2 must be Duplicate"},
      {{"vocab_max", {3}}, {"{0-1: S2x2}"}, "{0-1: Pmaxx2}"},
      {{"vocab_max", {3}}, {"top S0 {0-1: S2x2 | 2:}"}, "top S0 {0-1: Pmaxx2 | 2:}"},
      {{"sum_exp", {3, 2}}, {"{0-1: S2x2}", "{0-1: Dx2}"}, "{0-1: Px2}"},
      {{"sum_exp", {3, 2}}, {"{0-1: S2x2}", "{0-1: Pmaxx2}"}, "operand 1 must be Duplicate"},
      {{"pick", {3, 2}}, {"{0-1: S2x2}", "{0-1: Dx2}"}, "{0-1: Px2}"},
      {{"nll", {2, 2, 2, 2}}, {"{0-1: S1x2}", "{0-1: S1x2}", "{0-1: S1x2}", "{0-1: S1x2}"}, "{0-1: Px2}"},
      {{"nll", {2, 2, 2, 2}}, {"{0-1: Dx2}", "{0-1: Px2}", "{0-1: Dx2}", "{0-1: Dx2}"}, "operand 1 is Partial"},
      {{"cross_entropy_grad", {3, 2, 2, 2, 0}},
       {"{0-1: S2x2}", "{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Dx2}"},
       "{0-1: S2x2}"},
      {{"count_tokens", {2}}, {"top S0 w3:1 {0-1: S1x2 | 2:}"}, "top P {0-1: Px2 | 2:}"},
  });
}

TEST(DeductionTable, ElementWiseAndSums) {
  const Use add{"add", {2, 2, 2}};
  expect_rows({
      {add, {"{0-1: Px2}", "{0-1: Px2}", "{0-1: Px2}"}, "{0-1: Px2}"},
      {add, {"{0-1: Px2}", "{0-1: Px2}", "{0-1: Dx2}"}, "either all operands must be Partial, or none"},
      {add, {"{0-5: Px6}", "{0-5: Px3 Px2}", "{0-5: Px2 Px3}"}, "{0-5: Px6}"},
      {add, {"{0-5: S0x2 Px3}", "{0-5: S0x2 Px3}", "{0-5: S0x2 Px3}"}, "{0-5: S0x2 Px3}"},
      {{"mul", {2, 2}}, {"{0-1: Px2}", "{0-1: Px2}"}, "not linear in it alone"},
      {{"silu_mul", {3, 3}}, {"{0-1: S2x2w1:3}", "{0-1: S2x2w1:3}"}, "{0-1: S2x2w1:3}"},
      {{"silu_mul", {3, 3}}, {"{0-1: Px2}", "{0-1: Dx2}"}, "operand 0 is Partial"},
      {{"silu_mul_grad", {3, 3, 3}}, {"{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Px2}"}, "{0-1: Px2}; {0-1: Px2}"},
      {{"tanh", {2}}, {"{0-1: Px2}"}, "operand 0 is Partial"},
      {{"add_bias", {3, 1}}, {"{0-1: S2x2}", "{0-1: S0x2}"}, "{0-1: S2x2}"},
      {{"add_bias", {3, 1}}, {"{0-1: S1x2}", "{0-1: Dx2}"}, "{0-1: S1x2}"},
      {{"add_bias", {3, 1}}, {"{0-1: Dx2}", "{0-1: Px2}"}, "operand 1 is Partial"},
      {{"bias_grad", {1, 3}}, {"{0-1: Dx2}", "{0-1: S1x2}"}, "{0-1: Px2}"},
      {{"scale", {1}}, {"{0-1: Px2}"}, "{0-1: Px2}"},
      {{"sumsq", {2}}, {"{0-5: S0x2 S1x3}"}, "{0-5: Px6}"},
      {{"sumsq", {2}}, {"{0-5: S0x2 Dx3}"}, "{0-5: Px2 Dx3}"},
      {{"sumsq", {2}}, {"{0-5: S0x2 Px3}"}, "operand 0 is Partial"},
      {{"accumulate", {2}}, {"top P {0-1: Px2 | 2:}"}, "top P {0-1: Px2 | 2:}"},
      {{"squared_error", {2, 2}}, {"{0-1: S1x2}", "{0-1: S1x2}"}, "{0-1: Px2}"},
      {{"adamw", {2, 2, 2, 2, 0, 0, 1}},
       {"{0-1: S0x2}", "{0-1: S0x2}", "{0-1: S0x2}", "{0-1: S0x2}", "{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Dx2}"},
       "{0-1: S0x2}; {0-1: S0x2}; {0-1: S0x2}"},
      {{"adamw", {2, 2, 2, 2, 0, 0, 1}},
       {"{0-1: S0x2}", "{0-1: S0x2}", "{0-1: S0x2}", "{0-1: Px2}", "{0-1: Dx2}", "{0-1: Dx2}", "{0-1: Dx2}"},
       "operand 3 must be split"},
  });
}

}  // namespace
}  // namespace hspmd
