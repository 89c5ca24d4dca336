// A Llama from Hugging Face's config.json.
//
//   {"model_type": "llama", "vocab_size": 257, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
//    "num_attention_heads": 8, "num_key_value_heads": 4}
//
// What the file leaves out is what Hugging Face's LlamaConfig says: as many key-value heads as heads, head_dim
// hidden_size / heads, rms_norm_eps 1e-6, rope_theta 10000, no scaling of RoPE, embeddings not tied. Keys that do not
// change the arithmetic are passed over.
// Source: transformers, models/llama/configuration_llama.py; RoPE scaling "llama3" of Llama 3.1.
#pragma once

#include <string>

#include "hspmd/config/config_node.h"
#include "hspmd/models/llama.h"

namespace hspmd {

// `path`: the file, or a folder that holds config.json. Throws InvalidArgument for an architecture or a feature that
// we do not have (it names file, line, key and value), and for sizes that make no model.
[[nodiscard]] LlamaConfig load_llama_config(const std::string& path);
[[nodiscard]] LlamaConfig read_llama_config(const ConfigNode& root);

}  // namespace hspmd
