// The operators: each function adds one node to a graph. One file an operator: its shape rule, sharding rule,
// gradient and cost. docs/operators.md says how to add one.
//
// Letters: b sequences, s query positions, t key positions, h hidden, k KV heads, g query heads a KV head, d head
// dim, f feed-forward, v vocabulary. "ids" are int32, all else is of the run's precision.
#pragma once

#include <string>
#include <vector>

#include "hspmd/graph/graph.h"

namespace hspmd::ops {

// Any two-operand contraction: dot(g, "bsh,fh->bsf", x, w). Every factor stands in at least two of the three.
ValueId dot(Graph& graph, const std::string& factors, ValueId a, ValueId b);

// Element-wise.
ValueId add(Graph& graph, std::vector<ValueId> terms);  // jointly linear: all Partial, or none
ValueId mul(Graph& graph, ValueId a, ValueId b);
ValueId silu_mul(Graph& graph, ValueId gate, ValueId up);  // silu(gate) * up
ValueId tanh(Graph& graph, ValueId x);
ValueId add_bias(Graph& graph, ValueId x, ValueId bias);  // bias along the last dim
ValueId scale(Graph& graph, ValueId x, double factor);

// x / sqrt(mean(x^2 over the last dim) + eps) * weight.
ValueId rms_norm(Graph& graph, ValueId x, ValueId weight, double eps);

// Rows of table [v,h] by ids [b,s]; a masked look-up, so that a split vocabulary gives Partial. Ids outside
// [0, v) give zeros.
ValueId embedding(Graph& graph, ValueId ids, ValueId table);

// Rotary position embedding (Hugging Face's half-split form) on [b,s,...,d] by positions [b,s].
struct RopeScaling {  // Llama 3; factor 1: none
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position = 8192;
};
ValueId rope(Graph& graph, ValueId x, ValueId positions, double theta, const RopeScaling& scaling);

// Causal attention with grouped heads: query [b,s,k,g,d], key and value [b,t,k,d] -> [b,s,k,g,d]. A query sees a key
// if their segments are equal and the key's position is not later. A query that sees no key gives zeros.
struct Visibility {
  ValueId query_positions, key_positions, query_segments, key_segments;
};
ValueId attention(Graph& graph, ValueId query, ValueId key, ValueId value, const Visibility& visibility);

// Cross entropy, summed over the targets that are not negative; the vocabulary may be split. Adds the Reshards
// PREFIX.max, PREFIX.sum, PREFIX.target. logits [b,s,v], targets [b,s] -> scalar.
ValueId cross_entropy(Graph& graph, const std::string& prefix, ValueId logits, ValueId targets);
// The number of targets that are not negative -> scalar.
ValueId count_tokens(Graph& graph, ValueId targets);
// sum((prediction - target)^2) -> scalar.
ValueId squared_error(Graph& graph, ValueId prediction, ValueId target);

ValueId sumsq(Graph& graph, ValueId x);       // sum of squares -> scalar
ValueId accumulate(Graph& graph, ValueId x);  // the sum over the micro-batches of a step

// AdamW with decoupled decay and clipping by the global norm; returns the new master weights, m and v.
// gradient = sum / count * min(1, clip_norm / (sqrt(sumsq) / count + 1e-6)); clip_norm 0: no clipping.
// step_inputs: a vector of 3 fed each step: learning rate, 1 - beta1^t, 1 - beta2^t.
struct AdamWAttributes {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, clip_norm = 0;
};
struct AdamWOperands {
  ValueId master, m, v, gradient_sum, gradient_sumsq, count, step_inputs;
};
struct AdamWResults {
  ValueId master, m, v;
};
AdamWResults adamw(Graph& graph, const AdamWOperands& operands, const AdamWAttributes& attributes);

// All operators that have a kernel, gradients included: for tables in tests and docs.
[[nodiscard]] std::vector<const Operator*> all();
[[nodiscard]] const Operator* find(std::string_view name);

}  // namespace hspmd::ops
