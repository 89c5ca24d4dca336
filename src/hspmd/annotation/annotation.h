// Annotation: the layout of one tensor over a union of device groups.
//
//   top S0 w3:1 {0,3: S1x2 | 5:}      a 4x6 tensor
//     rows [0,3) go to subgroup {0,3}, row 3 to subgroup {5}           the top tier cuts first
//     device 0 holds [0,3)x[0,3), device 3 [0,3)x[3,6), device 5 [3,4)x[0,6)
//
// Meaning. Inside a subgroup the value at an index is the sum (or max) over its addends. Across subgroups:
//   Split      the subgroup whose part holds the index
//   Duplicate  every subgroup has the value
//   Partial    the sum (or max) over subgroups
//
// A device at position p of its subgroup has the coordinates of p in mixed radix over the axes, the first
// axis slowest. Axes cut in order, each what the one before left. The cut of n elements with weights w:
//   part i = [floor(n*W(i)/W), floor(n*W(i+1)/W)), W the prefix sums          10 over 4 is 2,3,2,3
//
// Values are valid and canonical by construction: no axis of degree 1; neighbouring Duplicate axes merge, and
// neighbouring Partial ones (Split axes never: S0x2 S0x3 cuts otherwise than S0x6); weights are divided by
// their gcd and dropped when equal; one subgroup has no top. So == is structural.
// Source: HSPMD (Hetu v2), section 4; DG, DS, HSize and HDim are devices, axes, subgroups().size() and top().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hspmd/base/box.h"

namespace hspmd {

using Device = int;  // a logical id, 0..N-1

enum class Reduction { kSum, kMax };

struct Split {
  int dim = 0;
  friend bool operator==(const Split&, const Split&) = default;
};
struct Duplicate {
  friend bool operator==(const Duplicate&, const Duplicate&) = default;
};
struct Partial {
  Reduction op = Reduction::kSum;
  friend bool operator==(const Partial&, const Partial&) = default;
};
using Placement = std::variant<Split, Duplicate, Partial>;

[[nodiscard]] inline bool is_split(const Placement& p) {
  return std::holds_alternative<Split>(p);
}
[[nodiscard]] inline bool is_duplicate(const Placement& p) {
  return std::holds_alternative<Duplicate>(p);
}
[[nodiscard]] inline bool is_partial(const Placement& p) {
  return std::holds_alternative<Partial>(p);
}

using Weights = std::vector<std::int64_t>;  // one a part, none negative, not all 0; empty: all equal

// Part `index` of n elements cut in `parts` by `weights`.
[[nodiscard]] Interval cut(std::int64_t n, int index, int parts, const Weights& weights);

// One factor of a subgroup's device grid.
struct Axis {
  Placement placement;
  int degree = 1;
  Weights weights = {};
  friend bool operator==(const Axis&, const Axis&) = default;
};

// A device group with its sharding: the bottom tier.
class Subgroup {
 public:
  Subgroup(std::vector<Device> devices, std::vector<Axis> axes);

  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  // Number of addends: the product of the degrees of the Partial axes.
  [[nodiscard]] int addends() const;

  friend bool operator==(const Subgroup&, const Subgroup&) = default;

 private:
  std::vector<Device> devices_;
  std::vector<Axis> axes_;
};

// How the subgroups relate: the top tier.
struct Top {
  Placement placement;
  Weights weights = {};
  friend bool operator==(const Top&, const Top&) = default;
};

class Annotation {
 public:
  explicit Annotation(Subgroup only);
  Annotation(std::vector<Subgroup> subgroups, std::optional<Top> top);

  [[nodiscard]] const std::vector<Subgroup>& subgroups() const { return subgroups_; }
  [[nodiscard]] const std::optional<Top>& top() const { return top_; }

  friend bool operator==(const Annotation&, const Annotation&) = default;

 private:
  std::vector<Subgroup> subgroups_;
  std::optional<Top> top_;
};

// Why these parts make no Annotation; nullopt when they do. The constructors throw this text as InvalidArgument.
[[nodiscard]] std::optional<std::string> why_invalid(const std::vector<Device>& devices, const std::vector<Axis>& axes);
[[nodiscard]] std::optional<std::string> why_invalid(const std::vector<Subgroup>& subgroups,
                                                     const std::optional<Top>& top);

// What one device holds: `addend` counts inside the subgroup, in mixed radix over its Partial axes.
struct Shard {
  Box box;
  int subgroup = 0;
  int addend = 0;
  friend bool operator==(const Shard&, const Shard&) = default;
};

// The single truth of who holds what. nullopt when the device holds no part of the tensor (it is in no
// subgroup); a device whose part is empty holds an empty box.
// Throws InvalidArgument when the annotation splits a dim that the shape lacks.
[[nodiscard]] std::optional<Shard> owned(const Annotation& annotation, Device device, const Shape& shape);

// The shard at a position of a subgroup: `owned` for one who knows where the device stands.
[[nodiscard]] Shard shard_at(const Annotation& annotation, int subgroup, int position, const Shape& shape);

// All devices, subgroup by subgroup, in their order.
[[nodiscard]] std::vector<Device> devices_of(const Annotation& annotation);
[[nodiscard]] bool holds(const Annotation& annotation, Device device);
// The index of the subgroup that holds the device.
[[nodiscard]] std::optional<int> subgroup_of(const Annotation& annotation, Device device);

// The reduction of the annotation's Partial tiers; nullopt when there is none.
[[nodiscard]] std::optional<Reduction> reduction_of(const Annotation& annotation);

// Does every device hold the same shard under both? Structural equality implies it.
[[nodiscard]] bool same_layout(const Annotation& a, const Annotation& b, const Shape& shape);

// The smallest rank a tensor must have to be laid out so.
[[nodiscard]] int least_rank(const Annotation& annotation);

// Subgroup k alone: the layout that its pipeline sees.
[[nodiscard]] Annotation project(const Annotation& annotation, int subgroup);

// The text form:
//   annotation = group-list | "top" placement ["w" weights] group-list
//   group-list = "{" subgroup { "|" subgroup } "}"          subgroup = devices ":" { axis }
//   devices    = range { "," range }   range = int ["-" int]        axis = placement "x" degree ["w" weights]
//   placement  = "S" dim | "D" | "P" | "Pmax"                        weights = int { ":" int }
// parse(to_string(a)) == a. parse throws InvalidArgument with the column and what was expected there.
[[nodiscard]] std::string to_string(const Placement& placement);
[[nodiscard]] std::string to_string(const Axis& axis);
[[nodiscard]] std::string to_string(const Subgroup& subgroup);
[[nodiscard]] std::string to_string(const Annotation& annotation);
[[nodiscard]] Annotation parse_annotation(std::string_view text);

}  // namespace hspmd
