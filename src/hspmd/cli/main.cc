// hspmd: the command line. Exit codes: 0 done, 1 failed at run time, 2 wrong input, 130 interrupted.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "hspmd/cli/version.h"
#include "hspmd/comm/explain.h"
#include "hspmd/elastic/launcher.h"
#include "hspmd/specialize/check.h"
#include "hspmd/train/trainer.h"

namespace hspmd {
namespace {

constexpr int kDone = 0, kFailed = 1, kWrongInput = 2, kInterrupted = 130;

std::atomic<bool> stepping{false};
std::atomic<bool> interrupted{false};

// Once a run is under way, it ends its step first; a second Ctrl-C does not wait for that.
extern "C" void on_interrupt(int) {
  if (!stepping || interrupted.exchange(true)) _exit(kInterrupted);
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

void check_transport(const TrainConfig& config, const JoinedJob* job) {
  if (job == nullptr && config.transport == TransportKind::kProcesses)
    invalid("transport.kind processes must be started by a launcher, such as: hspmd launch -n {} -- train ...",
            strategy_of(config).devices().size());
  if (job != nullptr && config.transport == TransportKind::kThreads)
    invalid("transport.kind must be processes, or left out, where a launcher has set RANK and WORLD_SIZE");
}

int train_here(const TrainArguments& arguments, const std::vector<std::string>& rest, JoinedJob* job) {
  std::vector<Override> overrides = overrides_of(rest);
  const auto absolute = [](const std::string& path) { return word_text(std::filesystem::absolute(path).string()); };
  // Before the others, which may reach into the strategy.
  if (!arguments.plan.empty()) overrides.insert(overrides.begin(), {"plan", absolute(arguments.plan)});
  if (!arguments.strategy.empty()) overrides.insert(overrides.begin(), {"strategy", absolute(arguments.strategy)});
  const ConfigNode run = load_run(arguments.file, overrides);
  TrainConfig config = read_train_config(run);
  if (arguments.print_config) {
    std::cout << print_train_config(run);
    return kDone;
  }
  check_transport(config, job);
  if (const char* interface = std::getenv("HSPMD_INTERFACE"); interface != nullptr && config.interface.empty())
    config.interface = interface;
  const bool speaks = job == nullptr || job->rank() == 0;
  const std::int64_t steps = config.steps;
  const std::int64_t last = config.last_step();
  const std::string model = config.model_name;
  const double parameters = static_cast<double>(config.model.parameters());
  Trainer trainer(config, job);
  if (speaks) {
    say(fmt::format("model {}: {:.2f} M parameters; data: {} tokens an epoch; {} devices", model, parameters / 1e6,
                    trainer.data_tokens(), trainer.strategy().devices().size()));
    std::cout << picture(trainer.strategy());
  }
  const bool terminal = speaks && isatty(STDOUT_FILENO) != 0;
  const std::string clear = terminal ? "\r\033[K" : "";
  Trainer::Listeners listeners;
  listeners.line = [&](const StepRecord& record) {
    if (speaks) say(clear + to_line(record, steps));
  };
  listeners.note = [&](const std::string& text) {
    if (speaks) say(clear + text);
  };
  listeners.progress = [&](const StepRecord& record) {
    if (!terminal) return;
    const double left = static_cast<double>(last - record.step) * record.step_s;
    std::cout << clear
              << fmt::format("step {}/{}  loss {:.4f}  about {:.0f} s to go", record.step, steps, record.loss, left)
              << std::flush;
  };
  stepping = true;
  const Finish finish = trainer.run(interrupted, listeners);
  if (terminal) std::cout << clear;
  if (finish == Finish::kDone) return kDone;
  if (speaks) say("interrupted");
  return kInterrupted;
}

// A rank that a launcher has started joins its job first, so that all hear of what goes wrong with any.
int train(const TrainArguments& arguments, const std::vector<std::string>& rest) {
  const std::optional<JobPlace> place = arguments.print_config ? std::nullopt : job_from_environment();
  if (!place) return train_here(arguments, rest, nullptr);
  JoinedJob job(*place);
  try {
    return train_here(arguments, rest, &job);
  } catch (const std::exception& error) {
    job.abort(fmt::format("rank {}: {}", place->rank, error.what()));
    throw;
  }
}

struct CheckArguments {
  std::vector<std::string> files;
  std::string model;
  std::string cluster;
  std::int64_t sequence_length = 128;
  bool print = false;
};

// What a file asks to be checked.
struct Checked {
  LlamaConfig model;
  Strategy strategy;
  std::optional<PlanFile> plan;
  std::optional<Cluster> cluster;
  OptimizerConfig optimizer;
  std::int64_t sequence_length = 128;
  Precision precision = Precision::kFp32;
  Backend backend = Backend::kAten;
  bool evaluates = false;
  std::string note;  // what was assumed
};

// Where nobody names a model: a tiny Llama of as many layers as the strategy has.
LlamaConfig model_for(const Strategy& strategy) {
  LlamaConfig model = llama_preset("tiny");
  model.layers = 1;
  for (const PipelineSpec& pipeline : strategy.pipelines) {
    for (const StageSpec& stage : pipeline.stages) model.layers = std::max(model.layers, stage.layers.end);
  }
  return model;
}

Checked read_strategy_to_check(const ConfigNode& root, const CheckArguments& arguments) {
  Checked checked;
  checked.strategy = named_after(read_strategy(root), root.file());
  checked.sequence_length = arguments.sequence_length;
  if (arguments.model.empty()) {
    checked.model = model_for(checked.strategy);
    checked.note = fmt::format("checked for a tiny Llama of {} layers; --model names another", checked.model.layers);
  } else {
    checked.model = load_model(arguments.model);
  }
  return checked;
}

Checked read_run_to_check(const ConfigNode& root) {
  const TrainConfig config = read_train_config(root);
  Checked checked;
  checked.model = config.model;
  checked.strategy = strategy_of(config);
  checked.plan = config.plan;
  checked.cluster = config.cluster;
  checked.optimizer = config.optimizer;
  checked.sequence_length = config.data.sequence_length;
  checked.precision = config.precision;
  checked.backend = config.backend;
  checked.evaluates = config.eval_every > 0;
  return checked;
}

std::vector<std::string> find_problems(const Checked& checked, const CheckArguments& arguments) {
  const Strategy& strategy = checked.strategy;
  std::vector<std::string> found = problems(strategy, checked.model.layers);
  if (found.empty() && checked.cluster) found = problems(strategy, *checked.cluster);
  if (!found.empty()) return found;
  const StepProgram built = build_step(checked.model, strategy, checked.optimizer, checked.plan);
  const StepProgram evaluation =
      checked.evaluates ? build_evaluation(checked.model, strategy, checked.plan) : StepProgram{};
  const Cluster links = checked.cluster ? *checked.cluster : Cluster::uniform(strategy.devices().back() + 1);
  CheckRequest request;
  request.graph = &built.graph;
  request.plan = &built.plan;
  request.strategy = &strategy;
  request.cluster = &links;
  request.sequence_length = checked.sequence_length;
  request.float_bytes = element_bytes(checked.precision);
  // Without memory limits nobody asks.
  if (checked.cluster) {
    request.workspace = [&](const BoundCompute& bound) {
      return workspace_bytes(checked.backend, checked.precision, bound);
    };
  }
  if (checked.evaluates) {
    request.evaluation = &evaluation.graph;
    request.evaluation_plan = &evaluation.plan;
  }
  found = check(request);
  if (arguments.print && found.empty()) {
    for (const Device device : strategy.devices())
      std::cout << to_string(specialize(built.graph, built.plan, device, strategy.schedule)) << "\n";
  }
  return found;
}

std::vector<std::string> check_file(const std::string& path, const CheckArguments& arguments) {
  const ConfigNode root = load_config(path);
  const auto format = root.is_map() ? root.find("format") : std::nullopt;
  const std::string kind = format ? format->text() : "";
  if (kind == "hspmd-cluster/1") {
    (void)read_cluster(root);
    return {};
  }
  // A file of neither kind is read as what --model suggests, so that the complaint names the kind that was meant.
  const bool strategy = kind == "hspmd-strategy/1" || (kind != "hspmd-train/1" && !arguments.model.empty());
  Checked checked = strategy ? read_strategy_to_check(root, arguments) : read_run_to_check(root);
  if (!arguments.cluster.empty()) checked.cluster = load_cluster(arguments.cluster);
  std::vector<std::string> found = find_problems(checked, arguments);
  if (found.empty() && !checked.note.empty()) std::cerr << path << ": " << checked.note << "\n";
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

// CLI11 would take the value of a flag that it does not know for the run file: --steps 20 becomes --steps=20.
std::vector<std::string> joined_flags(std::vector<std::string> words, const CLI::App& command) {
  if (words.empty() || words.front() != command.get_name()) return words;
  std::vector<std::string> joined;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool unknown = words[i].starts_with("--") && words[i].find('=') == std::string::npos &&
                         command.get_option_no_throw(words[i]) == nullptr;
    if (unknown && i + 1 < words.size()) {
      joined.push_back(words[i] + "=" + words[i + 1]);
      ++i;
    } else {
      joined.push_back(words[i]);
    }
  }
  return joined;
}

struct LaunchArguments {
  int ranks = 1;
  std::string hosts, cpus, log_dir, interface;
  std::string listen = LaunchOptions{}.listen;
  std::string remote = LaunchOptions{}.remote;
};

// The words behind "--", which are another command's.
std::vector<std::string> cut_after_dashes(std::vector<std::string>& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes == words.end()) return {};
  std::vector<std::string> behind(dashes + 1, words.end());
  words.erase(dashes, words.end());
  return behind;
}

int launch_ranks(const LaunchArguments& arguments, std::vector<std::string> command) {
  LaunchOptions options;
  options.ranks = arguments.ranks;
  if (!arguments.hosts.empty()) options.hosts = parse_hosts(arguments.hosts);
  if (!arguments.cpus.empty()) options.cpus = parse_cpus(arguments.cpus);
  options.log_dir = arguments.log_dir;
  options.listen = arguments.listen;
  options.interface = arguments.interface;
  options.remote = arguments.remote;
  options.command = std::move(command);
  return launch(options);
}

int run(int argc, char** argv) {
  CLI::App app{"HSPMD: training on unlike devices", "hspmd"};
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
  check_command->add_option("--model", check_arguments.model,
                            "preset or Hugging Face config, for strategies; without it a tiny Llama");
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

  LaunchArguments launch_arguments;
  CLI::App* launch_command =
      app.add_subcommand("launch", "Start a job of one process a device: hspmd launch -n 4 -- train run.yaml");
  launch_command->add_option("-n", launch_arguments.ranks, "ranks, one a device")->check(CLI::Range(1, 1 << 16));
  launch_command->add_option("--hosts", launch_arguments.hosts, "where, such as a:4,b:4; without it all here");
  launch_command->add_option("--cpus", launch_arguments.cpus, "CPUs of each rank, such as \"0;1;2-3\"");
  launch_command->add_option("--log-dir", launch_arguments.log_dir, "a file a rank, in place of prefixed output");
  launch_command->add_option("--listen", launch_arguments.listen, "address of the control plane");
  launch_command->add_option("--interface", launch_arguments.interface, "network interface between hosts");
  launch_command->add_option("--remote", launch_arguments.remote, "how to run {command} on {host}");
  std::vector<std::string> launched;  // what the ranks run

  ExpandArguments expand_arguments;
  CLI::App* plan_command = app.add_subcommand("plan", "Plans");
  plan_command->require_subcommand(1);
  CLI::App* expand_command = plan_command->add_subcommand(
      "expand", "Write the annotation of every leaf and Reshard that a strategy stands for");
  expand_command->add_option("strategy", expand_arguments.file, "strategy file")->required();
  expand_command->add_option("--model", expand_arguments.model, "preset or Hugging Face config")->required();
  expand_command->add_option("-o,--output", expand_arguments.out, "file; standard output without it");

  try {
    std::vector<std::string> given(argv + 1, argv + argc);
    if (!given.empty() && given.front() == "launch") launched = cut_after_dashes(given);
    std::vector<std::string> words = joined_flags(given, *train_command);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kDone : kWrongInput;
  }
  if (train_command->parsed()) return train(train_arguments, train_command->remaining());
  if (check_command->parsed()) return run_check(check_arguments);
  if (explain_command->parsed()) return explain(explain_arguments);
  if (launch_command->parsed()) return launch_ranks(launch_arguments, std::move(launched));
  return expand_plan(expand_arguments);
}

}  // namespace
}  // namespace hspmd

int main(int argc, char** argv) {
  // A training run ends between steps, whenever the signal comes; everything else ends at once.
  if (argc > 1 && std::string_view(argv[1]) == "train") {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, hspmd::on_interrupt);
  }
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
