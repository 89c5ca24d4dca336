#include "hspmd/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "hspmd/models/training_step.h"
#include "hspmd/specialize/plan_problems.h"

namespace hspmd {
namespace {

RunOptions run_options(const TrainConfig& config, const Strategy& strategy) {
  RunOptions options;
  options.precision = config.precision;
  options.backend = config.backend;
  options.schedule = strategy.schedule;
  options.sequence_length = config.data.sequence_length;
  for (const PipelineSpec& pipeline : strategy.pipelines)
    options.micro_batch_sizes.push_back(pipeline.micro_batch_sizes);
  options.seed = config.seed;
  options.timeout_s = config.timeout_s;
  options.interface = config.interface;
  options.transports = config.network_transports;
  return options;
}

// All numbers that make a model what it is.
std::string numbers_of(const LlamaConfig& c) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", c.vocabulary, c.hidden, c.layers, c.heads, c.kv_heads,
                     c.head_dim, c.ffn, c.rms_eps, c.rope_theta, c.rope_scaling.factor, c.rope_scaling.low_freq_factor,
                     c.rope_scaling.high_freq_factor, c.rope_scaling.original_max_position, static_cast<int>(c.tied));
}

std::optional<double> sum_of_peaks(const TrainConfig& config, const Strategy& strategy) {
  if (!config.cluster) return std::nullopt;
  double sum = 0;
  for (const Device device : strategy.devices()) {
    const auto& peaks = config.cluster->type_of(device).peak_flops;
    const auto peak = peaks.find(precision_name(config.precision));
    if (peak == peaks.end()) return std::nullopt;
    sum += peak->second;
  }
  return sum;
}

std::string finite_or_null(double value) {
  return std::isfinite(value) ? number_text(value) : "null";
}

enum class FeedKind { kIds, kPositions, kSegments, kTargets };

FeedKind feed_kind(const std::string& placeholder) {
  if (placeholder == "ids") return FeedKind::kIds;
  if (placeholder == "positions") return FeedKind::kPositions;
  if (placeholder == "segments") return FeedKind::kSegments;
  if (placeholder == "targets") return FeedKind::kTargets;
  throw InternalError(fmt::format("[train] a placeholder must be one of Llama's. Received \"{}\".", placeholder));
}

// What a plan file says stands before what the strategy gives.
Plan plan_of(const Strategy& strategy, const ModelRoles& roles, const std::optional<PlanFile>& file) {
  Plan plan = expand(strategy, roles);
  if (!file) return plan;
  for (const auto& [name, annotation] : file->plan.tensors()) plan.set_tensor(name, *annotation);
  for (const auto& [name, annotation] : file->plan.reshards()) plan.set_reshard(name, *annotation);
  return plan;
}

// An evaluation has no optimizer: no states, no gradients, no norm.
bool in_evaluation(const Graph& graph, const std::string& tensor) {
  return graph.find(tensor) || graph.find(tensor + "/master");
}

}  // namespace

StepProgram build_step(const LlamaConfig& model, const Strategy& strategy, const OptimizerConfig& optimizer,
                       const std::optional<PlanFile>& plan) {
  StepProgram built;
  ModelRoles roles = llama_roles(model);
  const ModelOutputs outputs = build_llama(built.graph, model);
  const ops::AdamWAttributes adamw{optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay,
                                   optimizer.clip_norm};
  build_training_step(built.graph, {outputs.loss, outputs.tokens}, adamw, roles);
  built.plan = plan_of(strategy, roles, plan);
  if (!plan) return built;
  const auto found = problems(built.plan, strategy, built.graph);
  if (!found.empty()) invalid("{}: {}", plan->name, fmt::join(found, "\n" + plan->name + ": "));
  return built;
}

StepProgram build_evaluation(const LlamaConfig& model, const Strategy& strategy, const std::optional<PlanFile>& plan) {
  StepProgram built;
  ModelRoles roles = llama_roles(model);
  const ModelOutputs outputs = build_llama(built.graph, model);
  build_evaluation_step(built.graph, {outputs.loss, outputs.tokens}, roles);
  const Plan whole = plan_of(strategy, roles, plan);
  for (const auto& [name, annotation] : whole.tensors()) {
    if (in_evaluation(built.graph, name)) built.plan.set_tensor(name, *annotation);
  }
  for (const auto& [name, annotation] : whole.reshards()) {
    if (built.graph.find(name)) built.plan.set_reshard(name, *annotation);
  }
  return built;
}

namespace {

// The JSON log: one line a record, flushed, so that a killed run leaves whole lines.
struct Log {
  explicit Log(const std::string& name) : file(name.empty() ? nullptr : std::fopen(name.c_str(), "w")), path(name) {
    if (!path.empty() && file == nullptr)
      invalid("[log] log.json must be a file that can be written. Received \"{}\".", path);
  }
  ~Log() {
    if (file != nullptr) std::fclose(file);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  void write(const std::string& line) const {
    if (file == nullptr) return;
    const bool written = std::fputs((line + "\n").c_str(), file) >= 0 && std::fflush(file) == 0;
    if (!written) throw RuntimeFailure(fmt::format("[log] {} must take a line; the disk may be full", path));
  }
  std::FILE* file;
  std::string path;
};

// The trace: a temporary file from the beginning, so that a place that cannot be written is found before the work; it
// has its name once it is whole.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {
    if (path.empty()) return;
    file_ = std::fopen(temporary_.c_str(), "w");
    if (file_ == nullptr) invalid("[trace] trace must be a file that can be written. Received \"{}\".", path);
  }
  ~TraceFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(temporary_.c_str());
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void finish(const std::string& text) {
    if (file_ == nullptr) return;
    const bool written = std::fputs(text.c_str(), file_) >= 0 && std::fclose(file_) == 0;
    file_ = nullptr;
    if (written && std::rename(temporary_.c_str(), path_.c_str()) == 0) return;
    std::remove(temporary_.c_str());
    throw RuntimeFailure(fmt::format("[trace] {} must be written whole; the disk may be full", path_));
  }

 private:
  std::FILE* file_ = nullptr;
  std::string path_;
  std::string temporary_;
};

constexpr std::size_t kTracedEvents = std::size_t{1} << 18;  // of a device: 8 MiB

}  // namespace

Trainer::Trainer(TrainConfig config, JoinedJob* job)
    : config_(std::move(config)),
      job_(job),
      strategy_(strategy_of(config_)),
      cluster_(config_.cluster ? *config_.cluster : Cluster::uniform(strategy_.devices().back() + 1)) {
  if (strategy_.name.empty()) strategy_.name = "strategy";
  peak_flops_ = sum_of_peaks(config_, strategy_);
  StepProgram built = build_step(config_.model, strategy_, config_.optimizer, config_.plan);
  graph_ = std::move(built.graph);
  const Shuffle shuffle = config_.data.shuffle ? Shuffle::kYes : Shuffle::kNo;
  stream_ = std::make_unique<Stream>(Tokens::load(config_.data.paths, config_.model.vocabulary),
                                     config_.data.sequence_length, shuffle, config_.seed);
  std::int64_t first = 0;
  for (const PipelineSpec& pipeline : strategy_.pipelines) {
    first_of_pipeline_.push_back(first);
    first += pipeline.sequences();
  }
  if (job_ != nullptr) agree();
  run_ = devices_for(graph_, built.plan, "train");
  run_->initialise();
  if (config_.eval_every > 0) {
    validation_ = std::make_unique<Stream>(Tokens::load(config_.data.validation, config_.model.vocabulary),
                                           config_.data.sequence_length, Shuffle::kNo, config_.seed);
    StepProgram evaluation = build_evaluation(config_.model, strategy_, config_.plan);
    evaluation_graph_ = std::move(evaluation.graph);
    evaluation_ = devices_for(evaluation_graph_, evaluation.plan, "eval");
    check_memory();
  }
}

// Each run has checked its own; here they stand beside each other.
void Trainer::check_memory() const {
  const std::vector<Device> devices = strategy_.devices();
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const std::size_t bytes = run_->memory_bytes()[r] + evaluation_->memory_bytes()[r];
    if (const auto why = why_too_large(cluster_, devices[r], bytes)) invalid("[memory] {}", *why);
  }
}

Trainer::~Trainer() = default;

std::unique_ptr<DeviceRun> Trainer::devices_for(const Graph& graph, const Plan& plan, const std::string& name) const {
  const RunOptions options = run_options(config_, strategy_);
  if (job_ == nullptr) return std::make_unique<DeviceRun>(graph, plan, strategy_.devices(), options, cluster_);
  return std::make_unique<DeviceRun>(graph, plan, strategy_.devices(), options, cluster_, *job_, name);
}

// All ranks stop after the same step: who is interrupted asks for the next one to be the last.
bool Trainer::stops(const std::atomic<bool>& interrupted, std::int64_t number) const {
  if (job_ == nullptr) return interrupted.load();
  if (job_->stops_after(number)) return true;
  if (interrupted.load()) job_->stop_after(number + 1);
  return false;
}

// What all ranks must have alike, with a digest of each.
void Trainer::agree() const {
  const TrainConfig& c = config_;
  const std::string settings = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", c.data.sequence_length, c.data.shuffle, c.optimizer.lr,
      c.optimizer.min_lr, c.optimizer.warmup_steps, c.optimizer.weight_decay, c.optimizer.beta1, c.optimizer.beta2,
      c.optimizer.eps, c.optimizer.clip_norm, precision_name(c.precision), c.steps, c.stop_after, c.seed,
      static_cast<int>(c.backend), c.eval_every, c.timeout_s, c.network_transports);
  const StepProgram program = build_step(c.model, strategy_, c.optimizer, c.plan);
  const auto devices = static_cast<int>(strategy_.devices().size());
  job_->agree({{"the program", digest_of_file("/proc/self/exe")},
               {"the model", digest_of(numbers_of(c.model))},
               {"the strategy", digest_of(to_json(program.plan, strategy_))},
               {"the run's settings", digest_of(settings)},
               {"the data", fmt::format("{:016x}", stream_->tokens().digest())}});
  if (devices != job_->ranks())
    invalid("[job] every device must have a process: the strategy has {} devices, WORLD_SIZE is {}.", devices,
            job_->ranks());
}

std::int64_t Trainer::data_tokens() const {
  return stream_->samples() * config_.data.sequence_length;
}

// Sequences from `sequences` on are no data: their targets do not count.
void Trainer::feed(const Stream& stream, std::int64_t first_sequence, std::int64_t sequences, std::int64_t step,
                   const FeedRequest& request) const {
  if (request.micro_batch < 0) {
    const double t = static_cast<double>(step);
    const OptimizerConfig& o = config_.optimizer;
    const double values[3] = {learning_rate(o, step, config_.steps), 1 - std::pow(o.beta1, t),
                              1 - std::pow(o.beta2, t)};
    for (int i = 0; i < 3; ++i) {
      if (config_.precision == Precision::kFp64) {
        static_cast<double*>(request.data)[i] = values[i];
      } else {
        static_cast<float*>(request.data)[i] = static_cast<float>(values[i]);
      }
    }
    return;
  }
  const auto pipeline = static_cast<std::size_t>(request.pipeline);
  std::int64_t in_step = first_of_pipeline_[pipeline];
  for (int m = 0; m < request.micro_batch; ++m)
    in_step += strategy_.pipelines[pipeline].micro_batch_sizes[static_cast<std::size_t>(m)];
  auto* data = static_cast<std::int32_t*>(request.data);
  const Box& box = *request.box;
  const FeedKind kind = feed_kind(request.feed->name);
  for (std::int64_t b = box[0].begin; b < box[0].end; ++b) {
    const bool real = in_step + b < sequences;
    const std::int64_t first = stream.first_token(real ? first_sequence + in_step + b : first_sequence);
    for (std::int64_t s = box[1].begin; s < box[1].end; ++s) {
      switch (kind) {
        case FeedKind::kIds:
          *data++ = stream.token(first + s);
          break;
        case FeedKind::kPositions:
          *data++ = static_cast<std::int32_t>(s);
          break;
        case FeedKind::kSegments:
          *data++ = 0;
          break;
        case FeedKind::kTargets:
          *data++ = real ? stream.token(first + s + 1) : -1;
          break;
      }
    }
  }
}

StepRecord Trainer::step(std::int64_t number) {
  const std::int64_t batch = strategy_.global_batch();
  const std::int64_t first = (number - 1) * batch;
  stream_->prepare(first, first + batch);
  const FeedFunction feeder = [&](const FeedRequest& request) { feed(*stream_, first, batch, number, request); };
  const auto begin = std::chrono::steady_clock::now();
  run_->step(feeder);
  StepRecord record;
  record.step_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record.step = number;
  const bool paced = config_.backend == Backend::kPaced;
  const double tokens = paced ? static_cast<double>(batch * config_.data.sequence_length) : run_->output("tokens");
  record.loss = paced ? std::nan("") : run_->output("loss") / tokens;
  record.grad_norm = paced ? std::nan("") : std::sqrt(run_->output("sumsq")) / tokens;
  record.lr = learning_rate(config_.optimizer, number, config_.steps);
  record.tokens = std::llround(tokens);
  record.tokens_per_s = tokens / record.step_s;
  const double flops = record.tokens_per_s * config_.model.flops_per_token(config_.data.sequence_length);
  record.tflops = flops / 1e12;
  if (peak_flops_) record.mfu = flops / *peak_flops_;
  record.peak_memory_bytes = run_->memory_bytes();
  record.strategy = strategy_.name;
  if (!paced && (!std::isfinite(record.loss) || !std::isfinite(record.grad_norm))) {
    throw RuntimeFailure(
        fmt::format("[train] the loss must be finite. At step {} loss is {} and the gradient norm {}; {}. A smaller "
                    "optimizer.lr may mend it.",
                    number, record.loss, record.grad_norm, run_->find_non_finite(feeder)));
  }
  return record;
}

double Trainer::evaluate() {
  auto& trained = run_->executors();
  auto& evaluating = evaluation_->executors();
  for (std::size_t r = 0; r < trained.size(); ++r) {
    std::map<std::string, Executor::LeafView> from;
    for (const Executor::LeafView& leaf : trained[r]->leaves()) from[leaf.leaf->name] = leaf;
    for (const Executor::LeafView& to : evaluating[r]->leaves()) {
      const auto source = from.find(to.leaf->name);
      check_internal(source != from.end() && source->second.box == to.box,
                     "evaluation holds the same part of each leaf as training");
      const auto bytes = static_cast<std::size_t>(volume(to.box)) * element_bytes(config_.precision);
      std::memcpy(to.data, source->second.data, bytes);
    }
  }
  const std::int64_t batch = strategy_.global_batch();
  double loss = 0;
  double tokens = 0;
  for (std::int64_t first = 0; first < validation_->samples(); first += batch) {
    const std::int64_t count = std::min(batch, validation_->samples() - first);
    evaluation_->step([&](const FeedRequest& request) { feed(*validation_, first, count, 1, request); });
    loss += evaluation_->output("loss");
    tokens += evaluation_->output("tokens");
  }
  return loss / tokens;
}

Finish Trainer::run(const std::atomic<bool>& interrupted, const Listeners& listeners) {
  const std::int64_t last = config_.last_step();
  const bool writes = job_ == nullptr || job_->rank() == 0;
  const Log log(writes ? config_.log_json : "");
  TraceFile trace(writes ? config_.trace : "");
  if (!config_.trace.empty()) run_->trace(kTracedEvents);
  Finish finish = Finish::kDone;
  for (std::int64_t number = 1; number <= last; ++number) {
    const StepRecord record = step(number);
    log.write(to_json(record));
    if (number % config_.log_every == 0 || number == last || number == 1) listeners.line(record);
    listeners.progress(record);
    if (config_.eval_every > 0 && (number % config_.eval_every == 0 || number == last)) {
      const double loss = evaluate();
      log.write(fmt::format("{{\"event\":\"eval\",\"step\":{},\"loss\":{}}}", number, finite_or_null(loss)));
      listeners.note(fmt::format("eval after step {}: validation loss {:.4f}", number, loss));
    }
    if (stops(interrupted, number)) {
      finish = Finish::kInterrupted;
      break;
    }
  }
  if (!config_.trace.empty()) trace.finish(run_->trace_text());
  return finish;
}

std::string to_json(const StepRecord& r) {
  using Json = nlohmann::json;
  const std::string name = Json(r.strategy).dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"grad_norm\":{},\"lr\":{},\"tokens\":{},\"step_s\":{},\"tokens_per_s\":{},\"tflops\":"
      "{},\"mfu\":{},\"peak_memory_bytes\":[{}],\"strategy\":{}}}",
      r.step, finite_or_null(r.loss), finite_or_null(r.grad_norm), number_text(r.lr), r.tokens, number_text(r.step_s),
      number_text(r.tokens_per_s), number_text(r.tflops), r.mfu ? number_text(*r.mfu) : "null",
      fmt::join(r.peak_memory_bytes, ","), name);
}

std::string to_line(const StepRecord& r, std::int64_t steps) {
  const std::size_t most =
      r.peak_memory_bytes.empty() ? 0 : *std::max_element(r.peak_memory_bytes.begin(), r.peak_memory_bytes.end());
  const std::string mfu = r.mfu ? fmt::format("  mfu {:.1f} %", *r.mfu * 100) : "";
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:.2f} s  {:.0f} tokens/s  {:.3f} TFLOP/s{}  memory "
      "{:.2f} GiB",
      r.step, std::to_string(steps).size(), steps, r.loss, r.grad_norm, r.lr, r.step_s, r.tokens_per_s, r.tflops, mfu,
      static_cast<double>(most) / (1 << 30));
}

}  // namespace hspmd
