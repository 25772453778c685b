// Reads the config.json keys that most families share, and checks them.
#include <algorithm>
#include <array>

#include "heddle/base/text.h"
#include "heddle/decoder/mixture_keys.h"

namespace heddle::decoder {
namespace {

constexpr std::array<std::pair<const char*, Activation>, 9> kActivations = {
    {{"silu", Activation::silu},
     {"swish", Activation::silu},
     {"gelu", Activation::gelu},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"relu", Activation::relu},
     {"relu2", Activation::relu2},
     {"relu_squared", Activation::relu2}}};

}  // namespace

std::string CommonKeys::complaint() const {
  const int64_t heads = num_attention_heads, keys = num_key_value_heads.value_or(heads);
  if (heads % keys != 0)
    return "num_attention_heads " + std::to_string(heads) + " is not a multiple of num_key_value_heads " +
           std::to_string(keys);
  if (!head_dim && hidden_size % heads != 0)
    return "hidden_size " + std::to_string(hidden_size) + " is not a multiple of num_attention_heads " +
           std::to_string(heads);
  if (heads * head_width() > model::kLargestSize)
    return "num_attention_heads " + std::to_string(heads) + " of head_dim " + std::to_string(head_width()) +
           " are more than " + std::to_string(model::kLargestSize);
  const int64_t padding = pad_token_id.value_or(0);
  if (padding >= vocab_size || padding < -vocab_size)
    return "pad_token_id " + std::to_string(padding) + " is outside the vocabulary of size " +
           std::to_string(vocab_size);
  return "";
}

std::string CommonKeys::complaint_of_latent() const {
  const int64_t heads = num_attention_heads, keys = num_key_value_heads.value_or(heads);
  if (keys == heads) return "";
  return "latent attention has as many heads of keys as of queries, " + std::to_string(heads) +
         ", got num_key_value_heads " + std::to_string(keys);
}

void refuse_misspelt(const Node& map, std::span<const std::string> known) {
  for (const auto& [key, value] : map.entries()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string meant = text::nearest(key, known);
    if (!meant.empty()) model::refuse(value, "unknown key '" + key + "'", "did you mean '" + meant + "'?");
  }
}

void CommonKeys::drop_default_padding(const CommonKeys& defaults) {
  if (pad_token_id == defaults.pad_token_id && pad_token_id.value_or(0) >= vocab_size) pad_token_id.reset();
}

void CommonKeys::fill_head_dim() {
  if (hidden_size % num_attention_heads == 0) head_dim = head_width();
}

Attention CommonKeys::attention() const {
  Attention out;
  out.heads = num_attention_heads;
  out.kv_heads = num_key_value_heads.value_or(num_attention_heads);
  out.head_dim = head_width();
  out.rotation = {rotary.dim(out.head_dim), rotary.theta, rotary.scaling};
  if (rotary.query_beta != 0) out.query_scaling = {rotary.query_beta, rotary.scaling.original_positions};
  out.norm = norm();
  out.options.dropout = attention_dropout;
  return out;
}

Mlp CommonKeys::mlp(Activation activation) const {
  return {.width = intermediate_size, .activation = activation};
}

Model CommonKeys::model() const {
  Model out;
  out.vocabulary = vocab_size;
  out.width = hidden_size;
  out.last_norm = norm();
  out.tied = tie_word_embeddings;
  const int64_t padding = pad_token_id.value_or(-1);
  out.padding = pad_token_id && padding < 0 ? padding + vocab_size : padding;
  out.init_std = initializer_range;
  out.embedding_dropout = embedding_dropout;
  return out;
}

Model CommonKeys::model(Layer each) const {
  each.residual_dropout = residual_dropout;
  Model out = model();
  out.layers.assign(static_cast<size_t>(num_hidden_layers), each);
  return out;
}

const OneOf& activation_words() {
  static const OneOf kWords = [] {
    OneOf words;
    for (const auto& [word, activation] : kActivations) words.words.emplace_back(word);
    return words;
  }();
  return kWords;
}

Activation activation_of(const std::string& word) {
  for (const auto& [name, activation] : kActivations)
    if (word == name) return activation;
  throw Error(ErrorCode::config, "model", "the activation '" + word + "' is not built");
}

const OneOf& balance_words() {
  static const OneOf kWords{{"none", "layer", "sequence", "global", "model"}};
  return kWords;
}

model::BalanceLoss::Form balance_form(const std::optional<std::string>& word) {
  using Form = model::BalanceLoss::Form;
  if (!word) return Form::none;
  return *word == "layer"      ? Form::layer
         : *word == "sequence" ? Form::sequence
         : *word == "global"   ? Form::global
         : *word == "model"    ? Form::model
                               : Form::none;
}

std::vector<Node::Entry> automodel_loss() {
  return {{"router_aux_loss_type", Node::text("layer")}};
}

std::vector<Node::Entry> automodel_bias_update() {
  return {{"gate_bias_update_factor", Node::real(0.001)}};
}

Mixture MixtureKeys::mixture() const {
  Mixture out;
  RouterConfig& router = out.router;
  router.experts = experts;
  router.rule.top_k = experts_of_token;
  router.rule.groups = groups, router.rule.top_groups = top_groups;
  router.rule.normalise = normalised, router.rule.scale = routed_scale;
  router.in_fp32 = router_dtype.has_value();
  router.in_turn = fake_balanced_gate;
  const std::string usual = output_router_logits ? "model" : "none";
  router.balance = {balance_form(router_aux_loss_type.value_or(usual)), router_aux_loss_coef};
  router.z_loss = router_z_loss_coef;
  out.width = expert_width;
  return out;
}

Mixture MixtureKeys::corrected_mixture() const {
  Mixture out = mixture();
  RouterConfig& router = out.router;
  router.rule.score = model::RouterRule::Score::sigmoid;
  router.rule.group_best = 2;
  router.correction = true;
  router.correction_rate = gate_bias_update_factor;
  return out;
}

std::string complaint_of_layer_types(const std::optional<std::vector<std::string>>& types, int64_t layers) {
  if (!types) return "";
  for (const std::string& type : *types)
    if (type != kFullAttention && type != kSlidingAttention)
      return "layer_types: a layer of type '" + type +
             "' is not built; known: full_attention, sliding_attention";
  if (static_cast<int64_t>(types->size()) == layers) return "";
  return "layer_types has " + std::to_string(types->size()) + " words for " + std::to_string(layers) +
         " layers";
}

}  // namespace heddle::decoder
