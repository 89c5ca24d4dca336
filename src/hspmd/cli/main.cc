// hspmd: the command line. Exit codes: 0 done, 1 failed at run time, 2 wrong input, 130 interrupted.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "hspmd/cli/version.h"
#include "hspmd/comm/explain.h"
#include "hspmd/specialize/check.h"
#include "hspmd/train/trainer.h"

namespace hspmd {
namespace {

constexpr int kDone = 0, kFailed = 1, kWrongInput = 2, kInterrupted = 130;

std::atomic<bool> interrupted{false};

extern "C" void on_interrupt(int) {
  if (interrupted.exchange(true)) _exit(kInterrupted);  // a second Ctrl-C does not wait for the step
}

void say(const std::string& line) {
  std::cout << line << "\n" << std::flush;
}

// --optimizer.lr=3e-4, --steps 20: what CLI11 does not know is a key of the run file.
std::vector<Override> overrides_of(const std::vector<std::string>& words) {
  std::vector<Override> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) invalid("[cli] \"{}\" must belong to a flag, such as --steps 20", word);
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      found.push_back({word.substr(2, equals - 2), word.substr(equals + 1)});
    } else {
      if (i + 1 == words.size()) invalid("[cli] {} must have a value", word);
      found.push_back({word.substr(2), words[++i]});
    }
  }
  return found;
}

struct TrainArguments {
  std::string file;
  std::string strategy;
  std::string plan;
  bool print_config = false;
};

int train(const TrainArguments& arguments, const std::vector<std::string>& rest) {
  std::vector<Override> overrides = overrides_of(rest);
  const auto absolute = [](const std::string& path) { return word_text(std::filesystem::absolute(path).string()); };
  if (!arguments.strategy.empty()) overrides.push_back({"strategy", absolute(arguments.strategy)});
  if (!arguments.plan.empty()) overrides.push_back({"plan", absolute(arguments.plan)});
  const TrainConfig config = load_train_config(arguments.file, overrides);
  if (arguments.print_config) {
    std::cout << print_train_config(arguments.file, overrides);
    return kDone;
  }
  const std::int64_t steps = config.steps;
  const std::string model = config.model_name;
  const double parameters = static_cast<double>(config.model.parameters());
  Trainer trainer(config);
  say(fmt::format("model {}: {:.2f} M parameters; data: {} tokens an epoch; {} devices", model, parameters / 1e6,
                  trainer.data_tokens(), trainer.strategy().devices().size()));
  std::cout << picture(trainer.strategy());
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string clear = terminal ? "\r\033[K" : "";
  Trainer::Listeners listeners;
  listeners.line = [&](const StepRecord& record) { say(clear + to_line(record, steps)); };
  listeners.note = [&](const std::string& text) { say(clear + text); };
  listeners.progress = [&](const StepRecord& record) {
    if (!terminal) return;
    const double left = static_cast<double>(steps - record.step) * record.step_s;
    std::cout << clear
              << fmt::format("step {}/{}  loss {:.4f}  about {:.0f} s to go", record.step, steps, record.loss, left)
              << std::flush;
  };
  const Finish finish = trainer.run(interrupted, listeners);
  if (terminal) std::cout << clear;
  if (finish == Finish::kDone) return kDone;
  say("interrupted");
  return kInterrupted;
}

struct CheckArguments {
  std::vector<std::string> files;
  std::string model;
  std::string cluster;
  std::int64_t sequence_length = 128;
  bool print = false;
};

std::vector<std::string> check_file(const std::string& path, const CheckArguments& arguments) {
  const ConfigNode root = load_config(path);
  const auto format = root.is_map() ? root.find("format") : std::nullopt;
  const std::string kind = format ? format->text() : "";
  if (kind == "hspmd-cluster/1") {
    (void)load_cluster(path);
    return {};
  }
  LlamaConfig model;
  Strategy strategy;
  std::optional<PlanFile> plan;
  std::optional<Cluster> cluster;
  OptimizerConfig optimizer;
  std::int64_t length = arguments.sequence_length;
  std::size_t float_bytes = 4;
  // A file of neither kind is read as what --model suggests, so that the complaint names the kind that was meant.
  if (kind == "hspmd-strategy/1" || (kind != "hspmd-train/1" && !arguments.model.empty())) {
    if (arguments.model.empty())
      invalid("{}: a strategy must be checked for a model: add --model PRESET or --model DIR", path);
    model = load_model(arguments.model);
    strategy = load_strategy(path);
  } else {
    const TrainConfig config = load_train_config(path, {});
    model = config.model;
    strategy = strategy_of(config);
    plan = config.plan;
    cluster = config.cluster;
    optimizer = config.optimizer;
    length = config.data.sequence_length;
    float_bytes = element_bytes(config.precision);
  }
  if (!arguments.cluster.empty()) cluster = load_cluster(arguments.cluster);
  std::vector<std::string> found = problems(strategy, model.layers);
  if (!found.empty()) return found;
  if (cluster && strategy.devices().back() >= cluster->device_count()) {
    return {fmt::format("device {} must be one of the cluster's {} devices", strategy.devices().back(),
                        cluster->device_count())};
  }
  const StepProgram built = build_step(model, strategy, optimizer, plan);
  const Cluster links = cluster ? *cluster : Cluster::uniform(strategy.devices().back() + 1);
  found = check({&built.graph, &built.plan, &strategy, &links, length, float_bytes});
  if (arguments.print && found.empty()) {
    for (const Device device : strategy.devices())
      std::cout << to_string(specialize(built.graph, built.plan, device, strategy.schedule)) << "\n";
  }
  return found;
}

int run_check(const CheckArguments& arguments) {
  bool all = true;
  for (const std::string& path : arguments.files) {
    std::vector<std::string> found;
    try {
      found = check_file(path, arguments);
    } catch (const InvalidArgument& error) {
      found = {error.what()};
    }
    const std::string prefix = arguments.files.size() > 1 ? path + ": " : "";
    if (found.empty()) say(prefix + "ok");
    for (const std::string& problem : found)
      std::cerr << (problem.starts_with(path) ? "" : path + ": ") << problem << "\n";
    all = all && found.empty();
  }
  return all ? kDone : kWrongInput;
}

struct ExplainArguments {
  std::string from, to, shape, cluster, batch;
  bool json = false;
};

// The next line, or nullopt at the end: one of a device or of a damaged file must not fill the memory.
std::optional<std::string> next_line(std::istream& stream) {
  constexpr std::size_t kMaxLine = std::size_t{1} << 24;
  std::string line;
  for (int c = stream.get(); c != std::char_traits<char>::eof(); c = stream.get()) {
    if (c == '\n') return line;
    if (line.size() == kMaxLine) invalid("[explain] a line of --batch may have at most 16 MiB");
    line += static_cast<char>(c);
  }
  return line.empty() ? std::nullopt : std::optional(line);
}

int explain(const ExplainArguments& arguments) {
  const auto cluster_for = [&](const Annotation& from, const Annotation& to) {
    if (!arguments.cluster.empty()) return load_cluster(arguments.cluster);
    Device last = 0;
    for (const Annotation* a : {&from, &to}) {
      for (const Device d : devices_of(*a)) last = std::max(last, d);
    }
    return Cluster::uniform(std::min(last + 1, 1 << 20));
  };
  const auto one = [&](const ExplainRequest& r) {
    const CommPlan plan = resolve(r.from, r.to, r.shape, cluster_for(r.from, r.to));
    return arguments.json || !arguments.batch.empty() ? explain_json(plan) : explain_text(plan);
  };
  if (arguments.batch.empty()) {
    if (arguments.from.empty() || arguments.to.empty())
      invalid("[explain] give --from, --to and --shape, or --batch FILE");
    say(one({parse_annotation(arguments.from), parse_annotation(arguments.to), parse_shape(arguments.shape)}));
    return kDone;
  }
  if (!arguments.from.empty() || !arguments.to.empty() || !arguments.shape.empty())
    invalid("[explain] --batch must stand without --from, --to and --shape: its lines have their own");
  std::error_code unknown;
  if (std::filesystem::is_directory(arguments.batch, unknown))
    invalid("[explain] {}: must be a file, is a folder", arguments.batch);
  std::ifstream file(arguments.batch);
  if (!file) invalid("[explain] {}: the file must exist and be readable", arguments.batch);
  bool all = true;
  while (const auto line = next_line(file)) {
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      say(one(parse_explain_request(*line)));
    } catch (const InvalidArgument& error) {
      say(explain_error(error.what()));
      all = false;
    }
  }
  return all ? kDone : kWrongInput;
}

struct ExpandArguments {
  std::string file, model, out;
};

int expand_plan(const ExpandArguments& arguments) {
  const LlamaConfig model = load_model(arguments.model);
  const Strategy strategy = load_strategy(arguments.file);
  const auto found = problems(strategy, model.layers);
  if (!found.empty()) invalid("{}: {}", arguments.file, fmt::join(found, "\n" + arguments.file + ": "));
  const std::string json = to_json(build_step(model, strategy, {}, std::nullopt).plan, strategy);
  if (arguments.out.empty()) {
    std::cout << json;
    return kDone;
  }
  // A file is replaced in one step; a device or a pipe must stay what it is.
  std::error_code unknown;
  const bool special =
      std::filesystem::exists(arguments.out, unknown) && !std::filesystem::is_regular_file(arguments.out, unknown);
  const std::string temporary = special ? arguments.out : arguments.out + ".tmp";
  std::ofstream file(temporary);
  if (!file) invalid("[plan] -o must name a file that can be written. Received \"{}\".", arguments.out);
  file << json;
  file.close();
  if (!file || (!special && std::rename(temporary.c_str(), arguments.out.c_str()) != 0)) {
    if (!special) std::remove(temporary.c_str());
    throw RuntimeFailure(fmt::format("[plan] {} must be written whole; the disk may be full", arguments.out));
  }
  return kDone;
}

int run(int argc, char** argv) {
  CLI::App app{"HSPMD: training on unlike devices"};
  app.set_version_flag("--version", std::string("hspmd ") + kVersion);
  app.require_subcommand(1);

  TrainArguments train_arguments;
  CLI::App* train_command = app.add_subcommand("train", "Train a model; --KEY VALUE overrides any key of the run file");
  train_command->add_option("run", train_arguments.file, "run file (hspmd-train/1)")->required();
  train_command->add_option("--strategy", train_arguments.strategy, "strategy file in place of the run file's");
  train_command->add_option("--plan", train_arguments.plan, "plan file in place of a strategy");
  train_command->add_flag("--print-config", train_arguments.print_config, "print the configuration and stop");
  train_command->allow_extras();

  CheckArguments check_arguments;
  CLI::App* check_command = app.add_subcommand("check", "Prove that a run or strategy works: `ok`, or every problem");
  check_command->add_option("files", check_arguments.files, "run, strategy or cluster files")->required();
  check_command->add_option("--model", check_arguments.model, "preset or Hugging Face config, for strategies");
  check_command->add_option("--cluster", check_arguments.cluster, "cluster file: memory limits");
  check_command->add_option("--sequence-length", check_arguments.sequence_length, "for strategies")
      ->check(CLI::Range(1, 1 << 20));
  check_command->add_flag("--print", check_arguments.print, "print the program of every device");

  ExplainArguments explain_arguments;
  CLI::App* explain_command = app.add_subcommand("explain", "Show how a tensor gets from one layout to another");
  explain_command->add_option("--from", explain_arguments.from, "annotation before");
  explain_command->add_option("--to", explain_arguments.to, "annotation after");
  explain_command->add_option("--shape", explain_arguments.shape, "such as 10x6");
  explain_command->add_option("--cluster", explain_arguments.cluster, "cluster file: links");
  explain_command->add_option("--batch", explain_arguments.batch, "a file with one {\"from\",\"to\",\"shape\"} a line");
  explain_command->add_flag("--json", explain_arguments.json, "JSON in place of text");

  ExpandArguments expand_arguments;
  CLI::App* plan_command = app.add_subcommand("plan", "Plans");
  plan_command->require_subcommand(1);
  CLI::App* expand_command = plan_command->add_subcommand(
      "expand", "Write the annotation of every leaf and Reshard that a strategy stands for");
  expand_command->add_option("strategy", expand_arguments.file, "strategy file")->required();
  expand_command->add_option("--model", expand_arguments.model, "preset or Hugging Face config")->required();
  expand_command->add_option("-o,--output", expand_arguments.out, "file; standard output without it");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kDone : kWrongInput;
  }
  if (train_command->parsed()) return train(train_arguments, train_command->remaining());
  if (check_command->parsed()) return run_check(check_arguments);
  if (explain_command->parsed()) return explain(explain_arguments);
  return expand_plan(expand_arguments);
}

}  // namespace
}  // namespace hspmd

int main(int argc, char** argv) {
  try {
    return hspmd::run(argc, argv);
  } catch (const hspmd::InvalidArgument& error) {
    std::cerr << "hspmd: " << error.what() << "\n";
    return hspmd::kWrongInput;
  } catch (const std::exception& error) {
    std::cerr << "hspmd: " << error.what() << "\n";
    return hspmd::kFailed;
  }
}
