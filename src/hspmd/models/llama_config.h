// A Llama from Hugging Face's config.json.
#pragma once

#include <string>

#include "hspmd/config/config_node.h"
#include "hspmd/models/llama.h"

namespace hspmd {

// `path`: the file, or a folder that holds config.json. Throws InvalidArgument for an architecture or a feature that
// we do not have (it names key and value), and for sizes that make no model.
[[nodiscard]] LlamaConfig load_llama_config(const std::string& path);
[[nodiscard]] LlamaConfig read_llama_config(const ConfigNode& root);

}  // namespace hspmd
