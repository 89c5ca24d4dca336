// Shapes and fillings that kernels are tried on: every operator, odd sizes, empty shards, split vocabularies, segments,
// permuted positions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "hspmd/ops/ops.h"
#include "hspmd/runtime/kernels/given_values.h"

namespace hspmd {

enum class Fill { kNormal, kPositive, kPositions, kIds, kSegments, kTargets };

struct Case {
  const char* op;
  Attributes attributes;
  std::vector<Box> operands;
  std::vector<Fill> fills;  // kNormal where absent
  std::vector<Box> results;
};

inline bool is_integer(Fill fill) {
  return fill != Fill::kNormal && fill != Fill::kPositive;
}

template <typename T>
KernelRequest request_of(const Case& c, Write write) {
  constexpr Precision kPrecision = sizeof(T) == 8 ? Precision::kFp64 : Precision::kFp32;
  return {ops::find(c.op), &c.attributes, c.operands, c.results, kPrecision, write};
}

inline std::vector<Case> cases() {
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
      {"embedding", {}, {box({2, 5}), {{6, 6}, {0, 7}}}, {Fill::kIds}, {box({2, 5, 7})}},
      {"embedding", {}, {box({0, 5}), {{2, 6}, {0, 7}}}, {Fill::kIds}, {box({0, 5, 7})}},
      {"embedding_grad", {}, {box({2, 5}), {{6, 6}, {0, 7}}, box({2, 5, 7})}, {Fill::kIds}, {{{6, 6}, {0, 7}}}},
      {"embedding_grad", {}, {box({0, 5}), {{2, 6}, {0, 7}}, box({0, 5, 7})}, {Fill::kIds}, {{{2, 6}, {0, 7}}}},
      {"vocab_max", {}, {box({2, 3, 19})}, {}, {box({2, 3})}},
      {"vocab_max", {}, {box({2, 3, 0})}, {}, {box({2, 3})}},
      {"sum_exp", {}, {box({2, 3, 19}), box({2, 3})}, {}, {box({2, 3})}},
      {"cross_entropy_grad",
       {},
       {{{0, 2}, {0, 3}, {2, 7}}, box({2, 3}), box({2, 3}), box({2, 3}), Box{}},
       {Fill::kNormal, Fill::kNormal, Fill::kPositive, Fill::kTargets},
       {{{0, 2}, {0, 3}, {2, 7}}}},
      {"cross_entropy_grad",
       {},
       {box({2, 3, 0}), box({2, 3}), box({2, 3}), box({2, 3}), Box{}},
       {Fill::kNormal, Fill::kNormal, Fill::kPositive, Fill::kTargets},
       {box({2, 3, 0})}},
      {"sum_exp", {}, {box({2, 3, 0}), box({2, 3})}, {}, {box({2, 3})}},
      {"pick", {}, {{{0, 2}, {0, 3}, {2, 7}}, box({2, 3})}, {Fill::kNormal, Fill::kTargets}, {box({2, 3})}},
      {"pick", {}, {box({2, 3, 0}), box({2, 3})}, {Fill::kNormal, Fill::kTargets}, {box({2, 3})}},
      {"nll",
       {},
       {box({2, 11}), box({2, 11}), box({2, 11}), box({2, 11})},
       {Fill::kNormal, Fill::kPositive, Fill::kNormal, Fill::kTargets},
       {Box{}}},
      {"nll",
       {},
       {box({2, 0}), box({2, 0}), box({2, 0}), box({2, 0})},
       {Fill::kNormal, Fill::kPositive, Fill::kNormal, Fill::kTargets},
       {Box{}}},
      {"count_tokens", {}, {box({3, 13})}, {Fill::kTargets}, {Box{}}},
      {"count_tokens", {}, {box({3, 0})}, {Fill::kTargets}, {Box{}}},
      {"squared_error", {}, {box({3, 7}), box({3, 7})}, {}, {Box{}}},
      {"squared_error", {}, {box({0, 7}), box({0, 7})}, {}, {Box{}}},
      {"squared_error_grad", {}, {box({3, 7}), box({3, 7}), Box{}}, {}, {box({3, 7})}},
      {"tanh", {}, {box({3, 7})}, {}, {box({3, 7})}},
      {"tanh_grad", {}, {box({3, 7}), box({3, 7})}, {}, {box({3, 7})}},
      {"add_bias", {}, {box({2, 3, 7}), box({7})}, {}, {box({2, 3, 7})}},
      {"bias_grad", {}, {box({7}), box({2, 3, 7})}, {}, {box({7})}},
      {"bias_grad", {}, {box({7}), box({2, 0, 7})}, {}, {box({7})}},
      {"bias_grad", {}, {box({0}), box({2, 3, 0})}, {}, {box({0})}},
      {"sumsq", {}, {box({5, 37})}, {}, {Box{}}},
      {"sumsq", {}, {box({3, 100003})}, {}, {Box{}}},
      {"sumsq", {}, {box({0, 37})}, {}, {Box{}}},
      {"add", {}, {box({7}), box({7}), box({7})}, {}, {box({7})}},
      {"add", {}, {box({7})}, {}, {box({7})}},
      {"add", {}, {box({3, 0}), box({3, 0})}, {}, {box({3, 0})}},
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
                                                                {1, 0, 6, 1, 1, 4},
                                                                {2, 3, 0, 1, 2, 4},
                                                                {1, 523, 9, 1, 1, 2}}) {
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

}  // namespace hspmd
