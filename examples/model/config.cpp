// Conversion of config.json to the configuration and back.
#include "config.h"

#include <iomanip>
#include <sstream>

namespace gpt2 {
namespace {

using heddle::Node;
namespace model = heddle::model;

// transformers' default dropout is 0.1.
void refuse_dropout(const Node& keys) {
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    if (model::real_or(keys, key, 0.1) != 0.0) {
      const Node* node = keys.find(key);
      model::refuse(node == nullptr ? keys : *node,
                    std::string(key) + " is " +
                        (node == nullptr ? "absent, which means 0.1" : node->written()) +
                        "; dropout is not built",
                    std::string("set ") + key + ": 0.0");
    }
}

void refuse_variants(const Node& keys) {
  if (const Node* act = model::given(keys, "activation_function");
      act != nullptr && act->as_text() != "gelu_new")
    model::refuse(*act, "the activation " + act->written() + " is not built; known: gelu_new");
  if (!model::boolean_or(keys, "scale_attn_weights", true))
    model::refuse(*keys.find("scale_attn_weights"), "attention without scaled scores is not built");
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
    if (model::boolean_or(keys, key, false))
      model::refuse(*keys.find(key), std::string(key) + " is not built");
  refuse_dropout(keys);
}

}  // namespace

std::vector<heddle::FieldInfo> keys() {
  return {
      {"vocab_size", "int", "50257", "1..2^28", "Vocabulary size.", ""},
      {"n_positions", "int", "1024", "1..2^28", "Maximum sequence length.", ""},
      {"n_embd", "int", "768", "n_head divides it", "Hidden size.", ""},
      {"n_layer", "int", "12", "1..100000", "Number of layers.", ""},
      {"n_head", "int", "12", "1..2^28", "Number of attention heads.", ""},
      {"n_inner", "int or null", "null", "1..2^28", "Width of the MLP. null: 4 * n_embd.", ""},
      {"n_ctx", "int", "1024", "", "Ignored: an older name of n_positions.", ""},
      {"layer_norm_epsilon", "float", "1e-05", "above 0", "Epsilon added to the variance in each norm.", ""},
      {"initializer_range", "float", "0.02", "0 or more", "Standard deviation of random weights.", ""},
      {"tie_word_embeddings", "bool", "true", "", "Share the embedding's weight with the head.", ""},
      {"activation_function", "str", "gelu_new", "gelu_new", "Activation function of the MLP.", ""},
      {"resid_pdrop", "float", "0.1", "0.0", "Dropout. Must be set to 0.0.", ""},
      {"embd_pdrop", "float", "0.1", "0.0", "Dropout. Must be set to 0.0.", ""},
      {"attn_pdrop", "float", "0.1", "0.0", "Dropout. Must be set to 0.0.", ""},
      {"scale_attn_weights", "bool", "true", "true", "Scale the attention scores.", ""},
      {"scale_attn_by_inverse_layer_idx", "bool", "false", "false", "true is not supported.", ""},
      {"reorder_and_upcast_attn", "bool", "false", "false", "true is not supported.", ""},
      {"summary_type", "str", "", "", "Ignored, like all summary_* keys: used by other tasks.", ""},
      {"summary_use_proj", "bool", "true", "", "Ignored.", ""},
      {"summary_activation", "str", "", "", "Ignored.", ""},
      {"summary_first_dropout", "float", "0.1", "", "Ignored.", ""},
      {"summary_proj_to_labels", "bool", "true", "", "Ignored.", ""},
      {"pad_token_id", "int or null", "null", "", "Ignored: GPT-2's embedding has no padding row.", ""},
      {"dtype", "str", "null", "", "Dtype of the stored weights.", ""},
      {"torch_dtype", "str", "null", "", "Older name of dtype.", ""},
  };
}

Config read(const Node& given, heddle::UnknownKeys unknown) {
  model::check_keys(given, keys(), unknown);
  refuse_variants(given);
  Config config;
  config.vocab_size = model::size_or(given, "vocab_size", config.vocab_size);
  config.n_positions = model::size_or(given, "n_positions", config.n_positions);
  config.n_embd = model::size_or(given, "n_embd", config.n_embd);
  config.n_layer = model::size_or(given, "n_layer", config.n_layer, model::kMostLayers);
  config.n_head = model::size_or(given, "n_head", config.n_head);
  config.n_inner = model::size_or(given, "n_inner", 4 * config.n_embd);
  if (config.n_embd % config.n_head != 0)
    model::refuse(given, "n_embd " + std::to_string(config.n_embd) + " is not a multiple of n_head " +
                             std::to_string(config.n_head));
  config.layer_norm_epsilon = model::real_or(given, "layer_norm_epsilon", config.layer_norm_epsilon);
  if (!(config.layer_norm_epsilon > 0))
    model::refuse(*given.find("layer_norm_epsilon"), "expected a number above 0");
  config.initializer_range = model::real_or(given, "initializer_range", config.initializer_range);
  if (!(config.initializer_range >= 0))
    model::refuse(*given.find("initializer_range"), "expected a number of at least 0");
  config.tie_word_embeddings = model::boolean_or(given, "tie_word_embeddings", true);
  config.dtype = model::text_or(given, "dtype", model::text_or(given, "torch_dtype", ""));
  return config;
}

std::string to_json(const Config& config, const std::string& dtype) {
  std::ostringstream out;
  out << std::setprecision(17)
      << "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
      << "  \"vocab_size\": " << config.vocab_size << ",\n  \"n_positions\": " << config.n_positions
      << ",\n  \"n_embd\": " << config.n_embd << ",\n  \"n_layer\": " << config.n_layer
      << ",\n  \"n_head\": " << config.n_head << ",\n  \"n_inner\": " << config.n_inner
      << ",\n  \"layer_norm_epsilon\": " << config.layer_norm_epsilon
      << ",\n  \"initializer_range\": " << config.initializer_range
      << ",\n  \"tie_word_embeddings\": " << (config.tie_word_embeddings ? "true" : "false")
      << ",\n  \"activation_function\": \"gelu_new\",\n"
      << "  \"resid_pdrop\": 0.0,\n  \"embd_pdrop\": 0.0,\n  \"attn_pdrop\": 0.0,\n"
      << "  \"bos_token_id\": null,\n  \"eos_token_id\": null";
  if (!dtype.empty()) out << ",\n  \"dtype\": \"" << dtype << "\",\n  \"torch_dtype\": \"" << dtype << "\"";
  out << "\n}\n";
  return out.str();
}

}  // namespace gpt2
