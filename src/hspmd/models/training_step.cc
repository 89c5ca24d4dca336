#include "hspmd/models/training_step.h"

#include "hspmd/graph/autodiff.h"

namespace hspmd {
namespace {

Role everywhere() {
  Role role;
  role.where = Where::kEverywhere;
  return role;
}

Role addends() {
  Role role = everywhere();
  role.addends = true;
  return role;
}

std::string tensor_name(const Graph& graph, ValueId leaf) {
  const std::string label = graph.label(leaf);
  return label.substr(0, label.rfind('/'));
}

// Sums that every device gets: each brings its part as an addend, then one all-reduce.
struct StepSums {
  ValueId loss;
  ValueId tokens;
};

StepSums sum_over_micro_batches(Graph& graph, const TrainableModel& model) {
  return {ops::accumulate(graph, model.loss), ops::accumulate(graph, model.tokens)};
}

StepSums share(Graph& graph, const StepSums& sums, ModelRoles& roles) {
  for (const char* name : {"loss", "tokens"}) roles.reshards[name] = everywhere();
  const StepSums shared{graph.reshard("loss", sums.loss), graph.reshard("tokens", sums.tokens)};
  graph.output("loss", shared.loss);
  graph.output("tokens", shared.tokens);
  return shared;
}

}  // namespace

void build_training_step(Graph& graph, const TrainableModel& model, const ops::AdamWAttributes& optimizer,
                         ModelRoles& roles) {
  const StepSums sums = sum_over_micro_batches(graph, model);
  const std::vector<LeafGradient> gradients = differentiate(graph, model.loss);

  const StepSums shared = share(graph, sums, roles);
  std::vector<ValueId> squares;
  squares.reserve(gradients.size());
  for (const LeafGradient& entry : gradients) squares.push_back(ops::sumsq(graph, entry.gradient));
  std::vector<ValueId> parts;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::string name = "grad_norm." + tensor_name(graph, gradients[i].leaf);
    roles.reshards[name] = addends();
    parts.push_back(graph.reshard(name, squares[i]));
  }
  roles.reshards["grad_norm"] = everywhere();
  const ValueId sumsq = graph.reshard("grad_norm", ops::add(graph, parts));
  graph.output("sumsq", sumsq);

  roles.tensors["optimizer"] = everywhere();
  const ValueId step_inputs = graph.step_input("optimizer", {{3}, DType::kFloat});
  for (const LeafGradient& entry : gradients) {
    const std::string name = tensor_name(graph, entry.leaf);
    const SymbolicShape shape = graph.value(entry.leaf).type.shape;
    const ValueId m = graph.state(name + "/m", shape);
    const ValueId v = graph.state(name + "/v", shape);
    ops::AdamWAttributes attributes = optimizer;
    if (shape.size() <= 1) attributes.weight_decay = 0;
    // Every device that holds the tensor has the scalars too: a Reshard from all devices to those.
    const auto local = [&](const char* what, ValueId scalar) {
      return graph.reshard_to(fmt::format("{}.{}", name, what), scalar, Beside{entry.leaf});
    };
    const auto updated = ops::adamw(graph,
                                    {entry.leaf, m, v, entry.gradient, local("sumsq", sumsq),
                                     local("tokens", shared.tokens), local("optimizer", step_inputs)},
                                    attributes);
    graph.update(entry.leaf, updated.master);
    graph.update(m, updated.m);
    graph.update(v, updated.v);
  }
}

void build_evaluation_step(Graph& graph, const TrainableModel& model, ModelRoles& roles) {
  const StepSums sums = sum_over_micro_batches(graph, model);
  graph.enter(Phase::kPost);
  (void)share(graph, sums, roles);
}

}  // namespace hspmd
