#include "hspmd/models/llama_config.h"

#include <filesystem>

#include "hspmd/config/config_node.h"

namespace hspmd {
namespace {

constexpr std::int64_t kMaxSize = 1 << 24;

int size_at(const ConfigNode& root, const std::string& key) {
  return static_cast<int>(root.at(key).integer(1, kMaxSize));
}

void check_features(const ConfigNode& root) {
  if (const auto type = root.find("model_type")) (void)type->choice({"llama"});
  if (const auto architectures = root.find("architectures"); architectures && !architectures->is_null()) {
    for (const ConfigNode& name : architectures->list()) (void)name.choice({"LlamaForCausalLM"});
  }
  if (const auto act = root.find("hidden_act")) (void)act->choice({"silu"});
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (const auto bias = root.find(key); bias && bias->boolean())
      bias->fail("false: projections with a bias are not built yet");
  }
}

ops::RopeScaling read_scaling(const ConfigNode& node) {
  ops::RopeScaling scaling;
  if (node.is_null()) return scaling;
  const char* key = node.find("rope_type") ? "rope_type" : "type";
  if (node.at(key).choice({"llama3", "default"}, {"linear", "dynamic", "yarn", "longrope"}) == "default")
    return scaling;
  scaling.factor = node.at("factor").number(1, 1e6);
  scaling.low_freq_factor = node.at("low_freq_factor").number(1e-6, 1e6);
  scaling.high_freq_factor = node.at("high_freq_factor").number(1e-6, 1e6);
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    node.at("high_freq_factor").fail(fmt::format("above low_freq_factor, {}", number_text(scaling.low_freq_factor)));
  scaling.original_max_position = node.at("original_max_position_embeddings").number(1, 1e12);
  return scaling;
}

}  // namespace

LlamaConfig load_llama_config(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  return read_llama_config(load_config(folder ? path + "/config.json" : path));
}

LlamaConfig read_llama_config(const ConfigNode& root) {
  if (!root.is_map()) root.fail("the map of a Hugging Face config.json");
  check_features(root);
  LlamaConfig c;
  c.vocabulary = size_at(root, "vocab_size");
  c.hidden = size_at(root, "hidden_size");
  c.layers = static_cast<int>(root.at("num_hidden_layers").integer(1, 1 << 16));
  c.heads = size_at(root, "num_attention_heads");
  const auto kv = root.find("num_key_value_heads");
  c.kv_heads = kv && !kv->is_null() ? static_cast<int>(kv->integer(1, kMaxSize)) : c.heads;
  const auto head_dim = root.find("head_dim");
  if (head_dim && !head_dim->is_null()) {
    c.head_dim = static_cast<int>(head_dim->integer(1, kMaxSize));
  } else {
    if (c.hidden % c.heads != 0)
      root.at("hidden_size").fail(fmt::format("a multiple of num_attention_heads, {}", c.heads));
    c.head_dim = c.hidden / c.heads;
  }
  c.ffn = size_at(root, "intermediate_size");
  c.rms_eps = 1e-6;  // Hugging Face's default, not ours
  if (const auto eps = root.find("rms_norm_eps")) c.rms_eps = eps->number(1e-20, 0.5);
  if (const auto theta = root.find("rope_theta")) c.rope_theta = theta->number(1.0001, 1e12);
  if (const auto scaling = root.find("rope_scaling")) c.rope_scaling = read_scaling(*scaling);
  if (const auto tied = root.find("tie_word_embeddings"))
    c.tied = tied->boolean() ? TiedEmbeddings::kYes : TiedEmbeddings::kNo;
  if (const std::string why = why_invalid(c); !why.empty()) invalid("{}: {}.", root.file(), why);
  return c;
}

}  // namespace hspmd
