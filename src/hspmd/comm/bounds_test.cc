// Law 2: nothing beats the bounds, and what we claim to be best is what brute force finds.
#include "hspmd/comm/bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "hspmd/annotation/annotation_samples.h"
#include "hspmd/comm/balance.h"

namespace hspmd::comm {
namespace {

// The fewest sends of one element after which every requirer has its whole value, by breadth-first search. What a
// device has is a set of sums, each a bit mask of addends; the addends of different alternatives have different bits.
class FewestSends {
 public:
  FewestSends(const Annotation& from, const Annotation& to, int devices) : devices_(devices) {
    const bool merged = from.top() && is_partial(from.top()->placement);
    State first(static_cast<std::size_t>(devices), 0);
    int bit = 0;
    for (std::size_t k = 0; k < from.subgroups().size(); ++k) {
      const int addends = from.subgroups()[k].addends();
      for (const Device d : from.subgroups()[k].devices()) {
        if (const Shard shard = *owned(from, d, {1}); volume(shard.box) > 0)
          has(first[static_cast<std::size_t>(d)], 1U << (bit + shard.addend));
      }
      const bool holds = std::any_of(from.subgroups()[k].devices().begin(), from.subgroups()[k].devices().end(),
                                     [&](Device d) { return volume(owned(from, d, {1})->box) > 0; });
      if (!holds) continue;
      const unsigned all = ((1U << addends) - 1) << bit;
      if (merged && !wholes_.empty()) {
        wholes_[0] |= all;
      } else {
        wholes_.push_back(all);
      }
      bit += addends;
    }
    for (const Device d : devices_of(to)) {
      if (volume(owned(to, d, {1})->box) > 0) requirers_.push_back(d);
    }
    first_ = first;
  }

  int search() const {
    std::set<State> seen = {first_};
    std::deque<std::pair<State, int>> queue = {{first_, 0}};
    while (!queue.empty()) {
      const auto [state, sends] = queue.front();
      queue.pop_front();
      if (done(state)) return sends;
      for (int from = 0; from < devices_; ++from) {
        for (unsigned mask = 1; mask < 16; ++mask) {
          if ((state[static_cast<std::size_t>(from)] >> mask & 1U) == 0) continue;
          for (int to = 0; to < devices_; ++to) {
            State next = state;
            has(next[static_cast<std::size_t>(to)], mask);
            if (seen.insert(next).second) queue.emplace_back(std::move(next), sends + 1);
          }
        }
      }
    }
    return -1;
  }

 private:
  using State = std::vector<unsigned>;  // by device the sums it can show, a bit for each mask

  // Adds a sum and all it makes with sums of other addends.
  static void has(unsigned& sums, unsigned mask) {
    sums |= 1U << mask;
    for (bool grown = true; grown;) {
      const unsigned before = sums;
      for (unsigned a = 1; a < 16; ++a) {
        for (unsigned b = a + 1; b < 16; ++b) {
          if ((before >> a & 1U) != 0 && (before >> b & 1U) != 0 && (a & b) == 0) sums |= 1U << (a | b);
        }
      }
      grown = sums != before;
    }
  }

  bool done(const State& state) const {
    return std::all_of(requirers_.begin(), requirers_.end(), [&](Device d) {
      return std::any_of(wholes_.begin(), wholes_.end(),
                         [&](unsigned whole) { return (state[static_cast<std::size_t>(d)] >> whole & 1U) != 0; });
    });
  }

  int devices_;
  State first_;
  std::vector<unsigned> wholes_;
  std::vector<Device> requirers_;
};

// Do several ways compete that cost unlike bytes? Among alternatives each device takes its own where it can; and where
// both tiers change, one after the other may be sooner done.
bool trades_bytes_for_time(const Annotation& from, const Annotation& to) {
  if (!reduction_of(from) || !from.top()) return false;
  return is_duplicate(from.top()->placement) ||
         (to.top() && from.top() != to.top() && from.subgroups() != to.subgroups());
}

TEST(BoundsLaw, BytesAreTheFewestThatBruteForceFinds) {
  const Cluster cluster = Cluster::uniform(4);
  std::vector<Annotation> sides = samples::all_annotations(3, 1, Reduction::kSum);
  for (const char* text : {"{0:}", "{3:}", "{1,3: Px2}", "{2-3: Dx2}", "{0-3: Px2 Dx2}", "{0-3: Px4}", "{0-3: Dx4}",
                           "top P {0-1: Dx2 | 2:}"}) {
    sides.push_back(parse_annotation(text));
  }
  int exact = 0;
  for (const Annotation& from : sides) {
    for (const Annotation& to : sides) {
      if (reduction_of(to)) continue;
      const int fewest = FewestSends(from, to, 4).search();

      const CommPlan plan = resolve(from, to, {1}, cluster);

      ASSERT_LE(plan.lower_bound_bytes, 4 * fewest) << to_string(from) << " -> " << to_string(to);
      ASSERT_GE(plan.bytes, 4 * fewest) << to_string(from) << " -> " << to_string(to) << "\n" << to_string(plan);
      if (trades_bytes_for_time(from, to)) continue;
      ++exact;
      ASSERT_EQ(plan.bytes, 4 * fewest) << to_string(from) << " -> " << to_string(to) << "\n" << to_string(plan);
      ASSERT_EQ(plan.bytes, plan.lower_bound_bytes) << to_string(from) << " -> " << to_string(to) << "\n"
                                                    << to_string(plan);
    }
  }
  EXPECT_GT(exact, 100);
}

TEST(Bounds, CountBytesByCell) {
  struct Row {
    const char* from;
    const char* to;
    Shape shape;
    std::int64_t elements;
  };
  const Row rows[] = {
      {"{0-1: S0x2}", "{0-1: Dx2}", {10, 6}, 60},
      {"{0-1: Px2}", "{0-1: Dx2}", {10, 6}, 120},
      {"{0-3: Px4}", "{0-3: S0x4}", {10}, 30},
      {"{0-3: Px4}", "{4-7: Dx4}", {}, 3 + 4},
      {"{0-1: Dx2}", "{0-1: Px2}", {7}, 0},
      {"{0-1: Px2}", "{2-3: Px2}", {7}, 0},
      {"top D {0-1: Px2 | 2:}", "{0-2: Dx3}", {5}, 10},
      {"{0-2: S0x3}", "{3-4: S0x2}", {10}, 10},
      {"{0:}", "{1:}", {0, 4}, 0},
      {"top P {0-1: Dx2 | 2:}", "{0-2: Dx3}", {5}, 15},
      {"{0-1: S0x2w0:1}", "{0:}", {5}, 5},
      {"{0-1: Px2}", "{1-2: Dx2}", {}, 1 + 2 - 1},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(least_bytes(overlay(parse_annotation(row.from), parse_annotation(row.to), row.shape), 4),
              4 * row.elements)
        << row.from << " -> " << row.to;
  }
}

// Two nodes of three devices.
Cluster two_nodes() {
  DeviceType type;
  std::vector<ClusterNode> nodes(2);
  for (ClusterNode& node : nodes) {
    node.devices = 3;
    node.nic = {40e9, 5e-6};
  }
  nodes[1].link.bytes_per_s = 200e9;
  return {{type}, nodes};
}

// The greatest load of the best choice of one holder for each requirer.
double best_by_brute_force(const std::vector<Job>& jobs, const Links& links) {
  struct Demand {
    const Job* job;
    Device requirer;
  };
  std::vector<Demand> demands;
  for (const Job& job : jobs) {
    for (const Device d : job.requirers) demands.push_back({&job, d});
  }
  std::vector<std::size_t> choice(demands.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    Loads loads(links);
    for (std::size_t i = 0; i < demands.size(); ++i) {
      loads.add(links.path(demands[i].job->holders[choice[i]], demands[i].requirer),
                static_cast<double>(demands[i].job->bytes));
    }
    best = std::min(best, loads.greatest());
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == demands[i].job->holders.size()) choice[i++] = 0;
    if (i == choice.size()) return best;
  }
}

double greatest_load(const std::vector<Sent>& sent, const Links& links, int element_bytes) {
  Loads loads(links);
  for (const Sent& s : sent) {
    const Device from = s.move.sources.front();
    const Device to = s.move.destinations.front();
    if (from != to) loads.add(links.path(from, to), static_cast<double>(volume(s.move.box) * element_bytes));
  }
  return loads.greatest();
}

std::vector<Job> random_jobs(samples::Random& random, std::int64_t rows) {
  std::vector<Job> jobs;
  for (int j = samples::draw(random, 1, 4); j > 0; --j) {
    Job job;
    job.box = {{0, rows * samples::draw(random, 1, 5)}, {0, 64}};
    job.bytes = 4 * volume(job.box);
    std::vector<Device> devices = {0, 1, 2, 3, 4, 5};
    std::shuffle(devices.begin(), devices.end(), random);
    const int holders = samples::draw(random, 1, 4);
    const int requirers = samples::draw(random, 1, 2);
    job.holders.assign(devices.begin(), devices.begin() + holders);
    job.requirers.assign(devices.begin() + holders, devices.begin() + holders + requirers);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// Boxes too small to be shared out: the bound is below, and the balanced choice near, what all choices tried give.
TEST(BoundsLaw, SmallJobsFinishNearTheBestChoiceOfAll) {
  samples::Random random(21);
  const DeviceIndex devices({0, 1, 2, 3, 4, 5});
  const Cluster cluster = two_nodes();
  const Links links(devices, cluster);
  std::vector<double> ratios;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<Job> jobs = random_jobs(random, 8);
    const double best = best_by_brute_force(jobs, links);

    const double bound = least_direct(jobs, links) - 1e-6;  // less the latency that it counts at least
    const double balance = greatest_load(balanced(jobs, links).sent, links, 4);

    ASSERT_LE(bound, best * (1 + 1e-9) + 4.1e-6);
    ASSERT_GE(balance, best * (1 - 1e-9));
    ratios.push_back(balance / best);
  }
  std::sort(ratios.begin(), ratios.end());
  EXPECT_DOUBLE_EQ(ratios[ratios.size() * 9 / 10], 1);
  EXPECT_LE(ratios.back(), 2);
}

// Large boxes are shared out: the balance meets the relaxation.
TEST(BoundsLaw, LargeJobsFinishAtTheRelaxation) {
  samples::Random random(22);
  const DeviceIndex devices({0, 1, 2, 3, 4, 5});
  for (const Cluster& cluster : {Cluster::uniform(6), two_nodes()}) {
    const Links links(devices, cluster);
    std::vector<double> ratios;
    for (int i = 0; i < 500; ++i) {
      const std::vector<Job> jobs = random_jobs(random, 1 << 16);

      const double bound = least_direct(jobs, links);
      const double balance = greatest_load(balanced(jobs, links).sent, links, 4);

      ASSERT_GE(balance + 5e-6, bound * (1 - 1e-9));
      ratios.push_back(balance / bound);
    }
    std::sort(ratios.begin(), ratios.end());
    EXPECT_LE(ratios[ratios.size() / 2], 1.01);
    EXPECT_LE(ratios[ratios.size() * 9 / 10], 1.05);
    EXPECT_LE(ratios.back(), 1.25);
  }
}

}  // namespace
}  // namespace hspmd::comm
