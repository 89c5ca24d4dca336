#include <algorithm>

#include "hspmd/graph/sums.h"
#include "hspmd/ops/operators.h"
#include "hspmd/ops/ops.h"

namespace hspmd::ops {

std::vector<const Operator*> all() {
  return {
      &accumulate_operator(),
      &adamw_operator(),
      &add_operator(),
      &add_bias_operator(),
      &attention_grad_operator(),
      &attention_operator(),
      &bias_grad_operator(),
      &count_tokens_operator(),
      &cross_entropy_grad_operator(),
      &dot_operator(),
      &embedding_grad_operator(),
      &embedding_operator(),
      &mul_operator(),
      &nll_operator(),
      &pick_operator(),
      &rms_norm_grad_operator(),
      &rms_norm_operator(),
      &rope_operator(),
      &scale_operator(),
      &silu_mul_grad_operator(),
      &silu_mul_operator(),
      &squared_error_grad_operator(),
      &squared_error_operator(),
      &sum_exp_operator(),
      &sumsq_operator(),
      &tanh_grad_operator(),
      &tanh_operator(),
      &vocab_max_operator(),
  };
}

const Operator* find(std::string_view name) {
  const auto operators = all();
  const auto found =
      std::find_if(operators.begin(), operators.end(), [&](const Operator* op) { return op->name() == name; });
  return found == operators.end() ? nullptr : *found;
}

ValueId add(Graph& graph, std::vector<ValueId> terms) {
  return graph.compute(add_operator(), std::move(terms)).front();
}
ValueId accumulate(Graph& graph, ValueId x) {
  return graph.compute(accumulate_operator(), {x}).front();
}

}  // namespace hspmd::ops
