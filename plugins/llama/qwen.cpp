// Qwen2, with biases of q, k and v, and Qwen3, with a norm of each query and key head.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

constexpr const char* kWindowLayers =
    "First layer with a sliding window. No effect without use_sliding_window.";

struct Qwen2Keys : Keys {
  Qwen2Keys() {
    vocab_size = 151936, intermediate_size = 22016, max_position_embeddings = 32768, usual_key_heads = 32;
  }
};

struct Qwen3Keys : Qwen2Keys {
  Qwen3Keys() { head_dim = 128; }
};

model::ModelKeys<Qwen2Keys> qwen2_keys() {
  auto keys = add_common<Qwen2Keys>("qwen2");
  add_used_windows(keys, slides_at_the_end, kWindowLayers);
  return keys;
}

model::ModelKeys<Qwen3Keys> qwen3_keys() {
  auto keys = add_common<Qwen3Keys>("qwen3");
  add_attention_bias(keys);
  add_used_windows(keys, slides_at_the_end, kWindowLayers);
  return keys;
}

decoder::Model model_of(const Keys& keys, const decoder::Attention& attention) {
  decoder::Model model = keys.model({attention, keys.mlp(), keys.norm()});
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i)
    std::get<decoder::Attention>(model.layers[static_cast<size_t>(i)].mixer).options.window =
        keys.window_of(i);
  return model;
}

decoder::Model qwen2_model(const Qwen2Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = true;
  return model_of(keys, attention);
}

decoder::Model qwen3_model(const Qwen3Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  attention.head_norm = decoder::Attention::HeadNorm::each_head;
  return model_of(keys, attention);
}

const decoder::Description<Qwen2Keys>& qwen2() {
  static const decoder::Description<Qwen2Keys> kQwen2 = {.model_type = "qwen2",
                                                         .architecture = "Qwen2ForCausalLM",
                                                         .keys = qwen2_keys(),
                                                         .model = qwen2_model,
                                                         .benchmark = decoder::grouped_benchmark,
                                                         .signature = signature<qwen2>};
  return kQwen2;
}

const decoder::Description<Qwen3Keys>& qwen3() {
  static const decoder::Description<Qwen3Keys> kQwen3 = {.model_type = "qwen3",
                                                         .architecture = "Qwen3ForCausalLM",
                                                         .keys = qwen3_keys(),
                                                         .model = qwen3_model,
                                                         .benchmark = decoder::grouped_benchmark,
                                                         .signature = signature<qwen3>};
  return kQwen3;
}

}  // namespace

void offer_qwen(Offer& plugin) {
  plugin.model<decoder::Family<qwen2>>("qwen2", qwen2().keys);
  plugin.model<decoder::Family<qwen3>>("qwen3", qwen3().keys);
}

}  // namespace heddle::llama
