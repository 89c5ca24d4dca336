// Llama: the graph of the model, and the roles of its tensors and Reshards. It is written for one device; where the
// layout may change it has a named Reshard, and no more is said of parallelism.
//
// Names and element order are Hugging Face's. The same bytes are seen as query [kv_heads, group, head_dim, hidden],
// key and value [kv_heads, head_dim, hidden], output [hidden, kv_heads, group, head_dim].
// Source: Llama (Touvron et al. 2023), GQA (Ainslie et al. 2023).
#pragma once

#include <string>
#include <vector>

#include "hspmd/graph/graph.h"
#include "hspmd/graph/roles.h"
#include "hspmd/ops/ops.h"

namespace hspmd {

enum class TiedEmbeddings { kNo, kYes };

struct LlamaConfig {
  int vocabulary = 257;
  int hidden = 128;
  int layers = 4;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 32;
  int ffn = 352;
  double rms_eps = 1e-5;
  double rope_theta = 10000;
  ops::RopeScaling rope_scaling = {};
  TiedEmbeddings tied = TiedEmbeddings::kNo;
  [[nodiscard]] int group() const { return heads / kv_heads; }
  [[nodiscard]] std::int64_t parameters() const;
  // Forward and backward, attention counted whole, the head included.
  [[nodiscard]] double flops_per_token(std::int64_t sequence_length) const;
};

// Why these numbers make no model; empty when they do.
[[nodiscard]] std::string why_invalid(const LlamaConfig& config);

// tiny, small, 7b, 13b, 32b, 70b. Throws InvalidArgument with the nearest known name.
[[nodiscard]] LlamaConfig llama_preset(const std::string& name);
[[nodiscard]] std::vector<std::string> llama_presets();

struct ModelOutputs {
  ValueId loss;    // sum over the real tokens of a micro-batch
  ValueId tokens;  // their number
};

// Placeholders: ids, positions, segments, targets, each [B,S] int32; a target below 0 is no token.
[[nodiscard]] ModelOutputs build_llama(Graph& graph, const LlamaConfig& config);
[[nodiscard]] ModelRoles llama_roles(const LlamaConfig& config);

}  // namespace hspmd
