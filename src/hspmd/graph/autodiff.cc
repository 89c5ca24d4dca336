#include "hspmd/graph/autodiff.h"

#include <algorithm>

#include "hspmd/graph/sums.h"

namespace hspmd {
namespace {

class Differentiator {
 public:
  Differentiator(Graph& graph, ValueId loss) : graph_(graph), loss_(loss) {
    if (!graph.value(loss).type.shape.empty()) {
      invalid("[graph] a loss must be a scalar. Received {} of shape {}.", graph.label(loss),
              to_string(graph.value(loss).type.shape));
    }
  }

  std::vector<LeafGradient> run() {
    find_reached();
    contributions_.resize(static_cast<std::size_t>(graph_.value_count()));
    const auto forward_nodes = static_cast<int>(graph_.nodes().size());
    graph_.enter(Phase::kBackward, graph_.value(loss_).producer);
    contributions_[static_cast<std::size_t>(loss_)].push_back(graph_.ones_like(loss_, "loss.seed"));
    for (int n = forward_nodes - 1; n >= 0; --n) back_through(NodeId{n});
    return synchronise(forward_nodes);
  }

 private:
  // Marks the values that a parameter reaches.
  void find_reached() {
    reached_.resize(static_cast<std::size_t>(graph_.value_count()), false);
    for (const Node& node : graph_.nodes()) {
      const auto* leaf = std::get_if<Leaf>(&node.what);
      bool reached = leaf != nullptr && leaf->kind == LeafKind::kParameter;
      for (const ValueId input : node.inputs) reached = reached || reached_[static_cast<std::size_t>(input)];
      for (const ValueId output : node.outputs) reached_[static_cast<std::size_t>(output)] = reached;
    }
  }

  void back_through(NodeId id) {
    const Node node = graph_.node(id);  // a copy: the graph grows
    if (node.outputs.empty() || !reached_[static_cast<std::size_t>(node.outputs.front())]) return;
    graph_.enter(Phase::kBackward, id);
    std::vector<std::optional<ValueId>> gradients;
    bool any = false;
    for (const ValueId output : node.outputs) {
      gradients.push_back(gradient_of(output));
      any = any || gradients.back().has_value();
    }
    if (!any || std::holds_alternative<Leaf>(node.what)) return;
    if (const auto* reshard = std::get_if<Reshard>(&node.what)) {
      back_through_reshard(id, node, *reshard, *gradients.front());
      return;
    }
    GradientBuilder builder(graph_, id, std::move(gradients), reached_, contributions_);
    std::get<Compute>(node.what).op->gradient(builder);
    builder.check_complete();
  }

  void back_through_reshard(NodeId id, const Node& node, const Reshard& reshard, ValueId gradient) {
    const ValueId input = node.inputs.front();
    if (node.time == Time::kStep) {  // summed over the micro-batches; the synchronisation follows in Post
      contribute(input, graph_.compute(accumulate_operator(), {gradient}).front());
      return;
    }
    BackTo target{input, std::nullopt};
    if (reshard.keep) target.keep = id;
    contribute(input, graph_.reshard_to(reshard.name + ".grad", gradient, target));
  }

  void contribute(ValueId value, ValueId gradient) {
    contributions_[static_cast<std::size_t>(value)].push_back(gradient);
  }

  // The sum of what its uses contributed. Leaves are summed later, in Post.
  std::optional<ValueId> gradient_of(ValueId value) {
    const std::vector<ValueId> uses = contributions_[static_cast<std::size_t>(value)];
    if (uses.empty() || std::holds_alternative<Leaf>(graph_.producer(value).what)) return std::nullopt;
    return sum(value, uses, value);
  }

  ValueId sum(ValueId value, const std::vector<ValueId>& uses, std::optional<ValueId> tensor) {
    if (uses.size() == 1) return uses.front();
    std::vector<ValueId> terms;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      terms.push_back(
          graph_.reshard_to(fmt::format("{}.use.{}", graph_.label(value), i), uses[i], Agreed{uses, tensor}));
    }
    return graph_.compute(add_operator(), std::move(terms)).front();
  }

  // All synchronisations stand in a row, so that they travel as one message between any two devices.
  std::vector<LeafGradient> synchronise(int forward_nodes) {
    graph_.enter(Phase::kPost);
    std::vector<LeafGradient> sums;
    for (int n = 0; n < forward_nodes; ++n) {
      const Node& node = graph_.node(NodeId{n});
      const auto* leaf = std::get_if<Leaf>(&node.what);
      if (leaf == nullptr || leaf->kind != LeafKind::kParameter) continue;
      const ValueId value = node.outputs.front();
      // In the order of the forward pass: the first use is the owner's own.
      std::vector<ValueId> uses = contributions_[static_cast<std::size_t>(value)];
      std::reverse(uses.begin(), uses.end());
      if (!uses.empty()) sums.push_back({value, sum(value, uses, std::nullopt)});
    }
    for (LeafGradient& entry : sums) {
      const std::string leaf = graph_.label(entry.leaf);
      const std::string name = leaf.substr(0, leaf.rfind('/')) + ".sync";
      entry.gradient = graph_.reshard_to(name, entry.gradient, BackTo{entry.leaf, std::nullopt});
    }
    return sums;
  }

  Graph& graph_;
  ValueId loss_;
  std::vector<bool> reached_;
  std::vector<std::vector<ValueId>> contributions_;
};

}  // namespace

std::vector<LeafGradient> differentiate(Graph& graph, ValueId loss) {
  return Differentiator(graph, loss).run();
}

ValueId GradientBuilder::result_gradient(int i) {
  const auto& gradient = result_gradients_[static_cast<std::size_t>(i)];
  check_internal(gradient.has_value(), "the gradient of a result is asked for only where that result is used");
  asked_[static_cast<std::size_t>(i)] = true;
  return *gradient;
}

void GradientBuilder::check_complete() const {
  for (std::size_t i = 0; i < result_gradients_.size(); ++i) {
    if (!result_gradients_[i] || asked_[i]) continue;
    invalid("[{}] has no gradient for its result {}; let no parameter reach the loss through it",
            std::get<Compute>(graph_.node(node_).what).op->name(), i);
  }
}

}  // namespace hspmd
