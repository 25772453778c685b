// The table of keys, and the values of them that are refused.
#include "keys.h"

#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

const std::vector<FieldInfo> kCommonKeys = {
    {"vocab_size", "int", "32000", "1..2^28", "Tokens. Qwen: 151936.", ""},
    {"hidden_size", "int", "4096", "1..2^28", "Width of the hidden states.", ""},
    {"intermediate_size", "int", "11008", "1..2^28", "Width of the MLP. Qwen: 22016.", ""},
    {"num_hidden_layers", "int", "32", "1..100000", "Decoder layers.", ""},
    {"num_attention_heads", "int", "32", "1..2^28", "Heads of queries.", ""},
    {"num_key_value_heads", "int or null", "null", "divides num_attention_heads",
     "Heads of keys and values; null: as many as of queries (Qwen: 32 where that divides).", ""},
    {"head_dim", "int or null", "null", "even",
     "Width of a head; null: hidden_size / num_attention_heads. Qwen3: 128 where the key is absent.", ""},
    {"max_position_embeddings", "int", "2048", "1..2^28", "Longest sequence. Qwen: 32768.", ""},
    {"rms_norm_eps", "float", "1e-06", "above 0", "Added under the root of each norm.", ""},
    {"initializer_range", "float", "0.02", "0 or more", "Standard deviation of random weights.", ""},
    {"rope_theta", "float", "10000.0", "above 0", "Base of the rotary embedding's wavelengths.", ""},
    {"rope_scaling", "map or null", "null", "types default, linear, llama3, yarn",
     "Scaling of the rotary embedding: rope_type and its factors.", ""},
    {"rope_parameters", "map or null", "null", "types default, linear, llama3, yarn",
     "The newer spelling of rope_scaling, with rope_theta in it.", ""},
    {"original_max_position_embeddings", "int or null", "null", "",
     "Of rope types llama3 and yarn: positions that the model was first trained on.", ""},
    {"tie_word_embeddings", "bool", "false", "", "The head computes with the embedding's weight.", ""},
    {"pad_token_id", "int or null", "null", "a token, or counted from the end",
     "Its row of the embedding gets no gradient from the look-up.", ""},
    {"hidden_act", "str", "silu", "silu, swish",
     "Activation of the MLP; both words mean one, so the key changes nothing.", ""},
    {"attention_dropout", "float", "0.0", "0.0", "Dropout of attention; anything else is refused.", ""},
    {"partial_rotary_factor", "float", "1.0", "above 0, to 1.0",
     "Part of each head that is rotated, its first numbers. GLM-4.5 and Ling: 0.5; else, but for MiniMax-M2, "
     "only 1.0.",
     ""},
    {"quantization_config", "map or null", "null", "null",
     "Refused; files in fp8 or mxfp4 are dequantized when they are read.", ""},
    {"dtype", "str", "null", "", "Of the stored weights.", ""},
    {"torch_dtype", "str", "null", "", "The older name of dtype.", ""},
};

using model::given;
using model::refuse;

// The method in parentheses, where the map has one.
[[noreturn]] void refuse_quantised(const Node& quantised) {
  const Node* method = quantised.is_map() ? given(quantised, "quant_method") : nullptr;
  const std::string name = method == nullptr ? "" : " (" + method->as_text() + ")";
  refuse(quantised, "quantised weights" + name + " are not built", "use the model's unquantised weights");
}

}  // namespace

const std::vector<FieldInfo>& common_keys() {
  return kCommonKeys;
}

void check_refused_keys(const Node& keys) {
  if (const Node* act = given(keys, "hidden_act");
      act != nullptr && act->as_text() != "silu" && act->as_text() != "swish")
    refuse(*act, "the activation " + act->written() + " is not built; known: silu");
  if (const Node* dropout = given(keys, "attention_dropout"); dropout != nullptr && dropout->as_real() != 0.0)
    refuse(*dropout, "dropout of attention is not built, got " + dropout->written(),
           "set attention_dropout: 0.0");
  if (const Node* quantised = given(keys, "quantization_config")) refuse_quantised(*quantised);
}

void check_heads_divide(const Node& keys, const ModelConfig& config) {
  if (config.hidden_size % config.num_attention_heads == 0) return;
  const Node* hidden = given(keys, "hidden_size");
  refuse(hidden == nullptr ? keys : *hidden,
         "transformers refuses a " + config.model_type + " whose hidden_size " +
             std::to_string(config.hidden_size) + " is no multiple of num_attention_heads " +
             std::to_string(config.num_attention_heads),
         "make hidden_size a multiple; head_dim may be any even number beside it");
}

}  // namespace heddle::llama
