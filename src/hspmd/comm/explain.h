// `hspmd explain`: a resolution as moves; the JSON line is described in docs/formats.md.
#pragma once

#include <string>

#include "hspmd/comm/comm_plan.h"

namespace hspmd {

[[nodiscard]] std::string explain_json(const CommPlan& plan);
[[nodiscard]] std::string explain_text(const CommPlan& plan);

struct ExplainRequest {
  Annotation from;
  Annotation to;
  Shape shape;
};
// Reads {"from":"..","to":"..","shape":[10,6]}. Throws InvalidArgument.
[[nodiscard]] ExplainRequest parse_explain_request(const std::string& line);
// {"error":".."}
[[nodiscard]] std::string explain_error(const std::string& message);

}  // namespace hspmd
