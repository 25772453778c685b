// Table of the common keys, and checks of values that are refused.
#include "keys.h"

#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

const std::vector<FieldInfo> kCommonKeys = {
    {"vocab_size", "int", "32000", "1..2^28", "Vocabulary size. Qwen: 151936.", ""},
    {"hidden_size", "int", "4096", "1..2^28", "Hidden size.", ""},
    {"intermediate_size", "int", "11008", "1..2^28", "Width of the MLP. Qwen: 22016.", ""},
    {"num_hidden_layers", "int", "32", "1..100000", "Number of decoder layers.", ""},
    {"num_attention_heads", "int", "32", "1..2^28", "Number of query heads.", ""},
    {"num_key_value_heads", "int or null", "null", "divides num_attention_heads",
     "Number of key-value heads. null: num_attention_heads (Qwen: 32 if it divides num_attention_heads).",
     ""},
    {"head_dim", "int or null", "null", "even",
     "Head width. null: hidden_size / num_attention_heads. Qwen3: 128 if the key is absent.", ""},
    {"max_position_embeddings", "int", "2048", "1..2^28", "Maximum sequence length. Qwen: 32768.", ""},
    {"rms_norm_eps", "float", "1e-06", "above 0", "Epsilon added to the variance in each norm.", ""},
    {"initializer_range", "float", "0.02", "0 or more", "Standard deviation of random weights.", ""},
    {"rope_theta", "float", "10000.0", "above 0", "Base of the rotary embedding's wavelengths.", ""},
    {"rope_scaling", "map or null", "null", "types default, linear, llama3, yarn",
     "Scaling of the rotary embedding: rope_type and its parameters.", ""},
    {"rope_parameters", "map or null", "null", "types default, linear, llama3, yarn",
     "Newer spelling of rope_scaling, which contains rope_theta.", ""},
    {"original_max_position_embeddings", "int or null", "null", "",
     "Number of positions in pretraining, for the rope types llama3 and yarn.", ""},
    {"tie_word_embeddings", "bool", "false", "", "Share the embedding's weight with the head.", ""},
    {"pad_token_id", "int or null", "null", "a token, or counted from the end",
     "Token whose row of the embedding gets no gradient from the look-up.", ""},
    {"hidden_act", "str", "silu", "silu, swish",
     "Activation function of the MLP. Both values select the same function.", ""},
    {"attention_dropout", "float", "0.0", "0.0", "Dropout of attention. Only 0.0 is supported.", ""},
    {"partial_rotary_factor", "float", "1.0", "above 0, to 1.0",
     "Fraction of each head that is rotated, from its start. GLM-4.5 and Ling: 0.5. MiniMax-M2: any. All "
     "other types: 1.0 only.",
     ""},
    {"quantization_config", "map or null", "null", "null",
     "Refused. Files in fp8 or mxfp4 are dequantized when they are read.", ""},
    {"dtype", "str", "null", "", "Dtype of the stored weights.", ""},
    {"torch_dtype", "str", "null", "", "Older name of dtype.", ""},
};

using model::given;
using model::refuse;

// Names the method in parentheses if the map contains one.
[[noreturn]] void refuse_quantised(const Node& quantised) {
  const Node* method = quantised.is_map() ? given(quantised, "quant_method") : nullptr;
  const std::string name = method == nullptr ? "" : " (" + method->as_text() + ")";
  refuse(quantised, "quantized weights" + name + " are not built", "use the model's unquantized weights");
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
    refuse(*dropout, "attention dropout is not built, got " + dropout->written(),
           "set attention_dropout: 0.0");
  if (const Node* quantised = given(keys, "quantization_config")) refuse_quantised(*quantised);
}

void check_heads_divide(const Node& keys, const ModelConfig& config) {
  if (config.hidden_size % config.num_attention_heads == 0) return;
  const Node* hidden = given(keys, "hidden_size");
  refuse(hidden == nullptr ? keys : *hidden,
         "transformers refuses a " + config.model_type + " whose hidden_size " +
             std::to_string(config.hidden_size) + " is not a multiple of num_attention_heads " +
             std::to_string(config.num_attention_heads),
         "set hidden_size to a multiple of num_attention_heads; head_dim may be any even number");
}
}  // namespace heddle::llama