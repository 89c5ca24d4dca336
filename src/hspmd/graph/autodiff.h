// Gradients, made on the graph; independent of any plan.
//
// Backward of a value with several uses: the gradients of the uses that agree in layout are added first (Partial
// too), else each is resharded to the value's dual; then one Reshard takes the sum to the dual of the forward
// Reshard's input. A once-a-step Reshard's gradient is accumulated over the micro-batches and synchronised in Post:
//
//   x -> [R] -> y -> two uses          dy1, dy2 -> [R.grad.0],[R.grad.1] agreed -> add -> [R.grad] back to x
//   w/master -> [w.gather] -> w        dw -> accumulate -> [w.sync] back to w/master
//
// Names added: NAME.grad for a Reshard NAME, PARAMETER.sync, and VALUE.use.I where several uses meet.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hspmd/graph/graph.h"

namespace hspmd {

struct LeafGradient {
  ValueId leaf;      // NAME/master
  ValueId gradient;  // synchronised, laid out as the dual of the leaf
};

// Adds the backward pass of a scalar to the graph. Gradients come in the order of the parameters. Leaves the graph
// in Phase::kPost.
// Throws InvalidArgument when the loss is no scalar or an operator on the way has no gradient.
[[nodiscard]] std::vector<LeafGradient> differentiate(Graph& graph, ValueId loss);

// What an operator's gradient() works with.
class GradientBuilder {
 public:
  GradientBuilder(Graph& graph, NodeId node, std::vector<std::optional<ValueId>> result_gradients,
                  const std::vector<bool>& reached, std::vector<std::vector<ValueId>>& contributions)
      : graph_(graph),
        node_(node),
        result_gradients_(std::move(result_gradients)),
        asked_(result_gradients_.size(), false),
        reached_(reached),
        contributions_(contributions) {}

  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] ValueId operand(int i) const { return graph_.node(node_).inputs[static_cast<std::size_t>(i)]; }
  [[nodiscard]] int operand_count() const { return static_cast<int>(graph_.node(node_).inputs.size()); }
  [[nodiscard]] ValueId result(int i) const { return graph_.node(node_).outputs[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const Attributes& attributes() const { return std::get<Compute>(graph_.node(node_).what).attributes; }
  // The gradient of result i; throws InternalError if nobody uses that result.
  [[nodiscard]] ValueId result_gradient(int i);
  // Throws InvalidArgument where the gradient of a used result was not asked for: it would be lost.
  void check_complete() const;
  // Does a parameter reach this value? If not, its gradient need not be made.
  [[nodiscard]] bool wants(ValueId value) const { return reached_[static_cast<std::size_t>(value)]; }
  // Says that `gradient` is (part of) the gradient of `value`.
  void contribute(ValueId value, ValueId gradient) {
    contributions_[static_cast<std::size_t>(value)].push_back(gradient);
  }

 private:
  Graph& graph_;
  NodeId node_;
  std::vector<std::optional<ValueId>> result_gradients_;
  std::vector<bool> asked_;  // for which of them
  const std::vector<bool>& reached_;
  std::vector<std::vector<ValueId>>& contributions_;
};

}  // namespace hspmd
