#include "hspmd/specialize/plan_problems.h"

#include <map>
#include <optional>

#include "hspmd/config/config_node.h"

namespace hspmd {
namespace {

// What a plan may name, and whether activations lie so: then each pipeline has its subgroup.
using Names = std::map<std::string, Time, std::less<>>;

struct Known {
  Names tensors;
  Names reshards;
};

Known known_names(const Graph& graph) {
  Known known;
  for (const Node& node : graph.nodes()) {
    if (const auto* leaf = std::get_if<Leaf>(&node.what)) {
      if (leaf->like) continue;
      known.tensors[leaf->name] = node.time;
      const std::size_t slash = leaf->name.rfind('/');
      if (slash == std::string::npos) continue;
      known.tensors[leaf->name.substr(0, slash)] = node.time;
    } else if (const auto* reshard = std::get_if<Reshard>(&node.what)) {
      const bool named =
          std::holds_alternative<ByName>(reshard->target) || std::holds_alternative<IfNamed>(reshard->target);
      if (named) known.reshards[reshard->name] = node.time;
    }
  }
  return known;
}

class Finder {
 public:
  explicit Finder(const Strategy& strategy) : strategy_(strategy) {
    for (std::size_t p = 0; p < strategy.pipelines.size(); ++p) {
      for (const StageSpec& stage : strategy.pipelines[p].stages) {
        for (const Device d : stage.devices) pipeline_of_[d] = p;
      }
    }
  }

  void look(const std::string& section, const std::map<std::string, const Annotation*>& layouts, const Names& known) {
    for (const auto& [name, annotation] : layouts) {
      if (problems_.size() == kMostProblems) return;
      const std::string key = section + "." + name;
      const auto found = known.find(name);
      if (found == known.end()) {
        problems_.push_back(unknown(key, name, known));
      } else if (const auto& why = why_misplaced(annotation, found->second)) {
        problems_.push_back(fmt::format("{} must {}. Received {}", key, *why, to_string(*annotation)));
      }
    }
  }

  std::vector<std::string> take() { return std::move(problems_); }

 private:
  static constexpr std::size_t kMostProblems = 8;

  static std::string unknown(const std::string& key, const std::string& name, const Names& known) {
    std::vector<std::string_view> candidates;
    for (const auto& [candidate, time] : known) candidates.push_back(candidate);
    const auto near = nearest(name, candidates);
    return fmt::format("{} is not known{}", key,
                       near ? fmt::format("; the nearest known name is \"{}\"", *near) : " to the model");
  }

  // A plan names thousands of tensors, few layouts.
  const std::optional<std::string>& why_misplaced(const Annotation* annotation, Time time) {
    const auto [found, fresh] = misplaced_.try_emplace({annotation, time});
    if (fresh) found->second = find_misplaced(*annotation, time);
    return found->second;
  }

  std::optional<std::string> find_misplaced(const Annotation& annotation, Time time) const {
    const auto& subgroups = annotation.subgroups();
    for (const Subgroup& subgroup : subgroups) {
      for (const Device d : subgroup.devices()) {
        if (!pipeline_of_.contains(d)) return fmt::format("lie on the strategy's devices; {} is none of them", d);
      }
    }
    if (time != Time::kMicroBatch) return std::nullopt;
    const std::size_t pipelines = strategy_.pipelines.size();
    if (subgroups.size() != pipelines)
      return fmt::format("have a subgroup for each of the strategy's {} pipelines", pipelines);
    for (std::size_t p = 0; p < pipelines; ++p) {
      for (const Device d : subgroups[p].devices()) {
        if (pipeline_of_.at(d) != p) return fmt::format("hold device {} in the subgroup of its pipeline", d);
      }
    }
    return std::nullopt;
  }

  const Strategy& strategy_;
  std::map<Device, std::size_t> pipeline_of_;
  std::map<std::pair<const Annotation*, Time>, std::optional<std::string>> misplaced_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> problems(const Plan& plan, const Strategy& strategy, const Graph& graph) {
  const Known known = known_names(graph);
  Finder finder(strategy);
  finder.look("tensors", plan.tensors(), known.tensors);
  finder.look("reshards", plan.reshards(), known.reshards);
  return finder.take();
}

}  // namespace hspmd
