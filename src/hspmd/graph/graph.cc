#include "hspmd/graph/graph.h"

namespace hspmd {
namespace {

std::string describe(const Node& node) {
  if (const auto* leaf = std::get_if<Leaf>(&node.what)) return leaf->name;
  if (const auto* reshard = std::get_if<Reshard>(&node.what)) return "reshard " + reshard->name;
  return std::string(std::get<Compute>(node.what).op->name());
}

}  // namespace

void Graph::claim_name(const std::string& name) {
  if (name.empty()) invalid("[graph] a leaf or Reshard must have a name");
  if (named_.contains(name)) invalid("[graph] names of leaves and Reshards must be unique; \"{}\" stands twice", name);
}

std::vector<ValueId> Graph::add(Node node, const std::vector<TensorType>& results) {
  const auto id = NodeId{static_cast<int>(nodes_.size())};
  for (const TensorType& type : results) {
    node.outputs.push_back(ValueId{static_cast<int>(values_.size())});
    values_.push_back({type, id});
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

ValueId Graph::leaf(Leaf leaf, TensorType type, Time time) {
  claim_name(leaf.name);
  const std::string name = leaf.name;
  Node node{std::move(leaf), {}, {}, time, phase_, origin_};
  const ValueId value = add(std::move(node), {type}).front();
  named_[name] = value;
  return value;
}

ValueId Graph::placeholder(const std::string& name, TensorType type) {
  return leaf({LeafKind::kPlaceholder, name}, type, Time::kMicroBatch);
}

ValueId Graph::step_input(const std::string& name, TensorType type) {
  return leaf({LeafKind::kPlaceholder, name}, type, Time::kStep);
}

ValueId Graph::parameter(const std::string& name, SymbolicShape shape, Initializer initial) {
  if (is_symbolic(shape))
    invalid("[graph] the parameter {} must have a shape of integers. Received {}.", name, to_string(shape));
  const ValueId master = leaf({LeafKind::kParameter, name + "/master", initial}, {shape, DType::kFloat}, Time::kStep);
  return reshard(name + ".gather", master);
}

ValueId Graph::state(const std::string& name, SymbolicShape shape, Time time) {
  return leaf({LeafKind::kState, name, Initializer::zeros()}, {shape, DType::kFloat}, time);
}

ValueId Graph::ones_like(ValueId like, const std::string& name) {
  Leaf ones{LeafKind::kConstant, name};
  ones.constant = 1;
  ones.like = like;
  return leaf(std::move(ones), value(like).type, producer(like).time);
}

ValueId Graph::reshard(const std::string& name, ValueId input) {
  return reshard_to(name, input, ByName{});
}

ValueId Graph::reshard_keep(const std::string& name, ValueId input) {
  const ValueId result = reshard(name, input);
  std::get<Reshard>(nodes_.back().what).keep = true;
  return result;
}

ValueId Graph::reshard_to(const std::string& name, ValueId input, ReshardTarget target) {
  claim_name(name);
  Node node{Reshard{name, false, std::move(target)}, {input}, {}, producer(input).time, phase_, origin_};
  const ValueId result = add(std::move(node), {value(input).type}).front();
  named_[name] = result;
  return result;
}

std::vector<ValueId> Graph::compute(const Operator& op, std::vector<ValueId> operands, Attributes attributes) {
  std::vector<TensorType> types;
  Time time = Time::kStep;
  for (const ValueId operand : operands) {
    types.push_back(value(operand).type);
    if (producer(operand).time == Time::kMicroBatch) time = Time::kMicroBatch;
  }
  const std::vector<TensorType> results = op.infer(attributes, types);
  if (op.accumulates()) time = Time::kStep;
  return add({Compute{&op, std::move(attributes)}, std::move(operands), {}, time, phase_, origin_}, results);
}

void Graph::enter(Phase phase, std::optional<NodeId> origin) {
  phase_ = phase;
  origin_ = origin;
}

std::string Graph::label(ValueId id) const {
  const Node& node = producer(id);
  if (const auto* leaf = std::get_if<Leaf>(&node.what)) return leaf->name;
  if (const auto* reshard = std::get_if<Reshard>(&node.what)) return reshard->name;
  return fmt::format("{}#{}", std::get<Compute>(node.what).op->name(), index(id));
}

std::optional<ValueId> Graph::find(const std::string& name) const {
  const auto found = named_.find(name);
  if (found == named_.end()) return std::nullopt;
  return found->second;
}

std::string to_string(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    std::string results;
    for (const ValueId id : node.outputs) {
      results += fmt::format("{}%{} {}", results.empty() ? "" : ", ", index(id), to_string(graph.value(id).type.shape));
    }
    std::string operands;
    for (const ValueId id : node.inputs) operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", index(id));
    text += fmt::format("{} = {}({}){}\n", results, describe(node), operands,
                        node.time == Time::kStep ? " once a step" : "");
  }
  return text;
}

}  // namespace hspmd
