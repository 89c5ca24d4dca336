#include "hspmd/models/llama.h"

#include <array>
#include <cmath>

#include "hspmd/config/config_node.h"

namespace hspmd {
namespace {

constexpr double kDeviation = 0.02;

std::string layer_name(int layer, const std::string& rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

class Builder {
 public:
  Builder(Graph& graph, const LlamaConfig& config) : g_(graph), c_(config) {}

  ModelOutputs run() {
    const TensorType tokens{{kBatch, kSequence}, DType::kInt32};
    const ValueId ids = g_.placeholder("ids", tokens);
    const ValueId positions = g_.placeholder("positions", tokens);
    const ValueId segments = g_.placeholder("segments", tokens);
    const ValueId targets = g_.placeholder("targets", tokens);
    const ValueId table =
        g_.parameter("model.embed_tokens.weight", {c_.vocabulary, c_.hidden}, Initializer::normal(kDeviation));
    const ValueId here = g_.reshard("embedding.ids", ids);
    ValueId x = g_.reshard("embedding.output", ops::embedding(g_, here, table));
    for (int layer = 0; layer < c_.layers; ++layer) x = decoder(layer, x, positions, segments);
    return head(x, targets);
  }

 private:
  ValueId weight(int layer, const std::string& name, SymbolicShape shape, double deviation = kDeviation) {
    return g_.parameter(layer_name(layer, name), shape, Initializer::normal(deviation));
  }

  ValueId decoder(int layer, ValueId x, ValueId positions, ValueId segments) {
    const auto name = [&](const char* rest) { return layer_name(layer, rest); };
    x = g_.reshard(name("input"), x);
    x = ops::add(g_, {x, attention(layer, x, positions, segments)});
    return ops::add(g_, {x, mlp(layer, x)});
  }

  // Output projections start smaller, so that the residual stream does not grow with depth.
  [[nodiscard]] double output_deviation() const { return kDeviation / std::sqrt(2.0 * c_.layers); }

  ValueId attention(int layer, ValueId x, ValueId positions, ValueId segments) {
    const auto name = [&](const char* rest) { return layer_name(layer, rest); };
    const std::int64_t k = c_.kv_heads, group = c_.group(), d = c_.head_dim, h = c_.hidden;
    const ValueId q_positions = g_.reshard(name("positions"), positions);
    const ValueId q_segments = g_.reshard(name("segments"), segments);
    const ValueId k_positions = g_.reshard(name("attention.key_positions"), positions);
    const ValueId k_segments = g_.reshard(name("attention.key_segments"), segments);
    const ValueId norm = g_.parameter(name("input_layernorm.weight"), {h}, Initializer::ones());
    const ValueId y = g_.reshard(name("attention.input"), ops::rms_norm(g_, x, norm, c_.rms_eps));
    const ValueId wq = weight(layer, "self_attn.q_proj.weight", {k, group, d, h});
    const ValueId wk = weight(layer, "self_attn.k_proj.weight", {k, d, h});
    const ValueId wv = weight(layer, "self_attn.v_proj.weight", {k, d, h});
    const ValueId wo = weight(layer, "self_attn.o_proj.weight", {h, k, group, d}, output_deviation());
    const auto rotate = [&](ValueId value) {
      return ops::rope(g_, value, q_positions, c_.rope_theta, c_.rope_scaling);
    };
    const ValueId q0 = rotate(ops::dot(g_, "bsh,kgdh->bskgd", y, wq));
    const ValueId k0 = rotate(ops::dot(g_, "bsh,kdh->bskd", y, wk));
    const ValueId v0 = ops::dot(g_, "bsh,kdh->bskd", y, wv);
    const ValueId query = g_.reshard_keep(name("attention.query"), q0);
    const ValueId key = g_.reshard_keep(name("attention.key"), k0);
    const ValueId value = g_.reshard_keep(name("attention.value"), v0);
    const ValueId context =
        g_.reshard(name("attention.context"),
                   ops::attention(g_, query, key, value, {q_positions, k_positions, q_segments, k_segments}));
    return g_.reshard(name("attention.output"), ops::dot(g_, "bskgd,hkgd->bsh", context, wo));
  }

  ValueId mlp(int layer, ValueId x) {
    const auto name = [&](const char* rest) { return layer_name(layer, rest); };
    const std::int64_t f = c_.ffn, h = c_.hidden;
    const ValueId norm = g_.parameter(name("post_attention_layernorm.weight"), {h}, Initializer::ones());
    const ValueId y = g_.reshard(name("mlp.input"), ops::rms_norm(g_, x, norm, c_.rms_eps));
    const ValueId gate = ops::dot(g_, "bsh,fh->bsf", y, weight(layer, "mlp.gate_proj.weight", {f, h}));
    const ValueId up = ops::dot(g_, "bsh,fh->bsf", y, weight(layer, "mlp.up_proj.weight", {f, h}));
    const ValueId down = weight(layer, "mlp.down_proj.weight", {h, f}, output_deviation());
    return g_.reshard(name("mlp.output"), ops::dot(g_, "bsf,hf->bsh", ops::silu_mul(g_, gate, up), down));
  }

  ModelOutputs head(ValueId x, ValueId targets) {
    const ValueId goal = g_.reshard("head.targets", targets);
    x = g_.reshard_to("head.residual", x, IfNamed{});  // the last stage may hold the head alone
    const ValueId norm = g_.parameter("model.norm.weight", {c_.hidden}, Initializer::ones());
    const ValueId y = g_.reshard("head.input", ops::rms_norm(g_, x, norm, c_.rms_eps));
    const ValueId logits = ops::dot(g_, "bsh,vh->bsv", y, head_weight());
    return {ops::cross_entropy(g_, "head", logits, goal), ops::count_tokens(g_, goal)};
  }

  ValueId head_weight() {
    if (c_.tied == TiedEmbeddings::kYes) return g_.reshard("head.gather", *g_.find("model.embed_tokens.weight/master"));
    return g_.parameter("lm_head.weight", {c_.vocabulary, c_.hidden}, Initializer::normal(kDeviation));
  }

  Graph& g_;
  const LlamaConfig& c_;
};

struct Preset {
  const char* name;
  LlamaConfig config;
};

LlamaConfig preset(int vocabulary, int hidden, int layers, int heads, int kv_heads, int ffn) {
  LlamaConfig c;
  c.vocabulary = vocabulary;
  c.hidden = hidden;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.ffn = ffn;
  return c;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"tiny", preset(257, 128, 4, 4, 2, 352)},        {"small", preset(257, 512, 8, 8, 8, 1408)},
      {"7b", preset(32000, 4096, 32, 32, 32, 11008)},  {"13b", preset(32000, 5120, 40, 40, 40, 13824)},
      {"32b", preset(32000, 6656, 60, 64, 64, 17920)}, {"70b", preset(32000, 8192, 80, 64, 8, 28672)},
  };
  return all;
}

}  // namespace

std::int64_t LlamaConfig::parameters() const {
  const std::int64_t h = hidden, q = static_cast<std::int64_t>(heads) * head_dim,
                     kv = static_cast<std::int64_t>(kv_heads) * head_dim;
  const std::int64_t layer = 2 * h * q + 2 * h * kv + 3 * h * ffn + 2 * h;
  return layers * layer + h + (tied == TiedEmbeddings::kYes ? 1 : 2) * h * vocabulary;
}

double LlamaConfig::flops_per_token(std::int64_t sequence_length) const {
  const double h = hidden, q = static_cast<double>(heads) * head_dim, kv = static_cast<double>(kv_heads) * head_dim;
  const double matrices = layers * (2 * h * q + 2 * h * kv + 3 * h * ffn) + h * vocabulary;
  return 6 * matrices + 12.0 * layers * q * static_cast<double>(sequence_length);
}

std::string why_invalid(const LlamaConfig& c) {
  const std::array<std::pair<const char*, int>, 7> sizes = {{{"vocab_size", c.vocabulary},
                                                             {"hidden_size", c.hidden},
                                                             {"num_hidden_layers", c.layers},
                                                             {"num_attention_heads", c.heads},
                                                             {"num_key_value_heads", c.kv_heads},
                                                             {"head_dim", c.head_dim},
                                                             {"intermediate_size", c.ffn}}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > (1 << 24)) return fmt::format("{} must be from 1 to 2^24. Received {}", name, size);
  }
  if (c.heads % c.kv_heads != 0)
    return fmt::format("num_attention_heads must be a multiple of num_key_value_heads. Received {} and {}", c.heads,
                       c.kv_heads);
  if (c.head_dim % 2 != 0) return fmt::format("head_dim must be even. Received {}", c.head_dim);
  if (!(c.rms_eps > 0 && c.rms_eps < 1))
    return fmt::format("rms_norm_eps must lie between 0 and 1. Received {}", c.rms_eps);
  if (!(c.rope_theta > 1)) return fmt::format("rope_theta must be above 1. Received {}", c.rope_theta);
  return "";
}

std::vector<std::string> llama_presets() {
  std::vector<std::string> names;
  for (const Preset& p : presets()) names.emplace_back(p.name);
  return names;
}

LlamaConfig llama_preset(const std::string& name) {
  for (const Preset& p : presets()) {
    if (name == p.name) return p.config;
  }
  const std::vector<std::string> names = llama_presets();
  const auto near = nearest(name, {names.begin(), names.end()});
  invalid("[model] preset must be one of {}. Received \"{}\"{}.", fmt::join(names, ", "), name,
          near ? fmt::format("; the nearest is \"{}\"", *near) : "");
}

ModelOutputs build_llama(Graph& graph, const LlamaConfig& config) {
  if (const std::string why = why_invalid(config); !why.empty()) invalid("[model] {}.", why);
  return Builder(graph, config).run();
}

ModelRoles llama_roles(const LlamaConfig& c) {
  ModelRoles roles;
  roles.layers = c.layers;
  roles.kv_heads = c.kv_heads;
  roles.group = c.group();
  const auto at = [](Where where, int layer) {
    Role role;
    role.where = where;
    role.layer = layer;
    return role;
  };
  const auto tensor = [](Role role, int dim) { return role.tensor_dim = dim, role; };
  const auto heads = [](Role role, int kv, int group) { return role.heads_dim = kv, role.group_dim = group, role; };
  const auto activation = [](Role role) { return role.batch_dim = 0, role; };
  const auto full = [&](Role role) { return role = activation(role), role.context_dim = 1, role; };
  const auto residual = [&](Role role) { return role = full(role), role.sequence_dim = 1, role; };

  const Role first = at(Where::kFirst, 0);
  const Role last = at(Where::kLast, 0);
  for (const char* name : {"ids", "positions", "segments", "targets"})
    roles.tensors[name] = activation(at(Where::kPipeline, 0));
  roles.tensors["model.embed_tokens.weight"] = tensor(first, 0);
  roles.tensors["model.norm.weight"] = last;
  if (c.tied == TiedEmbeddings::kYes) {
    roles.reshards["head.gather"] = tensor(last, 0);
  } else {
    roles.tensors["lm_head.weight"] = tensor(last, 0);
  }
  roles.reshards["embedding.ids"] = full(first);
  roles.reshards["embedding.output"] = residual(first);
  roles.reshards["head.residual"] = residual(last);
  for (const char* name : {"head.targets", "head.input", "head.max", "head.sum", "head.target"})
    roles.reshards[name] = full(last);
  for (int layer = 0; layer < c.layers; ++layer) {
    const auto name = [&](const char* rest) { return layer_name(layer, rest); };
    const Role here = at(Where::kLayer, layer);
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      roles.tensors[name(norm)] = here;
    roles.tensors[name("self_attn.q_proj.weight")] = heads(here, 0, 1);
    roles.tensors[name("self_attn.k_proj.weight")] = heads(here, 0, kNoDim);
    roles.tensors[name("self_attn.v_proj.weight")] = heads(here, 0, kNoDim);
    roles.tensors[name("self_attn.o_proj.weight")] = heads(here, 1, 2);
    roles.tensors[name("mlp.gate_proj.weight")] = tensor(here, 0);
    roles.tensors[name("mlp.up_proj.weight")] = tensor(here, 0);
    roles.tensors[name("mlp.down_proj.weight")] = tensor(here, 1);
    for (const char* point : {"input", "attention.output", "mlp.output"}) roles.reshards[name(point)] = residual(here);
    for (const char* point : {"positions", "segments", "attention.input", "mlp.input"})
      roles.reshards[name(point)] = full(here);
    for (const char* point : {"attention.key_positions", "attention.key_segments"})
      roles.reshards[name(point)] = activation(here);
    for (const char* point : {"attention.query", "attention.context"})
      roles.reshards[name(point)] = heads(full(here), 2, 3);
    for (const char* point : {"attention.key", "attention.value"})
      roles.reshards[name(point)] = heads(activation(here), 2, kNoDim);
  }
  return roles;
}

}  // namespace hspmd
