// The deduction engine: the layouts of an operator's results from those of its operands and its sharding rule. One
// function serves the top tier and every bottom axis alike.
//
// First the operands are refined to common axes, by dividing Duplicate and Partial axes (never Split ones); their
// device lists must be equal in order. Then, axis by axis:
//
//   nobody splits        no Partial                                        -> Duplicate
//                        one Partial, linear there, the others Duplicate   -> Partial
//                        all Partial and the operator jointly linear       -> Partial
//   split on factor f    one factor, one weight list, f not unsplittable, every operand that has f split on it and
//                        every other Duplicate: f kept -> Split; f gone    -> Partial
//   anything else        a conflict
//
//   dot "bsk,kn->bsn", x {0-3: S2x2 Dx2}, w {0-3: S0x2 S1x2}  ->  {0-3: Px2 S2x2}
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "hspmd/annotation/annotation.h"
#include "hspmd/graph/operator.h"

namespace hspmd {

// Why operands do not fit, and layouts of all operands under which they would (none when nothing simple does).
struct Conflict {
  std::string reason;
  std::vector<Annotation> mended;
};

using Deduced = std::variant<std::vector<Annotation>, Conflict>;

[[nodiscard]] Deduced deduce(const ShardingRule& rule, std::span<const Annotation* const> operands);

// The axes of several subgroups over equal device lists, divided until their degrees agree: result[i][a] is axis a
// of subgroup i. nullopt when they do not align.
[[nodiscard]] std::optional<std::vector<std::vector<Axis>>> refine(std::span<const Subgroup* const> subgroups);

// Partial read as Duplicate, on both tiers.
[[nodiscard]] Annotation dual(const Annotation& annotation);

// dual(from), but Partial where `gradient` is and the forward Reshard went Duplicate (from) to Duplicate (to).
[[nodiscard]] Annotation dual_keeping(const Annotation& from, const Annotation& to, const Annotation& gradient);

}  // namespace hspmd
