// The whole step around a model: gradients, their synchronisation, the global norm, AdamW. All of it is graph, so
// that layouts, communication and memory of it are deduced like everything else.
//
//   loss, tokens   summed over micro-batches, then [loss], [tokens] to all devices
//   gradients      summed, [PARAMETER.sync], then sumsq -> [grad_norm.PARAMETER] -> add -> [grad_norm]
//   AdamW          divides once by the step's number of real tokens, clips by the global norm
//
// Outputs of the graph: loss, tokens, sumsq. Step input: optimizer (learning rate, bias corrections).
#pragma once

#include "hspmd/graph/graph.h"
#include "hspmd/graph/roles.h"
#include "hspmd/ops/ops.h"

namespace hspmd {

struct TrainableModel {
  ValueId loss;    // a sum, once a micro-batch
  ValueId tokens;  // what it is to be divided by, once a micro-batch
};

// weight_decay of `optimizer` does not apply to norms and one-dimensional tensors. Adds the roles of all it adds.
void build_training_step(Graph& graph, const TrainableModel& model, const ops::AdamWAttributes& optimizer,
                         ModelRoles& roles);

// Without gradients: outputs loss and tokens alone, for evaluation.
void build_evaluation_step(Graph& graph, const TrainableModel& model, ModelRoles& roles);

}  // namespace hspmd
