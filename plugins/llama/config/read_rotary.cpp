// The rotary embedding of a Hugging Face configuration.
#include "read_rotary.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "heddle/model/config_keys.h"
#include "model_type.h"

namespace heddle::llama {
namespace {

using model::integer_or;
using model::real_or;
using model::refuse;
using model::text_or;

// partial_rotary_factor of the keys or of the rotary parameters.
void read_part(const Node& keys, ModelConfig& config) {
  const Node* part = model::given(keys, "partial_rotary_factor");
  if (part == nullptr) return;
  config.partial_rotary_factor = part->as_real();
  if (config.partial_rotary_factor == 1.0) return;
  if (!type_of(config.model_type).partial_rotary)
    refuse(*part, "a model of type " + config.model_type + " rotates whole heads, got " + part->written(),
           "leave the key out");
  const int64_t dim = config.rotary_dim();
  if (!(config.partial_rotary_factor > 0 && config.partial_rotary_factor < 1) || dim < 2 || dim % 2 != 0)
    refuse(*part, "of heads of " + std::to_string(config.head_dim) +
                      " an even number must be rotated, from 2 on, got " + part->written());
}

double positive(const Node& parameters, std::string_view key) {
  const Node* node = parameters.find(key);
  if (node == nullptr || node->is_null())
    refuse(parameters, "rope type " + text_or(parameters, "rope_type", text_or(parameters, "type", "")) +
                           " needs " + std::string(key));
  if (!(node->as_real() > 0) || !std::isfinite(node->as_real()))
    refuse(*node, "expected a number above 0, got " + node->written());
  return node->as_real();
}

int64_t original_positions(const Node& keys, const Node& parameters, const ModelConfig& config) {
  constexpr const char* kKey = "original_max_position_embeddings";
  return model::size_or(keys, kKey, model::size_or(parameters, kKey, config.max_position_embeddings));
}

void read_llama3(const Node& keys, const Node& parameters, ModelConfig& config) {
  RotaryScaling& scaling = config.rope_scaling;
  scaling.kind = RotaryScaling::Kind::llama3;
  scaling.factor = positive(parameters, "factor");
  scaling.low_freq_factor = positive(parameters, "low_freq_factor");
  scaling.high_freq_factor = positive(parameters, "high_freq_factor");
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    refuse(*parameters.find("high_freq_factor"),
           "expected more than low_freq_factor, got " + parameters.find("high_freq_factor")->written());
  scaling.original_positions = original_positions(keys, parameters, config);
}

// transformers takes a 0 of these for an absent key.
double positive_or(const Node& parameters, std::string_view key, double otherwise) {
  const double value = real_or(parameters, key, 0);
  if (value == 0) return otherwise;
  return positive(parameters, key);
}

void read_yarn(const Node& keys, const Node& parameters, ModelConfig& config) {
  RotaryScaling& scaling = config.rope_scaling;
  scaling.kind = RotaryScaling::Kind::yarn;
  scaling.factor = positive(parameters, "factor");
  scaling.beta_fast = positive_or(parameters, "beta_fast", 32);
  scaling.beta_slow = positive_or(parameters, "beta_slow", 1);
  scaling.truncate = model::boolean_or(parameters, "truncate", true);
  if (model::given(parameters, "attention_factor") != nullptr)
    scaling.attention_factor = positive(parameters, "attention_factor");
  scaling.mscale = positive_or(parameters, "mscale", 0);
  scaling.mscale_all_dim = positive_or(parameters, "mscale_all_dim", 0);
  scaling.original_positions = original_positions(keys, parameters, config);
}

void read_parameters(const Node& keys, const Node& parameters, ModelConfig& config) {
  if (!parameters.is_map()) refuse(parameters, "expected a map with rope_type, got " + parameters.written());
  for (const auto& [key, value] : parameters.entries())
    if (value.is_map()) refuse(value, "rotary parameters of their own per layer type are not built");
  read_part(parameters, config);
  config.rope_theta = real_or(parameters, "rope_theta", config.rope_theta);
  const std::string type = text_or(parameters, "rope_type", text_or(parameters, "type", "default"));
  config.rope_scaling = {};
  if (type == "default") return;
  if (type == "linear") {
    config.rope_scaling.kind = RotaryScaling::Kind::linear;
    config.rope_scaling.factor = positive(parameters, "factor");
  } else if (type == "llama3") {
    read_llama3(keys, parameters, config);
  } else if (type == "yarn") {
    read_yarn(keys, parameters, config);
  } else {
    refuse(parameters, "rope type '" + type + "' is not built; known: default, linear, llama3, yarn");
  }
}

// The type's own partial_rotary_factor, of heads that it does not fit.
void check_default_part(const Node& keys, const ModelConfig& config) {
  const int64_t dim = config.rotary_dim();
  if (!type_of(config.model_type).partial_rotary || (dim >= 2 && dim % 2 == 0)) return;
  std::string factor = std::to_string(config.partial_rotary_factor);
  factor.erase(factor.find_last_not_of('0') + 1);
  const Node* head_dim = model::given(keys, "head_dim");
  refuse(head_dim != nullptr ? *head_dim : keys,
         "of heads of " + std::to_string(config.head_dim) +
             " an even number must be rotated, from 2 on, and " + config.model_type + " rotates " + factor +
             " of them by default",
         "give partial_rotary_factor, or another head_dim");
}

}  // namespace

void read_rotary(const Node& keys, ModelConfig& config) {
  config.rope_theta = real_or(keys, "rope_theta", config.rope_theta);
  read_part(keys, config);
  const Node* parameters = nullptr;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const Node* found = keys.find(key);
        found != nullptr && !found->is_null() && !(found->is_map() && found->size() == 0))
      parameters = found;
  if (parameters != nullptr) read_parameters(keys, *parameters, config);
  check_default_part(keys, config);
  if (!(config.rope_theta > 0))
    refuse(keys, "expected a rope_theta above 0, got " + std::to_string(config.rope_theta));
}

void check_rotary(const Node& keys, const ModelConfig& config) {
  const at::Tensor frequencies =
      model::rotary_frequencies(config.rotary_dim(), config.rope_theta, config.rope_scaling);
  const float* first = frequencies.const_data_ptr<float>();
  if (std::all_of(first, first + frequencies.numel(), [](float value) { return std::isfinite(value); }) &&
      std::isfinite(model::rotary_factor(config.rope_scaling)))
    return;
  char theta[32];
  std::snprintf(theta, sizeof theta, "%g", config.rope_theta);
  const bool scales = config.rope_scaling.kind != RotaryScaling::Kind::none;
  refuse(keys,
         std::string("the rotary embedding is not finite with rope_theta ") + theta +
             (scales ? " and the factors of its rope type" : ""),
         "rope_theta is the base of the wavelengths, 10000 in most models");
}

}  // namespace heddle::llama
