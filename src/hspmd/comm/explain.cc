#include "hspmd/comm/explain.h"

#include <nlohmann/json.hpp>

namespace hspmd {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Move& move) {
  Json box = Json::array();
  for (const Interval& interval : move.box) box.push_back({interval.begin, interval.end});
  return {{"box", std::move(box)}, {"sources", move.sources}, {"destinations", move.destinations}};
}

Json to_json(const CommStage& stage) {
  Json json;
  if (stage.from) json["from"] = to_string(*stage.from);
  if (stage.to) json["to"] = to_string(*stage.to);
  json["groups"] = Json::array();
  for (const CommGroup& group : stage.groups) {
    Json moves = Json::array();
    for (const Move& move : group.moves) moves.push_back(to_json(move));
    json["groups"].push_back(
        {{"kind", to_string(group.kind)}, {"participants", group.participants}, {"moves", std::move(moves)}});
  }
  return json;
}

std::string head(const std::string& text) {
  constexpr std::size_t kShown = 120;
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

std::int64_t dim_of(const nlohmann::json& value) {
  constexpr std::int64_t kMaxDim = std::int64_t{1} << 40;
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > kMaxDim) {
    invalid("[explain] a dim of \"shape\" must be an integer from 0 to 2^40. Received {}.",
            head(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }
  return value.get<std::int64_t>();
}

}  // namespace

std::string explain_json(const CommPlan& plan) {
  Json json;
  json["stages"] = Json::array();
  for (const CommStage& stage : plan.stages) json["stages"].push_back(to_json(stage));
  json["bytes"] = plan.bytes;
  json["lower_bound_bytes"] = plan.lower_bound_bytes;
  json["send_bytes"] = Json::object();
  for (const auto& [device, bytes] : plan.send_bytes) json["send_bytes"][std::to_string(device)] = bytes;
  json["finish_s"] = plan.finish_s;
  json["finish_bound_s"] = plan.finish_bound_s;
  return json.dump();
}

std::string explain_text(const CommPlan& plan) {
  return to_string(plan) + fmt::format("bytes {} (at least {})\nfinish {:.3g} s (at least {:.3g} s)\n", plan.bytes,
                                       plan.lower_bound_bytes, plan.finish_s, plan.finish_bound_s);
}

ExplainRequest parse_explain_request(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) invalid("[explain] a line must be a JSON object with from, to and shape");
  const auto text = [&](const char* key) {
    if (!json.contains(key) || !json[key].is_string()) invalid("[explain] \"{}\" must be an annotation's text", key);
    return json[key].get<std::string>();
  };
  if (!json.contains("shape") || !json["shape"].is_array()) invalid("[explain] \"shape\" must be a list of dims");
  for (const auto& [key, value] : json.items()) {
    if (key != "from" && key != "to" && key != "shape")
      invalid("[explain] \"{}\" is not known; known are from, to, shape", head(key));
  }
  Shape shape;
  for (const auto& value : json["shape"]) shape.push_back(dim_of(value));
  (void)volume(shape);
  return {parse_annotation(text("from")), parse_annotation(text("to")), shape};
}

std::string explain_error(const std::string& message) {
  return Json({{"error", message}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hspmd
