// Annotations for tests: all small ones, and random ones beyond.
//
//   all_annotations(3, 2, kSum)     every annotation of the devices 0-2 over tensors of rank 2, some weights among
//   them:
//                                   {0-2: S0x3}, top S0 w2:1 {0-1: Px2 | 2:}, ...
//   random_annotation(...)          up to that many devices, several subgroups, uneven and zero weights
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "hspmd/annotation/annotation.h"

namespace hspmd::samples {

using Random = std::mt19937;

inline int draw(Random& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

// All lists of axes whose degrees multiply to n, over dims below rank.
inline std::vector<std::vector<Axis>> all_axes(int n, int rank, Reduction reduction) {
  if (n == 1) return {{}};
  const std::vector<Weights> weights_of_two = {{}, {3, 1}, {0, 1}};
  std::vector<std::vector<Axis>> lists;
  for (int degree = 2; degree <= n; ++degree) {
    if (n % degree != 0) continue;
    std::vector<Axis> heads = {{Duplicate{}, degree}, {Partial{reduction}, degree}};
    for (int d = 0; d < rank; ++d) {
      for (const Weights& w : degree == 2 ? weights_of_two : std::vector<Weights>{{}})
        heads.push_back({Split{d}, degree, w});
    }
    for (const Axis& head : heads) {
      for (std::vector<Axis> rest : all_axes(n / degree, rank, reduction)) {
        rest.insert(rest.begin(), head);
        lists.push_back(std::move(rest));
      }
    }
  }
  return lists;
}

inline std::vector<Annotation> all_annotations(int devices, int rank, Reduction reduction) {
  std::vector<Annotation> all;
  const auto add = [&](const Annotation& a) {
    if (std::find(all.begin(), all.end(), a) == all.end()) all.push_back(a);
  };
  std::vector<Device> ids;
  for (int d = 0; d < devices; ++d) ids.push_back(d);
  for (const auto& axes : all_axes(devices, rank, reduction)) add(Annotation(Subgroup(ids, axes)));
  std::vector<Top> tops = {{Duplicate{}}, {Partial{reduction}}};
  for (int d = 0; d < rank; ++d) tops.push_back({Split{d}, {2, 1}});
  for (int left = 1; left < devices; ++left) {
    for (const auto& a : all_axes(left, rank, reduction)) {
      for (const auto& b : all_axes(devices - left, rank, reduction)) {
        for (const Top& top : tops) {
          add(Annotation({Subgroup({ids.begin(), ids.begin() + left}, a), Subgroup({ids.begin() + left, ids.end()}, b)},
                         top));
        }
      }
    }
  }
  return all;
}

inline Weights random_weights(Random& random, int parts) {
  Weights weights;
  if (draw(random, 0, 1) == 0) return weights;
  for (int i = 0; i < parts; ++i) weights.push_back(draw(random, 0, 3));
  weights[static_cast<std::size_t>(draw(random, 0, parts - 1))] = draw(random, 1, 3);
  return weights;
}

inline std::vector<Axis> random_axes(Random& random, int devices, int rank, Reduction reduction) {
  std::vector<Axis> axes;
  for (int rest = devices; rest > 1;) {
    int degree = draw(random, 2, rest);
    while (rest % degree != 0) ++degree;
    rest /= degree;
    const int kind = draw(random, 0, 2);
    if (kind == 0 && rank > 0) {
      axes.push_back({Split{draw(random, 0, rank - 1)}, degree, random_weights(random, degree)});
    } else if (kind == 1) {
      axes.push_back({Partial{reduction}, degree});
    } else {
      axes.push_back({Duplicate{}, degree});
    }
  }
  return axes;
}

inline Annotation random_annotation(Random& random, int most_devices, int rank, Reduction reduction) {
  std::vector<Device> ids;
  for (int d = 0; d < most_devices; ++d) ids.push_back(d);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(static_cast<std::size_t>(draw(random, 1, most_devices)));
  std::vector<Subgroup> subgroups;
  for (std::size_t at = 0; at < ids.size();) {
    const int size = draw(random, 1, static_cast<int>(ids.size() - at));
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(at);
    subgroups.emplace_back(std::vector<Device>(first, first + size), random_axes(random, size, rank, reduction));
    at += static_cast<std::size_t>(size);
  }
  Top top{Duplicate{}};
  const int kind = draw(random, 0, 2);
  if (kind == 0 && rank > 0)
    top = {Split{draw(random, 0, rank - 1)}, random_weights(random, static_cast<int>(subgroups.size()))};
  if (kind == 1) top = {Partial{reduction}};
  return {std::move(subgroups), top};
}

}  // namespace hspmd::samples
