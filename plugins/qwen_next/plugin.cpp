// Qwen3-Next and the text models of Qwen3.5: delta nets, and attention with a gate in every fourth layer.
#include "heddle/decoder/text_family.h"
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::qwen_next {
namespace {

struct NextKeys : Keys {
  NextKeys() { experts = 512; }
};

struct Qwen35Keys : Keys {
  Qwen35Keys() {
    vocab_size = 248320, hidden_size = 4096, intermediate_size = 12288;
    num_hidden_layers = 32, num_key_value_heads = 4;
  }
};

struct Qwen35MoeKeys : Keys {
  Qwen35MoeKeys() { vocab_size = 248320, num_hidden_layers = 40, experts = 256, experts_of_token = 8; }
};

template <class Own>
decoder::Model model(const Own& keys) {
  return model_of(keys);
}

template <class Own>
model::ModelKeys<Own> keys_of(const std::string& model_type, const decoder::CommonForm& form = {}) {
  auto keys = decoder::common_keys<Own>(form);
  add_layer_keys(keys, model_type);
  return keys;
}

model::ModelKeys<NextKeys> next_keys() {
  auto keys = keys_of<NextKeys>("qwen3_next");
  add_expert_keys(keys, true);
  keys.only("use_sliding_window", Node::boolean(false), "Sliding windows are not supported by transformers.");
  return keys;
}

template <class Own>
void add_unused(model::ModelKeys<Own>& keys) {
  keys.only("attn_output_gate", Node::boolean(true), "Attention without a gate is not supported.")
      .only("mamba_ssm_dtype", Node::text("float32"), "The states of delta nets are always fp32.")
      .unused("mtp_num_hidden_layers", "Multi-token prediction layers are neither built nor read.")
      .unused("mtp_use_dedicated_embeddings", "Multi-token prediction layers are neither built nor read.");
}

model::ModelKeys<Qwen35Keys> qwen35_keys() {
  auto keys = keys_of<Qwen35Keys>("qwen3_5_text");
  add_unused(keys);
  keys.unused("mlp_only_layers", "No layer has experts.");
  return keys;
}

model::ModelKeys<Qwen35MoeKeys> qwen35_moe_keys() {
  auto keys = keys_of<Qwen35MoeKeys>("qwen3_5_moe_text", {.mlp = nullptr});
  add_expert_keys(keys, false);
  add_unused(keys);
  keys.unused("mlp_only_layers", "Every layer has experts.");
  return keys;
}

// Files hold one convolution of queries, keys and values.
decoder::Files files() {
  return decoder::Files()
      .joined("linear_attn.conv1d", {"linear_attn.q_conv1d", "linear_attn.k_conv1d", "linear_attn.v_conv1d"})
      .ignored_module("mtp");
}

// Files hold one projection of q, k, v and z and one of the gates b and a, each grouped by key head.
decoder::Files next_files(const NextKeys& keys) {
  const std::string in = "linear_attn.in_proj_";
  return files()
      .in_turn(in + "qkvz", {in + "q", in + "k", in + "v", in + "z"}, keys.linear_num_key_heads)
      .in_turn(in + "ba", {in + "b", in + "a"}, keys.linear_num_key_heads);
}

// The text model inside a model with images has a prefix.
decoder::Files qwen35_files() {
  const std::string in = "linear_attn.in_proj_";
  return files()
      .joined(in + "qkv", {in + "q", in + "k", in + "v"})
      .otherwise("model.", "model.language_model.")
      .otherwise("lm_head.", "model.lm_head.")
      .ignored_module("visual");
}

decoder::Files qwen35_moe_files() {
  decoder::ExpertFiles experts;
  experts.stacked = true, experts.transposed = false;
  return qwen35_files().experts(experts);
}

const decoder::Description<NextKeys>& qwen3_next() {
  static const decoder::Description<NextKeys> kNext = {
      "qwen3_next", "Qwen3NextForCausalLM",   next_keys(), model<NextKeys>, {}, next_files,
      benchmark,    decoder::automodel_loss()};
  return kNext;
}

const decoder::Description<Qwen35Keys>& qwen3_5_text() {
  static const decoder::Description<Qwen35Keys> kQwen35 = {
      "qwen3_5_text", "Qwen3_5ForCausalLM", qwen35_keys(), model<Qwen35Keys>, qwen35_files(), nullptr,
      benchmark};
  return kQwen35;
}

const decoder::Description<Qwen35MoeKeys>& qwen3_5_moe_text() {
  static const decoder::Description<Qwen35MoeKeys> kMoe = {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
                                                           qwen35_moe_keys(),  model<Qwen35MoeKeys>,
                                                           qwen35_moe_files(), nullptr,
                                                           benchmark,          decoder::automodel_loss()};
  return kMoe;
}

}  // namespace
}  // namespace heddle::qwen_next

HEDDLE_PLUGIN("qwen_next", "0.1.0", "model qwen3_next", "model qwen3_5", "model qwen3_5_text",
              "model qwen3_5_moe", "model qwen3_5_moe_text") {
  using namespace heddle::qwen_next;
  plugin.model<heddle::decoder::Family<qwen3_next>>("qwen3_next", qwen3_next().keys);
  plugin.model<heddle::decoder::Family<qwen3_5_text>>("qwen3_5_text", qwen3_5_text().keys);
  plugin.model<heddle::decoder::Family<qwen3_5_moe_text>>("qwen3_5_moe_text", qwen3_5_moe_text().keys);
  using Dense = heddle::decoder::TextFamily<qwen3_5_text>;
  using Experts = heddle::decoder::TextFamily<qwen3_5_moe_text>;
  plugin.model<Dense>("qwen3_5", Dense::table());
  plugin.model<Experts>("qwen3_5_moe", Experts::table());
}
