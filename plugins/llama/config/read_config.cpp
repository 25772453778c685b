// Reader of a model's configuration from Hugging Face's keys.
#include <string>

#include "heddle/decoder/family.h"
#include "heddle/model/config_keys.h"
#include "keys.h"
#include "model_config.h"
#include "model_type.h"

namespace heddle::llama {
namespace {

using model::boolean_or;
using model::refuse;

constexpr int64_t kMostElements = int64_t{1} << 60;

std::string read_type(const Node& keys) {
  const Node* type = model::given(keys, "model_type");
  if (type == nullptr) refuse(keys, "model_type is missing");
  return type->as_text();
}

ModelConfig defaults_of(const ModelType& type) {
  ModelConfig config;
  config.num_key_value_heads = config.head_dim = 0;
  config.model_type = type.name;
  type.set_defaults(config);
  return config;
}

// Returns the type's default if it divides the number of query heads, else that number.
int64_t default_key_heads(const ModelConfig& config) {
  const int64_t heads = config.num_key_value_heads;
  return heads > 0 && config.num_attention_heads % heads == 0 ? heads : config.num_attention_heads;
}

void read_heads(const Node& keys, ModelConfig& config) {
  config.num_attention_heads = model::size_or(keys, "num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads = model::size_or(keys, "num_key_value_heads", default_key_heads(config));
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    refuse(keys, "num_attention_heads " + std::to_string(config.num_attention_heads) +
                     " is not a multiple of num_key_value_heads " +
                     std::to_string(config.num_key_value_heads));
  const Node* head_dim = keys.find("head_dim");
  const bool given = head_dim != nullptr && !head_dim->is_null();
  const bool fixed = config.head_dim > 0 && head_dim == nullptr;
  if (!given && !fixed && config.hidden_size % config.num_attention_heads != 0)
    refuse(keys,
           "hidden_size " + std::to_string(config.hidden_size) +
               " is not a multiple of num_attention_heads " + std::to_string(config.num_attention_heads),
           "set head_dim");
  if (!fixed)
    config.head_dim = model::size_or(keys, "head_dim", config.hidden_size / config.num_attention_heads);
  if (config.num_attention_heads * config.head_dim > model::kLargestSize)
    refuse(keys, "num_attention_heads " + std::to_string(config.num_attention_heads) + " of head_dim " +
                     std::to_string(config.head_dim) + " are more than " +
                     std::to_string(model::kLargestSize));
  if (config.head_dim % 2 != 0)
    refuse(given ? *head_dim : keys,
           "the rotary embedding needs an even head_dim, got " + std::to_string(config.head_dim));
}

void read_padding(const Node& keys, ModelConfig& config) {
  const Node* padding = keys.find("pad_token_id");
  if (padding == nullptr) return;
  if (padding->is_null()) {
    config.pad_token_id = -1;
    return;
  }
  const int64_t id = padding->as_integer();
  if (id >= config.vocab_size || id < -config.vocab_size)
    refuse(*padding, "expected a token of the vocabulary of " + std::to_string(config.vocab_size) + ", got " +
                         std::to_string(id));
  config.pad_token_id =
      id < 0 ? id + config.vocab_size : id;  // a negative id counts from the end, as in torch.nn.Embedding
}

void read_rotary(const Node& keys, const ModelType& type, ModelConfig& config) {
  decoder::RotaryKeys rotary{config.rope_theta, config.rope_scaling, config.partial_rotary_factor};
  decoder::read_rotary(keys, rotary,
                       {type.name, config.head_dim, config.max_position_embeddings, type.partial_rotary});
  config.rope_theta = rotary.theta;
  config.rope_scaling = rotary.scaling;
  config.partial_rotary_factor = rotary.part;
}

void check_size(const Node& keys, const ModelConfig& config) {
  const Mixture& mixture = config.mixture;
  if (mixture.experts > 0 && config.hidden_size > kMostElements / (mixture.experts * mixture.width))
    refuse(keys, std::to_string(mixture.experts) + " experts of width " + std::to_string(mixture.width) +
                     " have too many weights");
}

// Reads values that do not depend on each other.
void read_values(const Node& keys, ModelConfig& config, Errors& errors) {
  const auto size = [&](const char* key, int64_t& to, int64_t most = model::kLargestSize) {
    errors.attempt([&] { to = model::size_or(keys, key, to, most); });
  };
  size("vocab_size", config.vocab_size);
  size("hidden_size", config.hidden_size);
  size("intermediate_size", config.intermediate_size);
  size("num_hidden_layers", config.num_hidden_layers, model::kMostLayers);
  size("max_position_embeddings", config.max_position_embeddings);
  errors.attempt([&] {
    config.rms_norm_eps = model::real_or(keys, "rms_norm_eps", config.rms_norm_eps);
    if (!(config.rms_norm_eps > 0)) refuse(*keys.find("rms_norm_eps"), "expected a number above 0");
  });
  errors.attempt([&] {
    config.initializer_range = model::real_or(keys, "initializer_range", config.initializer_range);
    if (!(config.initializer_range >= 0))
      refuse(*keys.find("initializer_range"), "expected a number of at least 0");
  });
  errors.attempt([&] { config.tie_word_embeddings = boolean_or(keys, "tie_word_embeddings", false); });
  errors.attempt(
      [&] { config.dtype = model::text_or(keys, "dtype", model::text_or(keys, "torch_dtype", "")); });
}

}  // namespace

ModelConfig read_model_config(const Node& keys, UnknownKeys unknown) {
  const ModelType& type = type_of(read_type(keys));
  ModelConfig config = defaults_of(type);
  Errors errors;
  errors.attempt([&] { model::check_keys(keys, keys_of(type.name), unknown); });
  errors.attempt([&] { check_refused_keys(keys); });
  read_values(keys, config, errors);
  errors.raise();  // later checks depend on these values
  errors.attempt([&] { read_padding(keys, config); });
  if (errors.attempt([&] { read_heads(keys, config); })) {
    errors.attempt([&] { read_rotary(keys, type, config); });
    errors.attempt([&] { type.read(keys, config); });
  }
  errors.raise();
  decoder::check_rotary(keys, {config.rope_theta, config.rope_scaling, config.partial_rotary_factor},
                        config.head_dim);
  check_size(keys, config);
  return config;
}

}  // namespace heddle::llama
