// Layouts: the annotation of every value of a graph under one plan, deduced when asked for and kept.
//
//   Layouts layouts(graph, plan);
//   layouts.of(value)      leaves and named Reshards from the plan, all else from the operators' rules
//
// A conflict is InvalidArgument: it names the operator, the tensors, their annotations and the Reshard that would
// mend it. A leaf or Reshard that the plan lacks is InvalidArgument too.
#pragma once

#include <deque>
#include <vector>

#include "hspmd/graph/deduce.h"
#include "hspmd/graph/graph.h"
#include "hspmd/graph/plan.h"

namespace hspmd {

class Layouts {
 public:
  // Keeps references: graph and plan must outlive it.
  Layouts(const Graph& graph, const Plan& plan);

  [[nodiscard]] const Annotation& of(ValueId value);
  // The annotation in the plan from which the devices of this value follow (compute operators never change devices):
  // cheap, for passing over what does not live on a device.
  [[nodiscard]] const Annotation& anchor(ValueId value);

 private:
  const Annotation& keep(ValueId value, Annotation annotation);
  const Annotation* from_plan(const Node& node) const;
  void deduce_leaf(ValueId value, const Leaf& leaf);
  void deduce_reshard(ValueId value, const Node& node, const Reshard& reshard);
  void deduce_compute(const Node& node, const Compute& compute);
  [[noreturn]] void fail(const Node& node, const Compute& compute, const Conflict& conflict);

  const Graph& graph_;
  const Plan& plan_;
  std::vector<const Annotation*> known_;   // by value
  std::vector<const Annotation*> anchor_;  // by value
  std::deque<Annotation> deduced_;
};

}  // namespace hspmd
