// Keys of config.json that several families of this plugin have.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::llama {

struct Keys : decoder::CommonKeys {
  // num_key_value_heads if the key is absent and this number divides the query heads; 0: all query heads.
  int64_t usual_key_heads = 0;
  std::string hidden_act = "silu";
  bool attention_bias = false;
  int64_t window = 0;        // sliding-window size in tokens, including the current token,
  std::vector<bool> slides;  // in these layers; empty: no layer has a window

  // Returns 0 if the layer has no window.
  int64_t window_of(int64_t layer) const {
    return layer < static_cast<int64_t>(slides.size()) && slides[static_cast<size_t>(layer)] ? window : 0;
  }
};

struct ExpertKeys : Keys, decoder::MixtureKeys {
  bool always_in_fp32 = false;  // whether the router's product is in fp32 whatever router_dtype is
};

// Resolves null and absent values: head sizes, a padding token that counts from the end.
void settle(Keys& keys);
// Resolves the form of the auxiliary loss and the dtype of the router's product.
void settle_router(ExpertKeys& keys);

// Adds a check that throws Error{config} at a key of the config.json.
template <class Own>
void add_check(model::ModelKeys<Own>& keys, std::function<void(const Node& given, Own& read)> check) {
  keys.group({{}, std::move(check), [](const Own&) { return std::vector<Node::Entry>(); }});
}

// How a family uses the common keys.
struct Form {
  bool partial = false;  // whether partial_rotary_factor applies
  bool latent = false;   // see decoder::CommonForm
  // Help of head_dim.
  const char* head_dim = "Head width. null: hidden_size / num_attention_heads.";
};

// Declares the keys of every family.
template <class Own>
model::ModelKeys<Own> add_common(const std::string& model_type, const Form& form = {}) {
  auto keys = decoder::common_keys<Own>({.latent = form.latent});
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, model_type, {.partial = form.partial});
  if (!form.partial) keys.unused("partial_rotary_factor", "Ignored if 1.0, else refused.");
  keys.field("head_dim", &Keys::head_dim, form.head_dim, decoder::kSize)
      .field("hidden_act", &Keys::hidden_act,
             "Activation function of MLPs and experts. swish is another name of silu.",
             OneOf{{"silu", "swish"}})
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .then(settle);
  return keys;
}

template <class Own>
void add_attention_bias(model::ModelKeys<Own>& keys,
                        const char* help = "Whether q, k, v and o have biases.") {
  keys.field("attention_bias", &Keys::attention_bias, help);
}

// Throws Error{config} if the heads do not divide hidden_size, which transformers requires whatever head_dim
// is.
void check_heads_divide(const Node& given, const Keys& keys, const std::string& model_type);

// Sliding windows in the layers of layer_types, or in those for which `slides` returns true.
using Slides = bool (*)(int64_t layer, int64_t max_window_layers);
// Layers from max_window_layers on, as in Qwen2 and Qwen3.
bool slides_at_the_end(int64_t layer, int64_t max_window_layers);
// Reads sliding_window, whose default is `window`, and layer_types. Throws Error{config} at the key.
void read_windows(const Node& given, Keys& keys, int64_t window, Slides slides);
// Returns sliding_window (null if no layer has a window) and layer_types.
std::vector<Node::Entry> window_entries(const Keys& keys);
FieldInfo layer_types_info(const char* help);

// Functions like these for windows that use_sliding_window enables.
void read_used_windows(const Node& given, Keys& keys, Slides slides);
std::vector<Node::Entry> used_window_entries(const Keys& keys);
std::vector<FieldInfo> used_window_table(const char* max_window_layers);

// Declares the keys of windows that use_sliding_window enables.
template <class Own>
void add_used_windows(model::ModelKeys<Own>& keys, Slides slides, const char* max_window_layers) {
  keys.group({used_window_table(max_window_layers),
              [slides](const Node& given, Own& read) { read_used_windows(given, read, slides); },
              [](const Own& read) { return used_window_entries(read); }});
}

// Reads other names of the number of experts, and checks it. names.front() is the name that is written.
void read_expert_names(const Node& given, ExpertKeys& keys, const std::vector<std::string>& names);
std::vector<FieldInfo> expert_name_table(const std::vector<std::string>& names);
// Limits the default of topk_group to n_group. Throws Error{config} for groups that do not fit the experts.
// best: number of experts by which a group is scored.
void check_groups(const Node& given, ExpertKeys& keys, const std::string& experts, int64_t best);
// Throws Error{config} if no layer has experts. keys: the keys that determine the layers.
void check_layers(const Node& given, const std::vector<bool>& sparse, const std::string& keys);

// Declares the keys of routers and experts. form.experts and `aliases` are names of the number of experts.
// by_logits: whether output_router_logits selects transformers' auxiliary loss.
template <class Own>
void add_experts(model::ModelKeys<Own>& keys, decoder::MixtureForm form, std::vector<std::string> aliases,
                 bool by_logits) {
  aliases.insert(aliases.begin(), form.experts);
  form.logits = by_logits;
  const bool wide = form.width == nullptr;
  decoder::add_mixture(keys, form);
  keys.then([wide](Own& read) {
    if (wide) read.expert_width = read.intermediate_size;
    settle_router(read);
  });
  keys.group({expert_name_table(aliases),
              [aliases](const Node& given, Own& read) { read_expert_names(given, read, aliases); },
              [by_logits](const Own&) {
                if (by_logits) return std::vector<Node::Entry>();
                return std::vector<Node::Entry>{{"output_router_logits", Node::boolean(false)}};
              }});
  if (!by_logits)
    keys.unused("output_router_logits",
                "Ignored, as in transformers: router_aux_loss_type selects the loss.");
}

// Input of signature_of(): keys, and the model that they describe.
struct Signed {
  const decoder::CommonKeys& keys;
  decoder::Model model;
};

// Returns the keys of AutoModel's signature, and other keys that affect parameters. usual: a model with the
// family's defaults and more layers.
std::map<std::string, std::string> signature_of(const std::string& model_type, const Signed& of,
                                                const Signed& usual);

// Description::signature.
template <auto description, class Own>
std::map<std::string, std::string> signature(const Own& keys) {
  Own usual;
  usual.num_hidden_layers = keys.num_hidden_layers + 8;  // some have experts, if the family has experts
  return signature_of(description().model_type, {keys, description().model(keys)},
                      {usual, description().model(usual)});
}

}  // namespace heddle::llama
