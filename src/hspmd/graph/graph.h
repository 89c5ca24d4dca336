// Graph: one program for one device. SSA values made by three kinds of node:
//
//   Leaf     placeholder (fed every micro-batch), parameter, optimizer state, constant
//   Reshard  a named point where the layout may change; what it changes to stands in the plan, not here
//   Compute  an operator
//
//   Graph g;
//   ValueId x = g.placeholder("x", {{kBatch, 16}, DType::kFloat});
//   ValueId w = g.parameter("w", {32, 16}, Initializer::normal(0.02));   // leaf w/master, Reshard w.gather
//   ValueId y = ops::dot(g, "bh,fh->bf", x, w);
//   ValueId z = g.reshard("hidden", y);
//
// Invariants: inputs stand before their node (the order of nodes is an order of execution); names of leaves and
// of Reshards are unique. Nodes that the backward pass adds remember the forward node they come from (origin).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "hspmd/graph/operator.h"

namespace hspmd {

enum class Time {
  kStep,        // once a step: sections Pre and Post
  kMicroBatch,  // once a micro-batch: sections Forward and Backward
};
enum class Phase { kForward, kBackward, kPost };

struct Initializer {
  enum class Kind { kZeros, kOnes, kNormal };
  Kind kind = Kind::kZeros;
  double deviation = 0;  // of kNormal
  [[nodiscard]] static Initializer zeros() { return {}; }
  [[nodiscard]] static Initializer ones() { return {Kind::kOnes, 0}; }
  [[nodiscard]] static Initializer normal(double deviation) { return {Kind::kNormal, deviation}; }
};

enum class LeafKind { kPlaceholder, kParameter, kState, kConstant };

struct Leaf {
  LeafKind kind = LeafKind::kPlaceholder;
  std::string name;                  // a parameter's is NAME/master, its states NAME/m and NAME/v
  Initializer initial = {};          // parameters and states
  double constant = 0;               // kConstant: every element
  std::optional<ValueId> like = {};  // kConstant: its layout is the dual of this value's
};

// Where a Reshard leads.
struct ByName {};   // as the plan says under the Reshard's name
struct IfNamed {};  // likewise, but where the plan does not name it nothing changes
struct BackTo {     // dual(layout of `tensor`): Partial read as Duplicate
  ValueId tensor;
  std::optional<NodeId> keep;  // a forward Reshard marked keep: the gradient stays Partial on axes where it went
};                             // Duplicate to Duplicate
struct Agreed {                // the layout all of `uses` have, if they agree; else
  std::vector<ValueId> uses;
  std::optional<ValueId> tensor;  // dual(layout of `tensor`), or without it the layout of the first use
};
struct Beside {  // copies on every device that holds `tensor`: scalars that its update reads
  ValueId tensor;
};
using ReshardTarget = std::variant<ByName, IfNamed, BackTo, Agreed, Beside>;

struct Reshard {
  std::string name;
  bool keep = false;
  ReshardTarget target = ByName{};
};

struct Compute {
  const Operator* op = nullptr;
  Attributes attributes;
};

struct Node {
  std::variant<Leaf, Reshard, Compute> what;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Time time = Time::kMicroBatch;  // of the results
  Phase phase = Phase::kForward;
  std::optional<NodeId> origin = {};  // the forward node that this one is the gradient of
};

struct Value {
  TensorType type;
  NodeId producer{};
};

// A leaf takes this value at the end of the step.
struct Update {
  ValueId leaf;
  ValueId value;
};

class Graph {
 public:
  ValueId placeholder(const std::string& name, TensorType type);
  // The leaf NAME/master and the once-a-step Reshard NAME.gather; returns what the Reshard gives.
  ValueId parameter(const std::string& name, SymbolicShape shape, Initializer initial);
  ValueId state(const std::string& name, SymbolicShape shape, Time time = Time::kStep);
  ValueId step_input(const std::string& name, TensorType type);  // a placeholder fed once a step
  ValueId ones_like(ValueId value, const std::string& name);     // laid out as the dual of `value`
  ValueId reshard(const std::string& name, ValueId input);       // as often as its input
  ValueId reshard_keep(const std::string& name, ValueId input);  // see BackTo::keep
  ValueId reshard_to(const std::string& name, ValueId input, ReshardTarget target);

  // Adds a node of an operator; returns its results. Throws InvalidArgument from the operator's rules.
  std::vector<ValueId> compute(const Operator& op, std::vector<ValueId> operands, Attributes attributes = {});

  // Nodes added from now on belong to this phase and, in the backward pass, come from `origin`.
  void enter(Phase phase, std::optional<NodeId> origin = std::nullopt);
  void update(ValueId leaf, ValueId value) { updates_.push_back({leaf, value}); }
  // A run reads this once-a-step value after every step, under this name.
  void output(const std::string& name, ValueId value) { outputs_.push_back({name, value}); }

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Update>& updates() const { return updates_; }
  [[nodiscard]] const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Node& producer(ValueId id) const { return node(value(id).producer); }
  [[nodiscard]] int value_count() const { return static_cast<int>(values_.size()); }
  // "model.layers.0.mlp.up_proj.weight/master", "head.input", "dot#17": for messages.
  [[nodiscard]] std::string label(ValueId id) const;
  // The value of the leaf or Reshard with this name.
  [[nodiscard]] std::optional<ValueId> find(const std::string& name) const;

 private:
  ValueId leaf(Leaf leaf, TensorType type, Time time);
  std::vector<ValueId> add(Node node, const std::vector<TensorType>& results);
  void claim_name(const std::string& name);

  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<Update> updates_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
  std::map<std::string, ValueId> named_;
  Phase phase_ = Phase::kForward;
  std::optional<NodeId> origin_;
};

// One line a node, for tests and people.
[[nodiscard]] std::string to_string(const Graph& graph);

}  // namespace hspmd
