// What the devices do in their rounds, all together, is what the plan says.
#include "hspmd/specialize/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hspmd/annotation/annotation_samples.h"
#include "hspmd/comm/interpret.h"

namespace hspmd {
namespace {

using Buffer = std::vector<std::int64_t>;

// Element `global` of the tensor in a buffer that holds a piece.
std::size_t at(const Piece& piece, std::size_t global, const Shape& shape) {
  std::size_t index = 0, stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto coordinate = static_cast<std::int64_t>(global % static_cast<std::size_t>(shape[d]));
    global /= static_cast<std::size_t>(shape[d]);
    EXPECT_TRUE(coordinate >= piece.box[d].begin && coordinate < piece.box[d].end)
        << "outside " << to_string(piece.box);
    index += static_cast<std::size_t>(coordinate - piece.box[d].begin) * stride;
    stride *= static_cast<std::size_t>(piece.box[d].size());
  }
  return static_cast<std::size_t>(piece.offset) + index;
}

// All devices in lockstep, round by round, each with a buffer for every state.
class Lockstep {
 public:
  Lockstep(const CommPlan& plan, const Annotation& from, const Annotation& to, const Shape& shape,
           const comm::Holdings& before, const Hosts& hosts)
      : to_(to), shape_(shape) {
    std::vector<Device> devices = devices_of(from);
    const std::vector<Device> more = devices_of(to);
    devices.insert(devices.end(), more.begin(), more.end());
    for (const Device d : devices) {
      if (exchanges_.contains(d)) continue;
      const LocalExchange& exchange = exchanges_[d] = local_exchange(plan, from, to, shape, d, hosts);
      auto& states = buffers_[d];
      states.resize(static_cast<std::size_t>(exchange.states));
      if (before.contains(d)) states.front() = before.at(d).front().data;
      for (std::size_t s = 1; s + 1 < states.size(); ++s)
        states[s].resize(static_cast<std::size_t>(exchange.elements[s - 1]));
      if (const auto shard = owned(to, d, shape)) states.back().resize(static_cast<std::size_t>(volume(shard->box)));
      if (exchange.in_place) states.pop_back();  // the first serves as the last
    }
  }

  comm::Holdings run() {
    const std::size_t rounds = exchanges_.begin()->second.rounds.size();
    for (std::size_t r = 0; r < rounds; ++r) {
      std::map<Device, std::vector<Device>> readers;
      for (const auto& [device, exchange] : exchanges_) {
        for (const Pull& pull : exchange.rounds[r].pulls) {
          read(device, exchange, r, pull);
          for (const Source& source : pull.sources) {
            if (source.device != device) readers[source.device].push_back(device);
          }
        }
      }
      for (const auto& [device, exchange] : exchanges_) {
        expect_readers(exchange.rounds[r], readers[device]);
        expect_shown(device, r);
      }
    }
    comm::Holdings after;
    for (const Device d : devices_of(to_)) after[d].push_back({owned(to_, d, shape_)->box, buffers_[d].back()});
    for (const auto& [device, exchange] : exchanges_) in_place_ = in_place_ || exchange.in_place;
    return after;
  }
  [[nodiscard]] bool any_in_place() const { return in_place_; }

 private:
  Buffer& state(Device device, std::size_t s) { return buffers_[device][exchanges_[device].in_place ? 0 : s]; }

  void read(Device device, const LocalExchange& exchange, std::size_t r, const Pull& pull) {
    const auto fills = static_cast<std::size_t>(exchange.rounds[r].fills);
    for (std::size_t i = 0; i < static_cast<std::size_t>(volume(pull.box)); ++i) {
      const std::size_t global = comm::element_at(pull.box, i, shape_);
      std::int64_t value = exchange.reduction == Reduction::kSum ? 0 : comm::kMinusInfinity;
      for (const Source& source : pull.sources) {
        const auto shown = static_cast<std::size_t>(exchange.rounds[r].reads);
        const std::int64_t part = state(source.device, shown)[at(source.piece, global, shape_)];
        value = exchange.reduction == Reduction::kSum ? value + part : std::max(value, part);
      }
      state(device, fills)[at(pull.into, global, shape_)] = value;
    }
  }

  static void expect_readers(const Round& round, std::vector<Device> readers) {
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    EXPECT_EQ(round.readers, readers);
    EXPECT_EQ(round.shows >= 0, !readers.empty());
  }

  // What a device says that others read is what they pull, box by box.
  void expect_shown(Device device, std::size_t r) {
    std::map<Device, std::int64_t> shown, pulled;  // elements
    const auto& says = exchanges_.at(device).rounds[r].shown;
    for (const Shown& s : says) shown[s.reader] += volume(s.box);
    for (const auto& [reader, exchange] : exchanges_) {
      for (const Pull& pull : exchange.rounds[r].pulls) {
        for (const Source& source : pull.sources) {
          if (source.device != device || reader == device) continue;
          pulled[reader] += volume(pull.box);
          EXPECT_TRUE(std::any_of(says.begin(), says.end(), [&, who = reader](const Shown& s) {
            return s.reader == who && contains(s.box, pull.box);
          })) << to_string(pull.box);
        }
      }
    }
    EXPECT_EQ(shown, pulled);
  }

  const Annotation& to_;
  const Shape& shape_;
  std::map<Device, LocalExchange> exchanges_;
  std::map<Device, std::vector<Buffer>> buffers_;
  bool in_place_ = false;
};

// Whether some device works in place.
bool expect_law(const Annotation& from, const Annotation& to, const Shape& shape, const Hosts& hosts = {}) {
  SCOPED_TRACE(to_string(from) + "  ->  " + to_string(to) + "  of " + to_string(shape));
  samples::Random random(1);
  std::vector<std::int64_t> tensor(static_cast<std::size_t>(volume(shape)));
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::int64_t>(i) * 7919 + 13;
  const auto before =
      comm::lay_out(from, tensor, shape, [&] { return static_cast<std::int64_t>(random() % 1000) - 500; });
  const CommPlan plan = resolve_plan(from, to, shape, Cluster::uniform(8));

  Lockstep devices(plan, from, to, shape, before, hosts);
  const comm::Holdings after = devices.run();

  EXPECT_EQ(comm::meaning(to, after, shape), tensor) << to_string(plan);
  return devices.any_in_place();
}

TEST(ExchangeLaw, HoldsForAllPairsOverThreeDevices) {
  const auto annotations = samples::all_annotations(3, 1, Reduction::kSum);
  for (const Annotation& from : annotations) {
    for (const Annotation& to : annotations) {
      expect_law(from, to, {5});
      if (HasFailure()) return;
    }
  }
}

TEST(ExchangeLaw, HoldsForRandomPairs) {
  samples::Random random(4);
  for (int i = 0; i < 4000; ++i) {
    const int rank = samples::draw(random, 0, 3);
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(samples::draw(random, samples::draw(random, 0, 9) == 0 ? 0 : 1, 7));
    const Reduction reduction = samples::draw(random, 0, 3) == 0 ? Reduction::kMax : Reduction::kSum;
    expect_law(samples::random_annotation(random, 8, rank, reduction),
               samples::random_annotation(random, 8, rank, reduction), shape);
    if (HasFailure()) return;
  }
}

// Large all-reduces go in two halves, large copies from several senders.
TEST(ExchangeLaw, HoldsForLargerTensors) {
  samples::Random random(6);
  for (int i = 0; i < 100; ++i) {
    expect_law(samples::random_annotation(random, 6, 2, Reduction::kSum),
               samples::random_annotation(random, 6, 2, Reduction::kSum), {96, 160});
    if (HasFailure()) return;
  }
  EXPECT_TRUE(expect_law(parse_annotation("{0-3: Px4}"), parse_annotation("{0-3: Dx4}"), {96, 160}));
  EXPECT_TRUE(expect_law(parse_annotation("{0-2: Px3}"), parse_annotation("{0-2: Dx3}"), {97, 161}));
  EXPECT_TRUE(expect_law(parse_annotation("top P {0-2: S0x3 | 3,4: S0x2 | 5:}"),
                         parse_annotation("top D {0-2: S0x3 | 3,4: S0x2 | 5:}"), {97, 161}));
  expect_law(parse_annotation("{0-3: Px2 Dx2}"), parse_annotation("{0-3: Dx4}"), {96, 160});
}

// Two hosts, three hosts, a host of one.
TEST(ExchangeLaw, HoldsOverSeveralHosts) {
  samples::Random random(8);
  const Hosts kinds[] = {{0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 2, 2, 1, 0}, {5, 9, 9, 9, 9, 9, 9, 9}};
  for (const Hosts& hosts : kinds) {
    for (int i = 0; i < 60; ++i) {
      expect_law(samples::random_annotation(random, 8, 2, Reduction::kSum),
                 samples::random_annotation(random, 8, 2, Reduction::kSum), {97, 61}, hosts);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(expect_law(parse_annotation("{0-7: Px8}"), parse_annotation("{0-7: Dx8}"), {97, 61}, hosts));
    expect_law(parse_annotation("top P {0-2: S0x3 | 3-4: S0x2 | 5-7: S1x3}"),
               parse_annotation("top D {0-2: S0x3 | 3-4: S0x2 | 5-7: S1x3}"), {97, 61}, hosts);
    expect_law(parse_annotation("{0-7: Px8}"), parse_annotation("{0-7: Dx8}"), {3, 700}, hosts);
  }
}

// Between two hosts of four, an all-reduce brings the tensor into each once, whatever the participants.
TEST(Exchange, TwoLevelsMoveTheLeastBetweenHosts) {
  const Annotation from = parse_annotation("{0-7: Px8}");
  const Annotation to = parse_annotation("{0-7: Dx8}");
  const Shape shape = {128, 64};
  const Hosts hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  const CommPlan plan = resolve_plan(from, to, shape, Cluster::uniform(8));
  std::int64_t into_host_0 = 0;
  for (Device d = 0; d < 4; ++d) {
    for (const Round& round : local_exchange(plan, from, to, shape, d, hosts).rounds) {
      for (const Pull& pull : round.pulls) {
        for (const Source& source : pull.sources) into_host_0 += source.device >= 4 ? volume(pull.box) : 0;
      }
    }
  }

  EXPECT_EQ(into_host_0, volume(shape));
}

}  // namespace
}  // namespace hspmd
