// The operators themselves, for the registry and for gradients: one accessor a file.
#pragma once

#include "hspmd/graph/operator.h"

namespace hspmd::ops {

const Operator& adamw_operator();
const Operator& add_bias_operator();
const Operator& attention_grad_operator();
const Operator& attention_operator();
const Operator& bias_grad_operator();
const Operator& count_tokens_operator();
const Operator& cross_entropy_grad_operator();
const Operator& dot_operator();
const Operator& embedding_grad_operator();
const Operator& embedding_operator();
const Operator& mul_operator();
const Operator& nll_operator();
const Operator& pick_operator();
const Operator& rms_norm_grad_operator();
const Operator& rms_norm_operator();
const Operator& rope_operator();
const Operator& scale_operator();
const Operator& silu_mul_grad_operator();
const Operator& silu_mul_operator();
const Operator& squared_error_grad_operator();
const Operator& squared_error_operator();
const Operator& sum_exp_operator();
const Operator& sumsq_operator();
const Operator& tanh_grad_operator();
const Operator& tanh_operator();
const Operator& vocab_max_operator();

}  // namespace hspmd::ops
