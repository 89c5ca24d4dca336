// Fuzzing of everything that reads text from outside: any input gives a value or InvalidArgument, never a crash, and a
// value prints and reads back as itself. One program a reader; HSPMD_FUZZ_READER names it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "hspmd/annotation/annotation.h"
#include "hspmd/cluster/cluster.h"
#include "hspmd/comm/explain.h"
#include "hspmd/config/config_node.h"
#include "hspmd/models/llama_config.h"
#include "hspmd/schedule/schedule.h"
#include "hspmd/specialize/strategy_file.h"

namespace {

using namespace hspmd;

void require(bool holds) {
  if (!holds) std::abort();
}

[[maybe_unused]] void fuzz_annotation(const std::string& text) {
  const Annotation annotation = parse_annotation(text);
  require(parse_annotation(to_string(annotation)) == annotation);
}

[[maybe_unused]] void fuzz_cluster(const std::string& text) {
  const Cluster cluster = parse_cluster(text, "cluster");
  require(parse_cluster(to_string(cluster), "printed") == cluster);
}

[[maybe_unused]] void fuzz_config(const std::string& text) {
  ConfigNode root = parse_config(text, "file");
  apply_override(root, "a.b", text);
}

[[maybe_unused]] void fuzz_schedule(const std::string& text) {
  const Actions list = parse_actions(text);
  require(parse_actions(to_string(list)) == list);
}

[[maybe_unused]] void fuzz_strategy(const std::string& text) {
  const Strategy strategy = read_strategy(parse_config(text, "strategy"));
  if (problems(strategy, 4).empty()) require(read_strategy(parse_config(to_yaml(strategy), "printed")) == strategy);
}

[[maybe_unused]] void fuzz_explain(const std::string& text) {
  const ExplainRequest request = parse_explain_request(text);
  (void)to_string(request.from);
}

[[maybe_unused]] void fuzz_llama(const std::string& text) {
  (void)read_llama_config(parse_config(text, "config.json"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    HSPMD_FUZZ_READER(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const hspmd::InvalidArgument&) {
  }
  return 0;
}
