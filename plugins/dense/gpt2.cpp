// GPT-2: learned positions, layer norms and linear layers with biases, a plain MLP. Files hold weights
// transposed.
#include <cmath>

#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct Gpt2Keys : decoder::CommonKeys {
  Gpt2Keys() {
    vocab_size = 50257, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12;
    max_position_embeddings = 1024, rms_norm_eps = 1e-5, tie_word_embeddings = true;
    attention_dropout = residual_dropout = embedding_dropout = 0.1;
  }
  std::optional<int64_t> n_inner;
  std::string activation_function = "gelu_new";
  bool scale_residual_init = true;
};

void add_sizes(model::ModelKeys<Gpt2Keys>& keys) {
  using Common = decoder::CommonKeys;
  keys.field("vocab_size", &Common::vocab_size, "Vocabulary size.", decoder::kSize)
      .field("n_positions", &Common::max_position_embeddings,
             "Number of learned positions, which is the maximum sequence length.", decoder::kSize)
      .field("n_embd", &Common::hidden_size, "Hidden size.", decoder::kSize)
      .field("n_layer", &Common::num_hidden_layers, "Number of decoder layers.",
             Range<int64_t>{1, model::kMostLayers})
      .field("n_head", &Common::num_attention_heads, "Heads.", decoder::kSize)
      .field("n_inner", &Gpt2Keys::n_inner, "Width of the MLP. null: 4 * n_embd.", decoder::kSize)
      .field("initializer_range", &Common::initializer_range, "Standard deviation of random weights.",
             at_least(0.0))
      .field("tie_word_embeddings", &Common::tie_word_embeddings,
             "Share the embedding's weight with the head.")
      .field("dtype", &Common::dtype, "Dtype of the stored weights.")
      .field("torch_dtype", &Common::torch_dtype, "Older name of dtype.");
}

model::ModelKeys<Gpt2Keys> gpt2_keys() {
  model::ModelKeys<Gpt2Keys> keys;
  add_sizes(keys);
  keys.field("layer_norm_epsilon", &decoder::CommonKeys::rms_norm_eps,
             "Epsilon added to the variance in each norm.", at_least(1e-38))
      .field("activation_function", &Gpt2Keys::activation_function, "Activation function of the MLP.",
             decoder::activation_words())
      .field("scale_residual_init", &Gpt2Keys::scale_residual_init,
             "Divide the random initial weights of the output projections of attention and MLP by sqrt(2 * "
             "n_layer).")
      .rule([](const Gpt2Keys& given) {
        if (given.hidden_size % given.num_attention_heads == 0) return std::string();
        return "n_embd " + std::to_string(given.hidden_size) + " is not a multiple of n_head " +
               std::to_string(given.num_attention_heads);
      });
  decoder::add_dropout(keys, {"attn_pdrop", "resid_pdrop", "embd_pdrop"});
  keys.only("scale_attn_weights", Node::boolean(true), "Attention without scaled scores is not supported.");
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
    keys.only(key, Node::boolean(false), "true is not supported.");
  for (const char* key : {"summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
                          "summary_proj_to_labels"})
    keys.unused(key, "Used by other tasks only.");
  keys.unused("n_ctx", "Only n_positions is read. Older files contain n_ctx too.")
      .unused("pad_token_id", "The embedding has no padding row.");
  return keys.only("quantization_config", Node(),
                   "Refused. Files in fp8 or mxfp4 are dequantized when they are read.");
}

decoder::Model gpt2_model(const Gpt2Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.rotation = {};
  attention.qkv_bias = attention.output_bias = true;
  decoder::Mlp mlp{keys.n_inner.value_or(4 * keys.hidden_size), false,
                   decoder::activation_of(keys.activation_function), true};
  const decoder::Norm norm{decoder::Norm::Kind::layer, keys.rms_norm_eps, true};
  decoder::Model model = keys.model({attention, mlp, norm});
  model.last_norm = norm;
  model.positions = keys.max_position_embeddings;
  if (keys.scale_residual_init)
    model.residual_std =
        keys.initializer_range / std::sqrt(2.0 * static_cast<double>(keys.num_hidden_layers));
  return model;
}

decoder::Files gpt2_files() {
  return decoder::Files()
      .joined("attn.c_attn", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
      .transposed("attn.c_attn")
      .transposed("self_attn.o_proj")
      .transposed("mlp.up_proj")
      .transposed("mlp.down_proj")
      .renamed("self_attn.o_proj", "attn.c_proj")
      .renamed("mlp.up_proj", "mlp.c_fc")
      .renamed("mlp.down_proj", "mlp.c_proj")
      .renamed("input_layernorm", "ln_1")
      .renamed("post_attention_layernorm", "ln_2")
      .renamed("model.embed_tokens", "transformer.wte")
      .renamed("model.embed_positions", "transformer.wpe")
      .renamed("model.norm", "transformer.ln_f")
      .renamed("model.layers", "transformer.h")
      .otherwise("transformer.", "")  // files older than 2023
      .ignored(".attn.bias")          // masks
      .ignored(".attn.masked_bias");
}

double gpt2_benchmark(const BenchmarkSizes& m) {
  const double h = m.of("n_embd", m.h), layers = m.of("n_layer", m.layers);
  return 3 * layers * (24 * m.G * m.S * h * h + 2 * m.G * m.S * m.S * h) + 6 * m.G * m.S * h * m.V;
}

const decoder::Description<Gpt2Keys>& gpt2() {
  static const decoder::Description<Gpt2Keys> kGpt2 = {
      "gpt2", "GPT2LMHeadModel", gpt2_keys(), gpt2_model, gpt2_files(), nullptr, gpt2_benchmark};
  return kGpt2;
}

}  // namespace

void offer_gpt2(Offer& plugin) {
  plugin.model<decoder::Family<gpt2>>("gpt2", gpt2().keys);
}

}  // namespace heddle::dense
