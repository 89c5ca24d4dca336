// Initial values from a counter-based generator: SplitMix64 of (seed, name, index), then Box-Muller.
// Source: Steele, Lea, Flood 2014.
#include <cmath>
#include <numbers>

#include "hspmd/base/hash.h"
#include "hspmd/runtime/executor.h"

namespace hspmd {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

double uniform(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

}  // namespace

double initial_element(const Initializer& initializer, std::uint64_t seed, const std::string& name,
                       std::uint64_t index) {
  switch (initializer.kind) {
    case Initializer::Kind::kZeros:
      return 0;
    case Initializer::Kind::kOnes:
      return 1;
    case Initializer::Kind::kNormal:
      break;
  }
  const std::uint64_t stream = mix(mix(seed) ^ fnv1a(name));
  const double u = uniform(mix(stream + 2 * index));
  const double v = uniform(mix(stream + 2 * index + 1));
  return initializer.deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace hspmd
