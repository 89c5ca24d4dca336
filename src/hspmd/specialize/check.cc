#include "hspmd/specialize/check.h"

#include <algorithm>
#include <map>
#include <set>

#include "hspmd/specialize/pipelines.h"

namespace hspmd {
namespace {

// One message: who shows to whom, in which round of which channel of which micro-batch size.
struct Message {
  int section = 0;  // kind; Pre and Post differ from the rest
  int channel = 0;
  std::size_t round = 0;
  std::int64_t size = 0;
  Device from = 0;
  Device to = 0;
  auto operator<=>(const Message&) const = default;
};

class Checker {
 public:
  explicit Checker(const CheckRequest& request) : r_(request) {}

  std::vector<std::string> run() {
    for (const Device device : r_.strategy->devices()) {
      try {
        check_device(specialize(*r_.graph, *r_.plan, device, r_.strategy->schedule));
      } catch (const InvalidArgument& error) {
        problems_.emplace_back(error.what());
        return std::move(problems_);
      }
    }
    match_messages();
    check_schedules();
    return std::move(problems_);
  }

 private:
  void check_device(const Program& program) {
    const PipelineSpec& pipeline = r_.strategy->pipelines[static_cast<std::size_t>(program.pipeline)];
    const Actions list = actions_of(program, r_.strategy->schedule, pipeline.micro_batch_sizes.size());
    if (!list.empty()) schedules_[program.pipeline][program.virtual_stages.front()] = list;
    std::array<std::size_t, kScopes> bytes = {};
    std::set<std::int64_t> sizes(pipeline.micro_batch_sizes.begin(), pipeline.micro_batch_sizes.end());
    for (const std::int64_t size : sizes) {
      const BoundProgram bound =
          bind(program, {{{kBatch, size}, {kSequence, r_.sequence_length}}, r_.float_bytes, r_.cluster});
      for (std::size_t s = 0; s < kScopes; ++s) bytes[s] = std::max(bytes[s], bound.bytes[s]);
      collect(program, bound, size);
    }
    const std::size_t total = lay_out_memory(program, bytes, std::max(1, max_in_flight(list))).total;
    if (auto why = why_too_large(*r_.cluster, program.device, total)) problems_.push_back(std::move(*why));
  }

  void collect(const Program& program, const BoundProgram& bound, std::int64_t size) {
    for (const BoundSection& section : bound.sections) {
      const bool each = each_micro_batch(section.kind);
      for (const BoundInstruction& instruction : section.instructions) {
        const auto* exchange = std::get_if<BoundExchange>(&instruction);
        if (exchange == nullptr) continue;
        for (const BoundTransfer& t : exchange->transfers)
          collect_transfer(program.device, t,
                           {static_cast<int>(section.kind), exchange->step->channel, 0, each ? size : 0, 0, 0});
      }
    }
  }

  void collect_transfer(Device device, const BoundTransfer& t, Message message) {
    for (std::size_t r = 0; r < t.exchange.rounds.size(); ++r) {
      message.round = r;
      message.from = device;
      for (const Device reader : t.exchange.rounds[r].readers) {
        message.to = reader;
        sent_[message] = t.transfer->name;
      }
      message.to = device;
      for (const Pull& pull : t.exchange.rounds[r].pulls) {
        for (const Source& source : pull.sources) {
          if (source.device == device) continue;
          message.from = source.device;
          received_[message] = t.transfer->name;
        }
      }
    }
  }

  void match_messages() {
    for (const auto& [message, name] : sent_) {
      if (!received_.contains(message))
        problems_.push_back(
            fmt::format("{}: device {} sends what device {} does not receive", name, message.from, message.to));
    }
    for (const auto& [message, name] : received_) {
      if (!sent_.contains(message))
        problems_.push_back(
            fmt::format("{}: device {} waits for what device {} does not send", name, message.to, message.from));
    }
  }

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

  const CheckRequest& r_;
  std::vector<std::string> problems_;
  std::map<Message, std::string> sent_;
  std::map<Message, std::string> received_;
  std::map<int, std::map<int, Actions>> schedules_;
};

}  // namespace

std::vector<std::string> check(const CheckRequest& request) {
  return Checker(request).run();
}

}  // namespace hspmd
