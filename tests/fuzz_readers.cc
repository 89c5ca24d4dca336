// Fuzzing of everything that reads text from outside: any input gives a value or InvalidArgument, never a crash, and a
// value prints and reads back as itself. One program a reader; HSPMD_FUZZ_READER names it.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "hspmd/annotation/annotation.h"
#include "hspmd/cluster/cluster.h"
#include "hspmd/comm/explain.h"
#include "hspmd/config/config_node.h"
#include "hspmd/data/tokens.h"
#include "hspmd/models/llama_config.h"
#include "hspmd/schedule/schedule.h"
#include "hspmd/specialize/strategy_file.h"
#include "hspmd/train/config.h"

namespace {

using namespace hspmd;

void require(bool holds) {
  if (!holds) std::abort();
}

// JSON, which plans and strategies print as, has no other text.
bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
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
  if (problems(strategy, 4).empty() && is_utf8(text))
    require(read_strategy(parse_config(to_json(strategy), "printed")) == strategy);
}

[[maybe_unused]] void fuzz_plan(const std::string& text) {
  const PlanFile file = parse_plan(text, "plan");
  const bool prints = !file.strategy || problems(*file.strategy, 4).empty();
  if (prints && is_utf8(text)) require(parse_plan(to_json(file.plan, file.strategy), "printed").plan == file.plan);
}

[[maybe_unused]] void fuzz_run(const std::string& text) {
  const TrainConfig config = read_train_config(parse_config(text, "tests/seeds/run.yaml"));
  require(problems(strategy_of(config), config.model.layers).empty());
}

// A .bin gives its tokens or is refused; the vocabulary is the first two bytes.
[[maybe_unused]] void fuzz_tokens(const std::string& text) {
  static const std::string path =
      std::filesystem::temp_directory_path() / ("hspmd_fuzz_" + std::to_string(getpid()) + ".bin");
  if (text.size() < 2) return;
  const auto number = [&](std::size_t at) {
    return static_cast<unsigned char>(text[at]) + 256 * static_cast<unsigned char>(text[at + 1]);
  };
  std::ofstream(path, std::ios::binary).write(text.data() + 2, static_cast<std::streamsize>(text.size()) - 2);
  const Tokens tokens = Tokens::load({path}, number(0));
  require(2 * static_cast<std::size_t>(tokens.size()) == text.size() - 2);
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    require(tokens.at(i) == number(2 + 2 * static_cast<std::size_t>(i)) && tokens.at(i) < number(0));
  }
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
