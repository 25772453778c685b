// The rotary embedding of a Hugging Face configuration.
#include "read_rotary.h"

#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

using model::integer_or;
using model::real_or;
using model::refuse;
using model::text_or;

double positive(const Node& parameters, std::string_view key) {
  const Node* node = parameters.find(key);
  if (node == nullptr || node->is_null())
    refuse(parameters, "rope type " + text_or(parameters, "rope_type", text_or(parameters, "type", "")) +
                           " needs " + std::string(key));
  if (!(node->as_real() > 0)) refuse(*node, "expected a number above 0, got " + node->written());
  return node->as_real();
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
  scaling.original_positions =
      integer_or(keys, "original_max_position_embeddings",
                 integer_or(parameters, "original_max_position_embeddings", config.max_position_embeddings));
}

void read_parameters(const Node& keys, const Node& parameters, ModelConfig& config) {
  if (!parameters.is_map()) refuse(parameters, "expected a map with rope_type, got " + parameters.written());
  for (const auto& [key, value] : parameters.entries())
    if (value.is_map()) refuse(value, "rotary parameters of their own per layer type are not built");
  if (real_or(parameters, "partial_rotary_factor", 1.0) != 1.0)
    refuse(*parameters.find("partial_rotary_factor"),
           "a rotary embedding of part of each head is not built, got " +
               parameters.find("partial_rotary_factor")->written());
  config.rope_theta = real_or(parameters, "rope_theta", config.rope_theta);
  const std::string type = text_or(parameters, "rope_type", text_or(parameters, "type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    config.rope_scaling.kind = RotaryScaling::Kind::linear;
    config.rope_scaling.factor = positive(parameters, "factor");
  } else if (type == "llama3") {
    read_llama3(keys, parameters, config);
  } else {
    refuse(parameters, "rope type '" + type + "' is not built; known: default, linear, llama3");
  }
}

}  // namespace

void read_rotary(const Node& keys, ModelConfig& config) {
  config.rope_theta = real_or(keys, "rope_theta", config.rope_theta);
  const Node* parameters = nullptr;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const Node* found = keys.find(key);
        found != nullptr && !found->is_null() && !(found->is_map() && found->size() == 0))
      parameters = found;
  if (parameters != nullptr) read_parameters(keys, *parameters, config);
  if (!(config.rope_theta > 0))
    refuse(keys, "expected a rope_theta above 0, got " + std::to_string(config.rope_theta));
}

}  // namespace heddle::llama
