// Roles: what a strategy must know of a named tensor or Reshard to lay it out: where it lives, and which of its dims
// the parallelisms may cut. A model says it once; it knows nothing of devices.
//
//   up_proj.weight [ffn, hidden] of layer 3      {kLayer, 3, .tensor_dim = 0}
//   mlp.input [B, S, hidden] of layer 3          {kLayer, 3, .batch_dim = 0, .context_dim = 1}
//   mlp.output, sequence parallel                ... and .sequence_dim = 1
#pragma once

#include <map>
#include <string>

namespace hspmd {

enum class Where {
  kLayer,       // on the stage of `layer`
  kFirst,       // on the first stage
  kLast,        // on the last stage
  kPipeline,    // on all devices of each pipeline
  kEverywhere,  // on all devices
};

inline constexpr int kNoDim = -1;

struct Role {
  Where where = Where::kLayer;
  int layer = 0;
  int batch_dim = kNoDim;     // data parallelism cuts it (activations); without it: copies (parameters)
  int context_dim = kNoDim;   // context parallelism
  int sequence_dim = kNoDim;  // tensor parallelism, where sequence parallelism accompanies it
  int tensor_dim = kNoDim;    // tensor parallelism: ffn, vocabulary
  int heads_dim = kNoDim;     // tensor parallelism: KV heads ...
  int group_dim = kNoDim;     // ... then query heads a KV head; without it copies
  bool addends = false;       // kEverywhere: one addend a device, else copies
};

// What a model is to a strategy.
struct ModelRoles {
  int layers = 1;
  int kv_heads = 1;
  int group = 1;                        // query heads a KV head
  std::map<std::string, Role> tensors;  // parameters and placeholders
  std::map<std::string, Role> reshards;
};

}  // namespace hspmd
