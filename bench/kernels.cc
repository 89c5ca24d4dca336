// What each kernel of a training step takes. One device's program of preset `small` is bound as the executor binds it,
// then its kernels run in their order on their planned memory, each with a clock around it: caches are as cold or
// warm as in training. Once on one thread, once on two threads that each run a step of their own.
//
//   bench_kernels [STEPS]     the median of so many steps (5), after one that warms up
//
// Rates are by the clock on the wall. Where the cores were had for less than the whole time, others used them (or the
// kernels wait for each other): such rates say nothing of the kernels, and the last column of the summary tells.
#include <cblas.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "bars.h"
#include "hspmd/runtime/executor.h"
#include "hspmd/specialize/bind.h"
#include "hspmd/train/trainer.h"

namespace hspmd::bench {
namespace {

constexpr std::int64_t kSequences = 16;  // a step
constexpr std::int64_t kLength = 512;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double processor_seconds() {  // of this thread
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Calls work(thread) on `count` threads that begin together; rethrows the first failure.
void on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count));
  std::barrier begin(count);
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      begin.arrive_and_wait();
      try {
        work(t);
      } catch (...) {
        failures[static_cast<std::size_t>(t)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// The best of several square products, GFLOP/s a thread: the slowest thread's.
double gemm_gflops(int threads) {
  constexpr int kSize = 1024;
  std::vector<double> best(static_cast<std::size_t>(threads));
  on_threads(threads, [&](int t) {
    std::vector<float> a(kSize * kSize, 1), b(kSize * kSize, 1), c(kSize * kSize);
    for (int i = 0; i < 20; ++i) {
      const double s = seconds_of([&] {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1, a.data(), kSize, b.data(), kSize,
                    0, c.data(), kSize);
      });
      best[static_cast<std::size_t>(t)] =
          std::max(best[static_cast<std::size_t>(t)], 2.0 * kSize * kSize * kSize / s / 1e9);
    }
  });
  return *std::min_element(best.begin(), best.end());
}

// All nodes of one operator with the same shapes.
struct Row {
  int calls = 0;  // a step
  Cost cost;      // a step
};
using Rows = std::map<std::string, Row>;
using Seconds = std::map<std::string, double>;  // a step, by row

// One device's step without the executor around it.
class Replay {
 public:
  Replay(const Program& program, const Cluster& cluster, std::int64_t micro_batch)
      : program_(program),
        micro_batches_(kSequences / micro_batch),
        bound_(bind(program, {{{kBatch, micro_batch}, {kSequence, kLength}}, sizeof(float), &cluster})) {
    for (std::size_t s = 0; s < kScopes; ++s) regions_[s] = allocate(bound_.bytes[s]);
    std::size_t workspace = 0;
    for (const BoundSection& section : bound_.sections) {
      for (const BoundInstruction& instruction : section.instructions) {
        const auto* compute = std::get_if<BoundCompute>(&instruction);
        if (compute == nullptr) throw InternalError("[bench] one device has nothing to exchange");
        sections_[section.kind].push_back(make_item(*compute, section.kind));
        workspace = std::max(workspace, sections_[section.kind].back().kernel->workspace_bytes());
      }
    }
    workspace_ = allocate(workspace);
    fill_leaves();
    fill_feeds();
  }

  [[nodiscard]] const Rows& rows() const { return rows_; }

  // Seconds of each row in one step.
  Seconds step() {
    Seconds seconds;
    for (std::size_t i = 0; i < program_.slots.size(); ++i) {
      if (program_.slots[i].accumulates)
        std::fill_n(static_cast<float*>(at(bound_.slots[i])), volume(bound_.boxes[i]), 0.0F);
    }
    run(SectionKind::kPre, seconds);
    for (std::int64_t m = 0; m < micro_batches_; ++m) {
      run(SectionKind::kForward, seconds);
      run(SectionKind::kBackward, seconds);
    }
    run(SectionKind::kPost, seconds);
    return seconds;
  }

 private:
  using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
  struct Item {
    std::unique_ptr<Kernel> kernel;
    std::vector<const void*> operands;
    std::vector<void*> results;
    std::string row;
  };

  // Zeroed, so that a page is there before the clock runs.
  static Memory allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes / kAlignment + 1) * kAlignment;
    Memory memory(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)), &std::free);
    std::fill_n(memory.get(), rounded, std::byte{0});
    return memory;
  }
  [[nodiscard]] void* at(const Address& address) const {
    return regions_[static_cast<std::size_t>(address.scope)].get() + address.offset;
  }

  Item make_item(const BoundCompute& compute, SectionKind kind) {
    const ComputeStep& step = *compute.step;
    Item item;
    for (const Address& address : compute.operands) item.operands.push_back(at(address));
    for (const Address& address : compute.results) item.results.push_back(at(address));
    item.kernel = make_aten_kernel({step.op, &step.attributes, compute.operand_boxes, compute.result_boxes,
                                    Precision::kFp32, step.adds ? Write::kAdd : Write::kSet});
    std::vector<Shape> operands, results;
    for (const Box& box : compute.operand_boxes) operands.push_back(extents(box));
    for (const Box& box : compute.result_boxes) results.push_back(extents(box));
    const std::string what =
        step.attributes.has("factors") ? step.attributes.text("factors") : std::string(step.op->name());
    item.row = fmt::format("{}{} {}", what, step.adds ? " +=" : "", to_string(results.front()));
    const bool often = each_micro_batch(kind);
    const int calls = often ? static_cast<int>(micro_batches_) : 1;
    const Cost cost = step.op->cost(step.attributes, operands, results);
    Row& row = rows_[item.row];
    row.calls += calls;
    row.cost.flops += calls * cost.flops;
    row.cost.bytes += calls * cost.bytes;
    return item;
  }

  void run(SectionKind kind, Seconds& seconds) {
    for (Item& item : sections_[kind]) {
      seconds[item.row] += seconds_of([&] { item.kernel->run(item.operands, item.results, workspace_.get()); });
    }
  }

  void fill_leaves() {
    for (const LeafSlot& leaf : program_.leaves) {
      const auto slot = static_cast<std::size_t>(leaf.slot);
      auto* data = static_cast<float*>(at(bound_.slots[slot]));
      const std::int64_t n = volume(bound_.boxes[slot]);
      for (std::int64_t i = 0; i < n; ++i) {
        const bool constant = leaf.kind == LeafKind::kConstant;
        data[i] = static_cast<float>(
            constant ? leaf.constant : initial_element(leaf.initial, 1, leaf.name, static_cast<std::uint64_t>(i)));
      }
    }
  }

  // Positions count up, one segment, any bytes as ids and targets; a step's learning rate and corrections.
  void fill_feeds() {
    for (const Feed& feed : program_.feeds) {
      const auto slot = static_cast<std::size_t>(feed.slot);
      const std::int64_t n = volume(bound_.boxes[slot]);
      if (feed.time == Time::kStep) {
        const std::array<float, 3> values = {1e-4F, 0.1F, 0.05F};
        std::copy_n(values.begin(), n, static_cast<float*>(at(bound_.slots[slot])));
        continue;
      }
      auto* data = static_cast<std::int32_t*>(at(bound_.slots[slot]));
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t value = feed.name == "positions"  ? i % kLength
                                   : feed.name == "segments" ? 0
                                                             : i * 7919 % 251;
        data[i] = static_cast<std::int32_t>(value);
      }
    }
  }

  const Program& program_;
  std::int64_t micro_batches_;
  BoundProgram bound_;
  std::array<Memory, kScopes> regions_ = {Memory{nullptr, &std::free}, Memory{nullptr, &std::free},
                                          Memory{nullptr, &std::free}, Memory{nullptr, &std::free},
                                          Memory{nullptr, &std::free}};
  Memory workspace_{nullptr, &std::free};
  std::map<SectionKind, std::vector<Item>> sections_;
  Rows rows_;
};

struct Measured {
  Seconds seconds;        // median of each row; of the slower thread where there are several
  double core_share = 1;  // of the wall clock for which a thread had its core; the least of all steps and threads
};

Measured measure(std::vector<std::unique_ptr<Replay>>& replays, int steps) {
  std::vector<Seconds> slowest(static_cast<std::size_t>(steps));
  Measured measured;
  for (int s = -1; s < steps; ++s) {  // the first warms up
    std::vector<Seconds> own(replays.size());
    std::vector<double> shares(replays.size());
    on_threads(static_cast<int>(replays.size()), [&](int t) {
      const auto thread = static_cast<std::size_t>(t);
      const double before = processor_seconds();
      const double wall = seconds_of([&] { own[thread] = replays[thread]->step(); });
      shares[thread] = (processor_seconds() - before) / wall;
    });
    if (s < 0) continue;
    measured.core_share = std::min(measured.core_share, *std::min_element(shares.begin(), shares.end()));
    for (const Seconds& seconds : own) {
      for (const auto& [row, value] : seconds)
        slowest[static_cast<std::size_t>(s)][row] = std::max(slowest[static_cast<std::size_t>(s)][row], value);
    }
  }
  for (const auto& [row, value] : slowest.front()) {
    std::vector<double> values;
    for (const Seconds& seconds : slowest) values.push_back(seconds.at(row));
    measured.seconds[row] = quantile(values, 0.5);
  }
  return measured;
}

double sum(const Seconds& seconds) {
  double total = 0;
  for (const auto& [row, value] : seconds) total += value;
  return total;
}

// The longest first.
void print_table(const Rows& rows, const Seconds& one, const Seconds& two) {
  std::vector<std::string> order;
  for (const auto& [row, value] : one) order.push_back(row);
  std::sort(order.begin(), order.end(),
            [&](const std::string& a, const std::string& b) { return one.at(a) > one.at(b); });
  const double total = sum(one);
  fmt::print("{:<42} {:>5} {:>8} {:>6} {:>8} {:>6} {:>11}\n", "kernel and first result", "calls", "ms", "share",
             "GFLOP/s", "GB/s", "ms, 2 busy");
  for (const std::string& row : order) {
    const Row& r = rows.at(row);
    const double s = one.at(row);
    if (s < 1e-3 * total) continue;
    fmt::print("{:<42} {:>5} {:>8.1f} {:>5.1f}% {:>8.1f} {:>6.1f} {:>11.1f}\n", row, r.calls, 1e3 * s, 100 * s / total,
               r.cost.flops / s / 1e9, r.cost.bytes / s / 1e9, 1e3 * two.at(row));
  }
}

void run(int steps) {
  limit_kernel_threads(1);
  const std::array<double, 2> peaks = {gemm_gflops(1), gemm_gflops(2)};
  fmt::print("sgemm peak: {:.1f} GFLOP/s on one core, {:.1f} each on two\n", peaks[0], peaks[1]);
  const LlamaConfig model = llama_preset("small");
  const Strategy strategy{"one", ScheduleKind::kOneFOneB, {{{1}, {{.devices = {0}, .layers = {0, model.layers}}}}}};
  const StepProgram built = build_step(model, strategy, {}, std::nullopt);
  const Program program = specialize(built.graph, built.plan, 0);
  const Cluster cluster = Cluster::uniform(1);
  const double flops = model.flops_per_token(kLength) * static_cast<double>(kSequences * kLength);
  std::vector<Bar> bars = {{"sgemm GFLOP/s, one core", peaks[0], peaks[0], peaks[0], "informational", true},
                           {"sgemm GFLOP/s a core, both busy", peaks[1], peaks[1], peaks[1], "informational", true}};
  for (const std::int64_t micro_batch : {4, 1}) {
    std::vector<std::unique_ptr<Replay>> replays;
    replays.push_back(std::make_unique<Replay>(program, cluster, micro_batch));
    const Measured one = measure(replays, steps);
    replays.push_back(std::make_unique<Replay>(program, cluster, micro_batch));
    const Measured two = measure(replays, steps);
    fmt::print("\nmicro-batches of {} x {} tokens\n", micro_batch, kLength);
    print_table(replays.front()->rows(), one.seconds, two.seconds);
    for (const auto& [name, measured] : {std::pair("one core", &one), std::pair("a core, both busy", &two)}) {
      const double seconds = sum(measured->seconds);
      const double rate = flops / seconds / 1e9;
      fmt::print("all kernels of a step, {}: {:.2f} s, {:.1f} GFLOP/s; the cores were had for {:.0f}% of it\n", name,
                 seconds, rate, 100 * measured->core_share);
      bars.push_back({fmt::format("step GFLOP/s, {} x {} tokens, {}", micro_batch, kLength, name), rate, rate, rate,
                      "informational", true});
      bars.push_back({fmt::format("share of the core, {} x {} tokens, {}", micro_batch, kLength, name),
                      measured->core_share, measured->core_share, measured->core_share, "informational", true});
    }
  }
  print_bars("kernels", bars);
}

}  // namespace
}  // namespace hspmd::bench

int main(int argc, char** argv) {
  hspmd::bench::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 5);
}
