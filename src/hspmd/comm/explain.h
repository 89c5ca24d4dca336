// `hspmd explain`: a resolution as moves. docs/formats.md describes the JSON line.
//
//   parse_explain_request(R"({"from":"{0-1: Px2}","to":"{0-1: Dx2}","shape":[10,6]})")
//   explain_text(resolve(...))    AllReduce of 0,1 ...
//   explain_json(resolve(...))    {"stages":[{"from":"{0-1: Px2}","to":"{0-1: Dx2}","groups":[...]}],"bytes":480,...}
//
// One line each, without its end. What a line means, tests check by running the moves.
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
// Throws InvalidArgument where the line is no JSON object, a key is missing or unknown, an annotation does not parse,
// or a dim of the shape is no integer from 0 on; it says which.
[[nodiscard]] ExplainRequest parse_explain_request(const std::string& line);
// {"error":".."}
[[nodiscard]] std::string explain_error(const std::string& message);

}  // namespace hspmd
