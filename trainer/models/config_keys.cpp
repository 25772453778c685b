// The keys of Hugging Face configurations.
#include "trainer/models/config_keys.h"

#include <algorithm>
#include <array>

#include "heddle/base/text.h"

namespace heddle::models {
namespace {

constexpr std::array<std::string_view, 29> kActing{"model_type",
                                                   "vocab_size",
                                                   "hidden_size",
                                                   "intermediate_size",
                                                   "num_hidden_layers",
                                                   "num_attention_heads",
                                                   "num_key_value_heads",
                                                   "head_dim",
                                                   "max_position_embeddings",
                                                   "rms_norm_eps",
                                                   "initializer_range",
                                                   "rope_theta",
                                                   "rope_scaling",
                                                   "rope_parameters",
                                                   "original_max_position_embeddings",
                                                   "attention_bias",
                                                   "mlp_bias",
                                                   "tie_word_embeddings",
                                                   "pad_token_id",
                                                   "hidden_act",
                                                   "attention_dropout",
                                                   "sliding_window",
                                                   "use_sliding_window",
                                                   "max_window_layers",
                                                   "layer_types",
                                                   "partial_rotary_factor",
                                                   "quantization_config",
                                                   "dtype",
                                                   "torch_dtype"};

constexpr std::array<std::string_view, 36> kHarmless{"architectures",
                                                     "transformers_version",
                                                     "use_cache",
                                                     "bos_token_id",
                                                     "eos_token_id",
                                                     "sep_token_id",
                                                     "decoder_start_token_id",
                                                     "pretraining_tp",
                                                     "_name_or_path",
                                                     "name_or_path",
                                                     "auto_map",
                                                     "return_dict",
                                                     "output_hidden_states",
                                                     "output_attentions",
                                                     "torchscript",
                                                     "use_bfloat16",
                                                     "pruned_heads",
                                                     "chunk_size_feed_forward",
                                                     "is_encoder_decoder",
                                                     "is_decoder",
                                                     "add_cross_attention",
                                                     "cross_attention_hidden_size",
                                                     "tie_encoder_decoder",
                                                     "tokenizer_class",
                                                     "prefix",
                                                     "task_specific_params",
                                                     "problem_type",
                                                     "id2label",
                                                     "label2id",
                                                     "num_labels",
                                                     "finetuning_task",
                                                     "attn_implementation",
                                                     "_attn_implementation",
                                                     "_attn_implementation_autoset",
                                                     "unsloth_version",
                                                     "bad_words_ids"};

const Node* given(const Node& keys, std::string_view key) {
  const Node* node = keys.find(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

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

bool acts(std::string_view key) {
  return std::find(kActing.begin(), kActing.end(), key) != kActing.end();
}

bool is_harmless(std::string_view key) {
  return std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end();
}

std::string nearest_acting_key(std::string_view key) {
  return text::nearest(key, std::vector<std::string>(kActing.begin(), kActing.end()));
}

void refuse(const Node& node, const std::string& message, const std::string& hint) {
  throw Error(ErrorCode::config, node.where(), message, hint);
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

int64_t integer_or(const Node& keys, std::string_view key, int64_t otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_integer();
}

double real_or(const Node& keys, std::string_view key, double otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_real();
}

bool boolean_or(const Node& keys, std::string_view key, bool otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_boolean();
}

std::string text_or(const Node& keys, std::string_view key, const std::string& otherwise) {
  const Node* node = given(keys, key);
  return node == nullptr ? otherwise : node->as_text();
}

}  // namespace heddle::models
