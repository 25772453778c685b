// The tables of keys, and the values of them that are refused.
#include "keys.h"

#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

const std::vector<FieldInfo> kKeys = {
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
    {"rope_scaling", "map or null", "null", "types default, linear, llama3",
     "Scaling of the rotary embedding: rope_type and its factors.", ""},
    {"rope_parameters", "map or null", "null", "types default, linear, llama3",
     "The newer spelling of rope_scaling, with rope_theta in it.", ""},
    {"original_max_position_embeddings", "int or null", "null", "",
     "Of rope type llama3: positions that the model was first trained on.", ""},
    {"attention_bias", "bool", "false", "",
     "Biases of q, k, v and o. Qwen2 has those of q, k and v whatever the key says.", ""},
    {"mlp_bias", "bool", "false", "", "Biases of the MLP. Llama only.", ""},
    {"tie_word_embeddings", "bool", "false", "", "The head computes with the embedding's weight.", ""},
    {"pad_token_id", "int or null", "null", "a token, or counted from the end",
     "Its row of the embedding gets no gradient from the look-up.", ""},
    {"hidden_act", "str", "silu", "silu, swish", "Activation of the MLP.", ""},
    {"attention_dropout", "float", "0.0", "0.0", "Dropout of attention; anything else is refused.", ""},
    {"sliding_window", "int or null", "null", "null where it would act",
     "Attention of a window; refused where a layer would use it.", ""},
    {"use_sliding_window", "bool", "false", "", "Whether sliding_window acts.", ""},
    {"max_window_layers", "int", "28", "", "Layers before this one have no window.", ""},
    {"layer_types", "list or null", "null", "full_attention, sliding_attention",
     "Of each layer; sliding_attention is refused where the window acts.", ""},
    {"partial_rotary_factor", "float", "1.0", "1.0", "Part of a head that is rotated.", ""},
    {"quantization_config", "map or null", "null", "null", "Quantised weights are refused.", ""},
    {"dtype", "str", "null", "", "Of the stored weights.", ""},
    {"torch_dtype", "str", "null", "", "The older name of dtype.", ""},
};

const std::vector<FieldInfo> kMixtureKeys = {
    {"num_experts", "int", "128", "1..65536", "Experts of a layer. Mixtral: 8; OLMoE: 64; Qwen2-MoE: 60.",
     ""},
    {"num_local_experts", "int", "null", "1..65536", "Another name of num_experts.", ""},
    {"num_experts_per_tok", "int", "8", "1..num_experts", "Experts of a token. Mixtral: 2; Qwen2-MoE: 4.",
     ""},
    {"moe_intermediate_size", "int", "768", "1..2^28",
     "Width of an expert. Qwen2-MoE: 1408; Mixtral and OLMoE: intermediate_size.", ""},
    {"shared_expert_intermediate_size", "int", "5632", "1..2^28", "Width of Qwen2-MoE's shared expert.", ""},
    {"norm_topk_prob", "bool", "false", "", "The weights of a token's experts sum to 1. Mixtral: always.",
     ""},
    {"decoder_sparse_step", "int", "1", "1..2^28", "Every so many-th layer has experts. Qwen only.", ""},
    {"mlp_only_layers", "list or null", "null", "layers", "Layers without experts. Qwen only.", ""},
    {"qkv_bias", "bool", "true", "", "Biases of q, k and v. Qwen2-MoE only.", ""},
    {"clip_qkv", "float or null", "null", "null", "Clamping of q, k and v is refused. OLMoE only.", ""},
    {"output_router_logits", "bool", "false", "", "Train with the auxiliary loss.", ""},
    {"router_aux_loss_coef", "float", "0.001", "0 or more", "Its coefficient. OLMoE: 0.01.", ""},
    {"router_aux_loss_type", "str or null", "null", "none, layer, sequence, model",
     "Its form; null: model where output_router_logits, else none.", ""},
    {"router_z_loss_coef", "float", "0.0", "0 or more", "Coefficient of the router's z-loss.", ""},
    {"router_jitter_noise", "float", "0.0", "0.0", "Router jitter is refused.", ""},
    {"router_dtype", "str or null", "null", "float32", "Dtype of the router's product; null: the model's.",
     ""},
    {"fake_balanced_gate", "bool", "false", "", "For benchmarks: experts in turn.", ""},
};

using model::boolean_or;
using model::given;
using model::integer_or;
using model::refuse;

void check_sliding_window(const Node& keys) {
  const Node* types = given(keys, "layer_types");
  if (types != nullptr)
    for (const Node& type : types->items())
      if (type.as_text() != "full_attention" && type.as_text() != "sliding_attention")
        refuse(*types, "a layer of type " + type.written() + " is not built; known: full_attention");
  const Node* window = given(keys, "sliding_window");
  if (window == nullptr || !boolean_or(keys, "use_sliding_window", false)) return;
  bool slides = types == nullptr &&
                integer_or(keys, "max_window_layers", 28) < integer_or(keys, "num_hidden_layers", 32);
  if (types != nullptr)
    for (const Node& type : types->items()) slides = slides || type.as_text() == "sliding_attention";
  if (slides)
    refuse(*window, "attention with a sliding window of " + window->written() + " is not built",
           "set use_sliding_window: false if the sequences are shorter than the window");
}

}  // namespace

const std::vector<FieldInfo>& keys() {
  return kKeys;
}

const std::vector<FieldInfo>& mixture_keys() {
  static const std::vector<FieldInfo> all = [] {
    std::vector<FieldInfo> out = kKeys;
    out.insert(out.end(), kMixtureKeys.begin(), kMixtureKeys.end());
    return out;
  }();
  return all;
}

void check_refused_keys(const Node& keys) {
  if (const Node* act = given(keys, "hidden_act");
      act != nullptr && act->as_text() != "silu" && act->as_text() != "swish")
    refuse(*act, "the activation " + act->written() + " is not built; known: silu");
  if (const Node* dropout = given(keys, "attention_dropout"); dropout != nullptr && dropout->as_real() != 0.0)
    refuse(*dropout, "dropout of attention is not built, got " + dropout->written(),
           "set attention_dropout: 0.0");
  if (const Node* partial = given(keys, "partial_rotary_factor");
      partial != nullptr && partial->as_real() != 1.0)
    refuse(*partial, "a rotary embedding of part of each head is not built, got " + partial->written());
  if (const Node* quantised = given(keys, "quantization_config"))
    refuse(*quantised, "quantised weights are not built", "use the model's unquantised weights");
  check_sliding_window(keys);
}

}  // namespace heddle::llama
