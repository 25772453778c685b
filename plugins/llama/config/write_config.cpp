// Writer of a model's configuration as a Hugging Face config.json.
#include <nlohmann/json.hpp>

#include "heddle/decoder/family.h"
#include "model_config.h"
#include "model_type.h"

namespace heddle::llama {
namespace {

using nlohmann::ordered_json;

ordered_json rope_of(const ModelConfig& config, bool partial) {
  const decoder::RotaryKeys rotary{config.rope_theta, config.rope_scaling, config.partial_rotary_factor};
  return ordered_json::parse(config::to_json(decoder::rotary_map(rotary, partial)));
}

}  // namespace

// Writes both spellings of the rotary embedding, because transformers before 5 reads rope_theta and
// rope_scaling.
std::string to_config_json(const ModelConfig& config) {
  const ModelType& type = type_of(config.model_type);
  const ordered_json rope = rope_of(config, type.partial_rotary);
  ordered_json out{{"architectures", {type.architecture}},
                   {"model_type", config.model_type},
                   {"vocab_size", config.vocab_size},
                   {"hidden_size", config.hidden_size},
                   {"intermediate_size", config.intermediate_size},
                   {"num_hidden_layers", config.num_hidden_layers},
                   {"num_attention_heads", config.num_attention_heads},
                   {"num_key_value_heads", config.num_key_value_heads},
                   {"head_dim", config.head_dim},
                   {"hidden_act", "silu"},
                   {"max_position_embeddings", config.max_position_embeddings},
                   {"rms_norm_eps", config.rms_norm_eps},
                   {"initializer_range", config.initializer_range},
                   {"tie_word_embeddings", config.tie_word_embeddings},
                   {"attention_dropout", 0.0},
                   {"rope_theta", config.rope_theta},
                   {"rope_scaling", nullptr},
                   {"rope_parameters", rope}};
  if (config.rope_scaling.kind != RotaryScaling::Kind::none) out["rope_scaling"] = rope;
  if (type.partial_rotary) out["partial_rotary_factor"] = config.partial_rotary_factor;
  if (config.pad_token_id >= 0) out["pad_token_id"] = config.pad_token_id;
  type.write(config, out);
  if (!config.dtype.empty()) out["dtype"] = out["torch_dtype"] = config.dtype;
  return out.dump(2) + "\n";
}

}  // namespace heddle::llama
