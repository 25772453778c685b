// Keys of Kimi Linear, and the description of its layers: delta attention or latent attention, and an MLP or
// experts.
#include "keys.h"

#include <algorithm>
#include <array>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/decoder/description.h"

namespace heddle::kimi_linear {

bool is_full(const Keys& keys, int64_t layer) {
  return (*keys.layer_types)[static_cast<size_t>(layer)] == decoder::kFullAttention;
}

bool has_experts(const Keys& keys, int64_t layer) {
  return (*keys.mlp_layer_types)[static_cast<size_t>(layer)] == "sparse";
}

decoder::Latent latent_of(const Keys& keys) {
  decoder::Latent out;
  out.heads = keys.num_attention_heads;
  out.rank = keys.kv_lora_rank, out.query_rank = keys.q_lora_rank.value_or(0);
  out.plain = keys.qk_nope_head_dim, out.rotary = keys.qk_rope_head_dim, out.value = keys.v_head_dim;
  out.bias = keys.attention_bias;
  out.rotated = false;
  return out;
}

decoder::Mixture mixture_of(const Keys& keys) {
  decoder::Mixture out = keys.corrected_mixture();
  out.router.in_fp32 = true;
  out.shared_width = keys.num_shared_experts * keys.expert_width;
  return out;
}

namespace {

constexpr const char* kLinearAttention = "linear_attention";

// Gives the layers in a list of linear_attn_config this type.
void name_layers(const Node& list, const char* type, std::vector<std::string>& types) {
  if (!list.is_list())
    model::refuse(list, "expected a list of layer numbers, counted from 1, got " + list.written());
  for (const Node& layer : list.items()) {
    const int64_t number = layer.as_integer(), count = static_cast<int64_t>(types.size());
    if (number < 1 || number > count)
      model::refuse(layer,
                    "expected a layer from 1 to " + std::to_string(count) + ", got " + layer.written());
    std::string& own = types[static_cast<size_t>(number - 1)];
    if (!own.empty()) model::refuse(layer, "layer " + layer.written() + " is listed twice");
    own = type;
  }
}

}  // namespace

void check_linear_keys(const Node& config, std::span<const std::string> known) {
  Errors errors;
  for (const auto& [key, value] : config.entries()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = text::nearest(key, known);
    errors.add(Error(ErrorCode::config, value.where(),
                     "linear_attn_config has no key '" + text::excerpt(key) + "'",
                     near.empty() ? "supported keys: " + text::join(known) : "did you mean '" + near + "'?"));
  }
  errors.raise();
}

void read_sizes(const Node& config, Keys& keys) {
  keys.linear_head_dim = model::size_or(config, "head_dim", keys.linear_head_dim);
  keys.linear_num_heads = model::size_or(config, "num_heads", keys.linear_num_heads);
  keys.linear_conv_kernel_dim =
      model::size_or(config, "short_conv_kernel_size", keys.linear_conv_kernel_dim, 1024);
}

void read_layers(const Node& config, Keys& keys) {
  const Node *full = model::given(config, "full_attn_layers"), *linear = model::given(config, "kda_layers");
  if (keys.layer_types || (full == nullptr && linear == nullptr)) return;
  if (full == nullptr || linear == nullptr)
    model::refuse(config,
                  std::string("linear_attn_config has ") +
                      (full == nullptr ? "kda_layers" : "full_attn_layers") + " but not " +
                      (full == nullptr ? "full_attn_layers" : "kda_layers"),
                  "set both lists, or layer_types");
  std::vector<std::string> types(static_cast<size_t>(keys.num_hidden_layers));
  name_layers(*full, decoder::kFullAttention, types);
  name_layers(*linear, kLinearAttention, types);
  const auto none = std::find(types.begin(), types.end(), "");
  if (none != types.end())
    model::refuse(config, "layer " + std::to_string(none - types.begin() + 1) +
                              " is in neither full_attn_layers nor kda_layers");
  keys.layer_types = std::move(types);
}

std::vector<Node::Entry> write_layers(const Keys& keys) {
  std::vector<Node> full, linear;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    (is_full(keys, layer) ? full : linear).push_back(Node::integer(layer + 1));
  return {{"full_attn_layers", Node::list(std::move(full))},
          {"head_dim", Node::integer(keys.linear_head_dim)},
          {"kda_layers", Node::list(std::move(linear))},
          {"num_heads", Node::integer(keys.linear_num_heads)},
          {"short_conv_kernel_size", Node::integer(keys.linear_conv_kernel_dim)}};
}

namespace {

void read_config(const Node& config, Keys& keys) {
  static const std::vector<std::string> kKnown = {"head_dim", "num_heads", "short_conv_kernel_size",
                                                  "full_attn_layers", "kda_layers"};
  check_linear_keys(config, kKnown);
  read_sizes(config, keys);
  read_layers(config, keys);
}

void check_types(const Node& given, const Keys& keys) {
  const Node* list = model::given(given, "layer_types");
  const Node& at = list == nullptr ? given : *list;
  if (static_cast<int64_t>(keys.layer_types->size()) != keys.num_hidden_layers)
    model::refuse(at, "layer_types has " + std::to_string(keys.layer_types->size()) + " words for " +
                          std::to_string(keys.num_hidden_layers) + " layers");
  for (const std::string& type : *keys.layer_types)
    if (type != decoder::kFullAttention && type != kLinearAttention)
      model::refuse(at, "layer_types: a layer of type '" + type +
                            "' is not built; known: full_attention, linear_attention");
}

void read_linear_attention(const Node& given, Keys& keys) {
  const Node* config = model::given(given, "linear_attn_config");
  if (config != nullptr && !config->is_map())
    model::refuse(*config, "linear_attn_config: expected a map, got " + config->written());
  if (config != nullptr) read_config(*config, keys);
  if (!keys.layer_types) {
    keys.layer_types.emplace();
    for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
      keys.layer_types->emplace_back(layer > 0 && layer % 4 == 0 ? decoder::kFullAttention
                                                                 : kLinearAttention);
  }
  check_types(given, keys);
}

std::vector<Node::Entry> write_linear_attention(const Keys& keys) {
  return {{"linear_attn_config", Node::map(write_layers(keys))},
          {"model_max_length", Node::integer(keys.max_position_embeddings)}};
}

struct OtherName {
  const char *file, *other;
  int64_t Keys::*slot;
};
constexpr std::array<OtherName, 4> kOtherNames = {
    {{"num_experts", "num_local_experts", &Keys::experts},
     {"num_experts_per_token", "num_experts_per_tok", &Keys::experts_of_token},
     {"num_shared_experts", "n_shared_experts", &Keys::num_shared_experts},
     {"num_expert_group", "n_group", &Keys::groups}}};

void read_other_names(const Node& given, Keys& keys) {
  for (const OtherName& one : kOtherNames)
    if (model::given(given, one.file) == nullptr)
      keys.*one.slot = model::integer_or(given, one.other, keys.*one.slot);
  if (model::given(given, "moe_renormalize") == nullptr)
    keys.normalised = model::boolean_or(given, "norm_topk_prob", keys.normalised);
  keys.max_position_embeddings = model::size_or(given, "model_max_length", keys.max_position_embeddings);
  if (const std::string complaint = complaint_of_experts(keys); !complaint.empty())
    model::refuse(given, complaint);
}

}  // namespace

Keys::Keys() {
  vocab_size = 163840, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 27;
  pad_token_id = 163839, max_position_embeddings = 1048576, rms_norm_eps = 1e-5;
  experts = 256, experts_of_token = 8, expert_width = 1024, routed_scale = 2.446;
}

void fill(Keys& keys) {
  keys.head_dim = keys.qk_nope_head_dim + keys.qk_rope_head_dim;
  if (keys.mlp_layer_types) {
    const auto first = std::find(keys.mlp_layer_types->begin(), keys.mlp_layer_types->end(), "sparse");
    keys.first_k_dense_replace = first - keys.mlp_layer_types->begin();
    return;
  }
  keys.mlp_layer_types.emplace();
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    keys.mlp_layer_types->emplace_back(layer < keys.first_k_dense_replace ? "dense" : "sparse");
}

std::string complaint_of_attention(const Keys& keys) {
  if (keys.tie_word_embeddings)
    return "tie_word_embeddings is true, but transformers' KimiLinearForCausalLM has a separate head";
  return complaint_of_sizes(keys);
}

std::string complaint_of_sizes(const Keys& keys) {
  const int64_t head = keys.qk_nope_head_dim + keys.qk_rope_head_dim + keys.v_head_dim;
  if (keys.num_attention_heads > model::kLargestSize / head)
    return "num_attention_heads " + std::to_string(keys.num_attention_heads) +
           " of these widths are more than " + std::to_string(model::kLargestSize);
  if (keys.linear_num_heads <= model::kLargestSize / keys.linear_head_dim) return "";
  return "linear_num_heads " + std::to_string(keys.linear_num_heads) + " of this width are more than " +
         std::to_string(model::kLargestSize);
}

std::string complaint_of_experts(const Keys& keys) {
  if (static_cast<int64_t>(keys.mlp_layer_types->size()) != keys.num_hidden_layers)
    return "mlp_layer_types has " + std::to_string(keys.mlp_layer_types->size()) + " words for " +
           std::to_string(keys.num_hidden_layers) + " layers";
  for (const std::string& type : *keys.mlp_layer_types)
    if (type != "dense" && type != "sparse")
      return "mlp_layer_types: expected dense or sparse, got '" + type + "'";
  if (keys.experts < 1 || keys.experts_of_token < 1 || keys.experts_of_token > keys.experts)
    return "num_experts " + std::to_string(keys.experts) + " and num_experts_per_token " +
           std::to_string(keys.experts_of_token) +
           ": expected at least 1 expert, and at most num_experts per token";
  if (keys.num_shared_experts < 0 || keys.num_shared_experts > model::kLargestSize / keys.expert_width)
    return "num_shared_experts is " + std::to_string(keys.num_shared_experts);
  if (keys.groups < 1 || keys.experts % keys.groups != 0)
    return "num_experts " + std::to_string(keys.experts) + " do not divide into num_expert_group " +
           std::to_string(keys.groups) + " groups";
  if (keys.top_groups < 1 || keys.top_groups > keys.groups)
    return "topk_group " + std::to_string(keys.top_groups) + " is not from 1 to num_expert_group " +
           std::to_string(keys.groups);
  return "";
}

model::KeyGroup<Keys> linear_attention() {
  model::KeyGroup<Keys> out;
  out.table = {
      {"linear_attn_config", "map or null", "null", "",
       "Settings of delta attention: head_dim, num_heads and short_conv_kernel_size override the keys "
       "linear_*. kda_layers and full_attn_layers list layers, counted from 1, if layer_types is not set.",
       ""}};
  out.read = read_linear_attention;
  out.write = write_linear_attention;
  return out;
}

model::KeyGroup<Keys> other_names() {
  model::KeyGroup<Keys> out;
  for (const OtherName& one : kOtherNames)
    out.table.push_back(
        {one.other, "integer", "", "", "Alias of " + std::string(one.file) + " in transformers.", ""});
  out.table.push_back({"norm_topk_prob", "bool", "", "", "Alias of moe_renormalize in transformers.", ""});
  out.table.push_back(
      {"model_max_length", "integer", "", "", "Name of max_position_embeddings in published files.", ""});
  out.read = read_other_names;
  out.write = [](const Keys&) { return std::vector<Node::Entry>(); };
  return out;
}

decoder::Model model_of(const Keys& keys) {
  decoder::Model model = keys.model();
  const auto delta = decoder::channel_delta(
      {keys.linear_num_heads, keys.linear_head_dim, keys.linear_conv_kernel_dim, keys.rms_norm_eps});
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer;
    layer.norm = keys.norm();
    if (is_full(keys, i))
      layer.mixer = latent_of(keys);
    else
      layer.mixer = delta;
    if (has_experts(keys, i))
      layer.feed_forward = mixture_of(keys);
    else
      layer.feed_forward = keys.mlp();
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace heddle::kimi_linear
