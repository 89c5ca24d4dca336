// The two operators that the graph itself needs to make gradients: the sum of several values, and the sum of one
// value over the micro-batches of a step.
#pragma once

#include "hspmd/graph/operator.h"

namespace hspmd {

[[nodiscard]] const Operator& add_operator();         // jointly linear, any number of operands of one shape
[[nodiscard]] const Operator& accumulate_operator();  // its result lives until the step ends

}  // namespace hspmd
