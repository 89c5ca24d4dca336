// The random family of strategies for which the laws are tested: up to eight devices in up to three pipelines, stages
// of unlike layers (also none), TP and CP degrees, weights, sequence parallelism, schedules, and micro-batches. Whoever
// adds a feature adds it here.
#pragma once

#include <algorithm>
#include <random>

#include "hspmd/models/llama.h"
#include "hspmd/specialize/strategy.h"

namespace hspmd::testing {

inline constexpr int kLayers = 4;

inline LlamaConfig small_model(TiedEmbeddings tied) {
  LlamaConfig c;
  c.vocabulary = 23;
  c.hidden = 12;
  c.layers = kLayers;
  c.heads = 6;
  c.kv_heads = 3;
  c.head_dim = 4;
  c.ffn = 10;
  c.tied = tied;
  return c;
}

// Tensors large enough for what only large ones do: all-reduces in two halves, in place.
inline LlamaConfig larger_model(TiedEmbeddings tied) {
  LlamaConfig c = small_model(tied);
  c.vocabulary = 61;
  c.hidden = 48;
  c.head_dim = 8;
  c.ffn = 67;
  return c;
}

inline StageSpec stage(std::vector<Device> devices, int begin, int end, int tp) {
  StageSpec s;
  s.devices = std::move(devices);
  s.layers = {begin, end};
  s.tp = tp;
  s.cp = static_cast<int>(s.devices.size()) / tp;
  return s;
}

class RandomStrategies {
 public:
  explicit RandomStrategies(unsigned seed) : random_(seed) {}

  int draw(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<unsigned>(most - least + 1));
  }
  TiedEmbeddings draw_tied() { return draw(0, 1) == 0 ? TiedEmbeddings::kNo : TiedEmbeddings::kYes; }

  Strategy next() {
    devices_ = {0, 1, 2, 3, 4, 5, 6, 7};
    std::shuffle(devices_.begin(), devices_.end(), random_);
    Strategy strategy{"random", static_cast<ScheduleKind>(draw(0, 2)), {}};
    const int pipelines = draw(1, 3);
    for (int p = 0; p < pipelines && !devices_.empty(); ++p) strategy.pipelines.push_back(pipeline());
    return strategy;
  }

 private:
  PipelineSpec pipeline() {
    PipelineSpec pipeline;
    const int micro_batches = draw(1, 4);
    for (int m = 0; m < micro_batches; ++m) pipeline.micro_batch_sizes.push_back(draw(1, 3));
    int layer = 0;
    const int stages = draw(1, 3);
    for (int s = 0; s < stages && !devices_.empty(); ++s) {
      std::vector<Device> own = take(draw(1, 5));
      const bool last = s + 1 == stages || devices_.empty();
      const int end = last ? kLayers : draw(layer, kLayers);
      pipeline.stages.push_back(unlike_stage(std::move(own), layer, end));
      layer = end;
    }
    return pipeline;
  }

  std::vector<Device> take(int count) {
    std::vector<Device> taken;
    for (; count > 0 && !devices_.empty(); --count) {
      taken.push_back(devices_.back());
      devices_.pop_back();
    }
    return taken;
  }

  StageSpec unlike_stage(std::vector<Device> own, int begin, int end) {
    const auto size = static_cast<int>(own.size());
    int tp = size;
    if (size == 4 && draw(0, 1) == 0) tp = 2;
    if (size <= 3 && draw(0, 3) == 0) tp = 1;
    StageSpec spec = stage(std::move(own), begin, end, tp);
    if (draw(0, 2) == 0) spec.sequence_parallel = SequenceParallel::kOff;
    if (tp > 1 && draw(0, 2) == 0) {
      for (int w = 0; w < tp; ++w) spec.tp_weights.push_back(draw(w == 0 ? 1 : 0, 3));
    }
    return spec;
  }

  std::mt19937 random_;
  std::vector<Device> devices_;  // not taken yet
};

}  // namespace hspmd::testing
