#include "hspmd/specialize/check.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "hspmd/specialize/plan_problems.h"
#include "hspmd/specialize/replay.h"

namespace hspmd {
namespace {

// Whom a box goes from and to, in which transfer and round of which channel, for which micro-batch size.
struct Route {
  int channel = 0;
  int ordinal = 0;  // of the transfer in its exchange
  std::size_t round = 0;
  std::int64_t size = 0;
  Device from = 0;
  Device to = 0;
  auto operator<=>(const Route&) const = default;
};

struct Message {
  Route route;
  Box box;
  auto operator<=>(const Message&) const = default;
};
using Messages = std::vector<Message>;

// One program of every device.
class Checker {
 public:
  Checker(const CheckRequest& request, const Graph& graph, const Plan& plan)
      : r_(request), graph_(graph), plan_(plan) {}

  // Adds what each device holds to `memory`.
  std::vector<std::string> run(std::map<Device, std::size_t>& memory) {
    for (const Device device : r_.strategy->devices()) {
      try {
        memory[device] += check_device(specialize(graph_, plan_, device, r_.strategy->schedule));
      } catch (const InvalidArgument& error) {
        problems_.emplace_back(error.what());
        return std::move(problems_);
      }
    }
    match_messages();
    check_schedules();
    if (problems_.empty()) replay_exchanges();
    return std::move(problems_);
  }

 private:
  // What the programs of one device, one for each micro-batch size, come to.
  struct Sum {
    std::array<std::size_t, kScopes> bytes = {};
    std::size_t workspace = 0;
    std::size_t tables = 0;
    std::set<std::size_t> scheduled;  // sections that run
    ReplayDevice replayed;
  };

  // The bytes it needs.
  std::size_t check_device(const Program& program) {
    const auto& batches = r_.strategy->pipelines[static_cast<std::size_t>(program.pipeline)].micro_batch_sizes;
    const Actions list = actions_of(program, r_.strategy->schedule, batches.size());
    if (!list.empty()) schedules_[program.pipeline][program.virtual_stages.front()] = list;
    Sum sum;
    sum.replayed.device = program.device;
    sum.scheduled = {0, program.sections.size() - 1};  // Pre and Post
    for (const Action& action : list) sum.scheduled.insert(section_of(program, action));
    std::map<std::int64_t, std::size_t> first_list;  // of each size
    for (const std::int64_t size : batches) {
      if (first_list.try_emplace(size, sum.replayed.lists.size()).second) add_variant(program, size, sum);
    }
    sum.replayed.runs = runs_of(program, list, first_list);
    replayed_.push_back(std::move(sum.replayed));
    const MemoryLayout regions = lay_out_memory(program, sum.bytes, std::max(1, max_in_flight(list)));
    return device_bytes(regions, sum.workspace, sum.tables);
  }

  void add_variant(const Program& program, std::int64_t size, Sum& sum) {
    const bool first = sum.replayed.lists.empty();
    const BoundProgram bound =
        bind(program, {{{kBatch, size}, {kSequence, r_.sequence_length}}, r_.float_bytes, r_.cluster});
    for (std::size_t s = 0; s < kScopes; ++s) sum.bytes[s] = std::max(sum.bytes[s], bound.bytes[s]);
    for (std::size_t s = 0; s < bound.sections.size(); ++s) {
      auto& exchanges = sum.replayed.lists.emplace_back();
      const bool each = each_micro_batch(bound.sections[s].kind);
      for (const BoundInstruction& instruction : bound.sections[s].instructions) {
        if (const auto* compute = std::get_if<BoundCompute>(&instruction)) {
          if (r_.workspace) sum.workspace = std::max(sum.workspace, r_.workspace(*compute));
          continue;
        }
        const auto& exchange = std::get<BoundExchange>(instruction);
        const bool once = first || each;  // Pre and Post serve all sizes
        if (once) sum.tables += table_bytes(exchange);
        if (!once || !sum.scheduled.contains(s)) continue;
        collect(program.device, exchange, each ? size : 0);
        exchanges.push_back(rounds_of(program.device, exchange));
      }
    }
  }

  [[nodiscard]] std::vector<ReplayRun> runs_of(const Program& program, const Actions& list,
                                               const std::map<std::int64_t, std::size_t>& first_list) const {
    const auto& batches = r_.strategy->pipelines[static_cast<std::size_t>(program.pipeline)].micro_batch_sizes;
    const std::size_t once = first_list.at(batches.front());
    std::vector<ReplayRun> runs = {{once, -1}};
    for (const Action& action : list) {
      const std::size_t first = first_list.at(batches[static_cast<std::size_t>(action.micro_batch)]);
      runs.push_back({first + section_of(program, action), action.micro_batch});
    }
    runs.push_back({once + program.sections.size() - 1, -1});
    return runs;
  }

  static ReplayExchange rounds_of(Device device, const BoundExchange& exchange) {
    ReplayExchange replayed{exchange.step->channel, exchange.step->crossing, {}};
    for (std::size_t r = 0; r < exchange.rounds; ++r) {
      std::set<Device> peers, readers;
      for (const BoundTransfer& t : exchange.transfers) {
        if (r >= t.exchange.rounds.size()) continue;
        const Round& round = t.exchange.rounds[r];
        readers.insert(round.readers.begin(), round.readers.end());
        for (const Pull& pull : round.pulls) {
          for (const Source& source : pull.sources) peers.insert(source.device);
        }
      }
      peers.erase(device);
      replayed.rounds.push_back({{peers.begin(), peers.end()}, {readers.begin(), readers.end()}});
    }
    return replayed;
  }

  void collect(Device device, const BoundExchange& exchange, std::int64_t size) {
    for (const BoundTransfer& t : exchange.transfers) {
      const int channel = exchange.step->channel;
      names_.try_emplace({channel, t.transfer->ordinal}, t.transfer->name);
      for (std::size_t r = 0; r < t.exchange.rounds.size(); ++r) {
        const Round& round = t.exchange.rounds[r];
        const auto route = [&](Device from, Device to) {
          return Route{channel, t.transfer->ordinal, r, size, from, to};
        };
        for (const Shown& shown : round.shown) sent_.push_back({route(device, shown.reader), shown.box});
        for (const Pull& pull : round.pulls) {
          for (const Source& source : pull.sources) {
            if (source.device != device) received_.push_back({route(source.device, device), pull.box});
          }
        }
      }
    }
  }

  // Route by route: what is received must be what is sent. A receiver may take a box in several pieces.
  void match_messages() {
    std::sort(sent_.begin(), sent_.end());
    std::sort(received_.begin(), received_.end());
    auto sent = sent_.cbegin();
    auto received = received_.cbegin();
    while (sent != sent_.cend() || received != received_.cend()) {
      const bool from_sent = received == received_.cend() || (sent != sent_.cend() && sent->route <= received->route);
      const Route route = from_sent ? sent->route : received->route;
      const auto of_route = [&](auto at, auto end) {
        return std::find_if(at, end, [&](const Message& m) { return m.route != route; });
      };
      const auto sent_end = of_route(sent, sent_.cend());
      const auto received_end = of_route(received, received_.cend());
      match_boxes({sent, sent_end}, {received, received_end});
      sent = sent_end;
      received = received_end;
    }
  }

  void match_boxes(std::span<const Message> sent, std::span<const Message> received) {
    std::vector<std::int64_t> open;  // elements of each box sent that nobody has received so far
    for (const Message& m : sent) open.push_back(volume(m.box));
    for (const Message& m : received) {
      const auto whole_box =
          std::find_if(sent.begin(), sent.end(), [&](const Message& s) { return contains(s.box, m.box); });
      if (whole_box == sent.end()) {
        problems_.push_back(fmt::format("{}: device {} waits for {}, which device {} does not send", name(m.route),
                                        m.route.to, to_string(m.box), m.route.from));
      } else {
        open[static_cast<std::size_t>(whole_box - sent.begin())] -= volume(m.box);
      }
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (open[i] != 0)
        problems_.push_back(fmt::format("{}: device {} sends {}, which device {} does not receive", name(sent[i].route),
                                        sent[i].route.from, to_string(sent[i].box), sent[i].route.to));
    }
  }

  [[nodiscard]] const std::string& name(const Route& route) const { return names_.at({route.channel, route.ordinal}); }

  void check_schedules() {
    for (const auto& [pipeline, stages] : schedules_) {
      std::vector<Actions> lists;
      for (const auto& [stage, list] : stages) lists.push_back(list);
      const auto count =
          static_cast<int>(r_.strategy->pipelines[static_cast<std::size_t>(pipeline)].micro_batch_sizes.size());
      if (const auto why = why_invalid(lists, count))
        problems_.push_back(fmt::format("pipeline {}: {}", pipeline, *why));
    }
  }

  void replay_exchanges() {
    for (const Stuck& stuck : replay(replayed_)) {
      const std::string when = stuck.micro_batch < 0 ? "" : fmt::format(" of micro-batch {}", stuck.micro_batch);
      problems_.push_back(fmt::format(
          "device {} waits for ever in {}{} for {} {}", stuck.device, names_.lower_bound({stuck.channel, 0})->second,
          when, stuck.waits_for.size() > 1 ? "one of the devices" : "device", fmt::join(stuck.waits_for, ", ")));
    }
  }

  const CheckRequest& r_;
  const Graph& graph_;
  const Plan& plan_;
  std::vector<std::string> problems_;
  Messages sent_;
  Messages received_;
  std::map<std::pair<int, int>, std::string> names_;  // of the Reshard: channel, ordinal
  std::map<int, std::map<int, Actions>> schedules_;
  std::vector<ReplayDevice> replayed_;
};

}  // namespace

std::vector<std::string> check(const CheckRequest& request) {
  std::vector<std::string> found = problems(*request.plan, *request.strategy, *request.graph);
  if (!found.empty()) return found;
  std::map<Device, std::size_t> memory;
  found = Checker(request, *request.graph, *request.plan).run(memory);
  if (request.evaluation != nullptr && found.empty())
    found = Checker(request, *request.evaluation, *request.evaluation_plan).run(memory);
  for (const auto& [device, bytes] : memory) {
    if (auto why = why_too_large(*request.cluster, device, bytes)) found.push_back(std::move(*why));
  }
  return found;
}

}  // namespace hspmd
