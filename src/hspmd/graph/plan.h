// Plan: the annotation of every leaf and of every Reshard output. All other layouts are deduced.
//
//   plan.set_tensor("w", A)                 w/master and w.gather lie as A (ZeRO 0)
//   plan.set_tensor("w/master", B)          the leaf lies as B; w/m and w/v as w/master unless set
//   plan.set_reshard("hidden", C)
//
// Text form: `hspmd-plan/1` (specialize/strategy_file.h).
#pragma once

#include <deque>
#include <map>
#include <string>

#include "hspmd/annotation/annotation.h"

namespace hspmd {

class Plan {
 public:
  Plan() = default;
  Plan(const Plan& other);
  Plan& operator=(const Plan& other);
  Plan(Plan&&) = default;
  Plan& operator=(Plan&&) = default;
  ~Plan() = default;

  void set_tensor(const std::string& name, const Annotation& annotation);
  void set_reshard(const std::string& name, const Annotation& annotation);

  // The layout of a leaf by its name in the graph. nullptr when neither it nor what it falls back to is set.
  [[nodiscard]] const Annotation* leaf(const std::string& name) const;
  // The layout that the Reshard of this name leads to: reshards[name], or tensors[NAME] for NAME.gather.
  [[nodiscard]] const Annotation* reshard(const std::string& name) const;

  [[nodiscard]] const std::map<std::string, const Annotation*>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, const Annotation*>& reshards() const { return reshards_; }

  friend bool operator==(const Plan& a, const Plan& b);

 private:
  // Equal annotations set one after another share one copy: a plan names thousands of tensors, few layouts.
  const Annotation* intern(const Annotation& annotation);

  std::deque<Annotation> pool_;
  std::map<std::string, const Annotation*> tensors_;
  std::map<std::string, const Annotation*> reshards_;
};

}  // namespace hspmd
