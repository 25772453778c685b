// A causal decoder described layer by layer, as values: what a family of models says of its models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "heddle/decoder/mixer.h"
#include "heddle/nn/activation.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/router.h"

namespace heddle::decoder {

struct Norm {
  enum class Kind {
    rms,           // Zhang and Sennrich 2019
    rms_plus_one,  // the same, times 1 + weight (Gemma)
    rms_bare,      // the same, without a weight (Gemma 4)
    layer,         // with a mean (Ba et al. 2016)
    layer_bare     // the same, without a weight (OLMo)
  } kind = Kind::rms;
  double eps = 1e-6;
  bool bias = false;  // of `layer`
  bool operator==(const Norm&) const = default;
};

using model::Activation;

// The rotation of the first `dim` numbers of each head of queries and keys.
struct Rotation {
  int64_t dim = 0;  // 0: none
  double theta = 10000.0;
  RotaryScaling scaling = {};
  bool interleaved = false;  // rotated pairs are neighbours; else number i and number i + dim / 2
  // Pairs are number i and number i + head_dim / 2, with the wavelengths of a rotation of the whole head; the
  // first dim / 2 of them are rotated (rope_type proportional, Gemma 4).
  bool of_whole_head = false;
  // The angle of each pair at position 1, dim / 2 of them, for a form that theta and scaling do not describe:
  // of opposite sign where pairs turn the other way (nanochat). Empty: from theta and scaling.
  std::vector<double> frequencies = {};
  bool operator==(const Rotation&) const = default;
};

// Rotated queries are multiplied by 1 + beta * log(1 + floor(position / length)) (Llama 4, Ministral 3).
struct QueryScaling {
  double beta = 0;  // 0: they are not
  int64_t length = 1;
  bool operator==(const QueryScaling&) const = default;
};

// A product of the hidden states that multiplies the output of attention, after a function of it.
struct OutputGate {
  enum class Width {
    none,
    each_head,   // one number for all of a head (Step-3.5)
    each_number  // of each head (Laguna)
  } width = Width::none;
  enum class Function { sigmoid, softplus } function = Function::sigmoid;
  bool operator==(const OutputGate&) const = default;
};

// Attention with grouped heads. Modules "self_attn": q_proj, k_proj, v_proj, o_proj, q_norm, k_norm, core and
// g_proj, the gate; parameter sinks.
struct Attention {
  enum class HeadNorm { none, each_head, whole };  // whole: over all heads at once
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  AttentionOptions options = {};  // window, scale, soft cap, dropout, another width of the heads of values
  Rotation rotation = {};
  HeadNorm head_norm = HeadNorm::none;  // of queries and keys,
  Norm norm = {};                       // of this kind
  bool qkv_bias = false, output_bias = false;
  bool sinks = false;  // a learned score of each head in its softmax (GPT-OSS)
  // Its output is multiplied by the sigmoid of a gate (Qwen3-Next): q_proj has for each head the rows of its
  // query, then those of its gate.
  bool output_gate = false;
  OutputGate gate = {};    // with a product of its own
  double value_scale = 1;  // values are multiplied by it (MiMo-V2)
  // Values are the products of k_proj, before their norm and rotation, and there is no v_proj (Gemma 4).
  bool keys_are_values = false;
  std::optional<Norm> value_norm = {};  // of each head of values; empty: none
  // The layer has no k_proj and v_proj and sees the keys and values of this earlier layer, which has the same
  // heads of them (Gemma 4); empty: its own.
  std::optional<int64_t> keys_of_layer = {};
  QueryScaling query_scaling = {};
  double input_multiplier = 1, output_multiplier = 1;  // of the hidden states in and out (Falcon-H1)
  // Queries, keys and values are limited to -clip .. clip before norms and rotation (OLMo); 0: they are not.
  double clip = 0;
};

// The lightning indexer of DeepSeek Sparse Attention (DeepSeek-V3.2 2025): a query of latent attention sees
// the top_k keys with the largest sums over heads of weight * relu(q k), of those that it would see without.
// Its queries are products of the queries' latent, its keys and weights of the hidden states; the first
// Latent::rotary numbers of a head are rotated by the angles of the latent attention. No gradient reaches it,
// so its parameters do not train.
//
// Module "self_attn.indexer": parameters wq_b.weight, wk.weight, k_norm.weight, k_norm.bias,
// weights_proj.weight.
struct Indexer {
  int64_t heads = 1, head_dim = 2;
  int64_t top_k = 1;
  bool interleaved = false;  // rotated pairs are neighbours
  double eps = 1e-6;         // of the keys' norm
  // The layer has no indexer of its own and sees the keys that the layer before it chose (IndexShare,
  // GLM-5.2).
  bool of_layer_before = false;
};

// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024): keys and values are products of one small
// latent of each token, and all heads share one rotated key.
struct Latent {
  int64_t heads = 1;
  int64_t rank = 1;               // of the latent of keys and values
  int64_t query_rank = 0;         // of the queries' latent; 0: queries are one product
  int64_t plain = 1, rotary = 2;  // numbers of a query's and a key's head without and with a position
  int64_t value = 1;              // width of a head of values
  double scale = 0;               // of the scores; 0: 1 / sqrt(plain + rotary)
  bool bias = false;              // of q_a_proj, kv_a_proj_with_mqa and o_proj
  double eps = 1e-6;              // of the latents' norms
  bool interleaved = true;        // rotated pairs are neighbours
  double theta = 10000.0;
  RotaryScaling scaling = {};
  QueryScaling query_scaling = {};      // of whole heads of queries (Mistral 4)
  std::optional<Indexer> indexer = {};  // needs a query_rank; empty: a query sees all keys before it
  bool rotated = true;  // false: `rotary` numbers stay as they are, without a position (Kimi Linear)
  // The output of the heads is multiplied by the sigmoid of the product g_proj of the hidden states (Kimi
  // K3).
  bool output_gate = false;
};

// Modules "mlp": gate_proj, up_proj, down_proj. Not gated: down(activation(up(x))).
struct Mlp {
  int64_t width = 1;
  bool gated = true;
  Activation activation = Activation::silu;
  bool bias = false;
  double limit = 0;           // of a gated one: see model::gated_within (Step-3.5); 0: none
  bool limit_before = false;  // of the activation
  double gate_multiplier = 1, output_multiplier = 1;  // of gate_proj(x) and of the output (Falcon-H1)
  std::optional<model::Situ> situ = {};               // of a gated one, in place of `activation` (Kimi K3)
  // Of one that is not gated, in place of `activation`: module "act_fn" with parameters of its own (Apertus).
  std::shared_ptr<const ActivationMaker> learned = {};
};

// Experts behind a router, and experts of every token beside them. Modules "mlp": gate, experts,
// shared_experts (with a gate of their own: shared_expert, shared_expert_gate), and with a latent
// fc1_latent_proj and fc2_latent_proj, and latent_norm between the experts and the latter.
struct Mixture {
  RouterConfig router;  // hidden, group, layer, place and layers are set by the library
  int64_t width = 1;    // of an expert
  model::ExpertActivation activation = {};
  bool expert_bias = false;  // of both products of each expert
  // The experts compute with products of so many numbers of the hidden states, and one product leads their
  // sum back (Nemotron-3); 0: with the hidden states.
  int64_t latent = 0;
  int64_t shared_width = 0;  // of the shared expert; 0: there is none
  bool shared_gated = true;  // as Mlp::gated
  Activation shared_activation = Activation::silu;
  double shared_limit = 0;  // as Mlp::limit
  bool shared_limit_before = false;
  bool shared_gate = false;                     // its output is multiplied by the sigmoid of a gate
  std::optional<Norm> latent_norm = {};         // of the experts' sum in the latent; empty: none
  std::optional<model::Situ> shared_situ = {};  // as Mlp::situ
};

// Nothing in that place: the layer lacks the norm and the sum too.
using Absent = std::monostate;

// The norms of a layer, by their names in memory:
//   before        input_layernorm, post_attention_layernorm (Llama)
//   after         post_attention_layernorm, post_feedforward_layernorm (OLMo-2)
//   both          input_layernorm, post_attention_layernorm, pre_feedforward_layernorm,
//                 post_feedforward_layernorm (Gemma 2)
//   side_by_side  input_layernorm, of attention and MLP, which are both added to the input (Phi, Cohere)
struct Layer {
  enum class Order { before, after, both, side_by_side };
  std::variant<Attention, Latent, std::shared_ptr<const MixerMaker>, Absent> mixer;
  std::variant<Mlp, Mixture, Absent> feed_forward;
  Norm norm = {};
  Order order = Order::before;
  std::optional<Norm> norm_after = {};  // of Order::both, after mixer and MLP; empty: as norm (Muse Glimmer)
  double residual_multiplier = 1;       // of what is added to the hidden states (Granite)
  double residual_dropout = 0;          // of what is added, after its norm (Batch::draws)
  // The layer's output is multiplied by the parameter layer_scalar [1], which does not train (Gemma 4).
  bool scalar = false;
  // Experts beside the MLP of a layer with norms before and after (Gemma 4): module "moe". The router sees
  // the layer's hidden states, the experts these after moe.pre_feedforward_layernorm_2. What they give is
  // normalised by post_feedforward_layernorm_2, the MLP's output by post_feedforward_layernorm_1, and the sum
  // goes to post_feedforward_layernorm.
  std::optional<Mixture> experts_beside = {};
  // Mixers of the same normalised input beside the first; their outputs are added to its output (Falcon-H1).
  // No two of a layer have one name.
  std::vector<std::shared_ptr<const MixerMaker>> beside = {};
};

// Heads that predict the tokens after the next one in training, so many and in turn (multi-token prediction,
// DeepSeek-V3 and NeMo AutoModel). Each computes its layers from a product of the normalised hidden states of
// the one before, first the model's after its last norm, and of the normalised embedding of the token that
// was predicted last; then a norm and the model's own head. What lies beyond a document is not predicted.
//
// Modules of the last unit: "mtp.layers.N", those of a head after those of another, with the names of layers
// and, the first, enorm, hnorm and eh_proj, the last, final_layernorm. The embedding is the model's, so a
// pipeline cannot cut between them; context and sequence parallelism are refused by name.
struct MtpHeads {
  int64_t tokens = 0;         // beside the next; 0: there are no such heads
  std::vector<Layer> layers;  // of one head
  bool repeated = false;      // all heads have the same layers
  double loss_factor = 0.1;   // of the mean of the heads' losses, which is added to the loss
};

// Inputs of each layer besides the hidden states, made of each token and its embedding (per-layer embeddings,
// Gemma 4): (norm(projection(embedding) / sqrt(Model::width)) + look_up(token) * sqrt(width)) / sqrt(2). A
// layer adds norm(projection(activation(gate(x)) * inputs)) to its output x.
//
// Modules of the first unit "layer_inputs": embed_tokens_per_layer [vocabulary, layers * width],
// per_layer_model_projection and per_layer_projection_norm; of a layer "layer_input": per_layer_input_gate,
// per_layer_projection and post_per_layer_input_norm. Sequence parallelism refuses them by name.
struct LayerInputs {
  int64_t width = 0;  // of one layer; 0: there are none
  int64_t vocabulary = 1;
  Activation activation = Activation::gelu_tanh;
};

// Several residual streams of each token (manifold-constrained hyper-connections, Xie et al. 2026,
// DeepSeek-V4). The embedding gives each stream the token's row. Mixer and MLP of a layer get a weighted sum
// of the streams, and their output goes to the streams with weights of its own, while the streams are mixed
// by a doubly stochastic matrix; all these weights follow from the token's streams. The head gets a weighted
// sum.
//
// Modules of a layer "attn_hc" and "ffn_hc": fn [(2 + streams) * streams, streams * width], base, scale [3];
// of the last unit "model.hc_head": hc_fn [streams, streams * width], hc_base, hc_scale [1]. All are fp32
// under any precision but fp64. What passes between units is [tokens, streams * width].
struct HyperConnections {
  int64_t streams = 4;
  int64_t iterations = 20;  // of Sinkhorn and Knopp; the first divides columns alone
  double eps = 1e-6;        // added to weights and to the sums that divide them
  double norm_eps = 1e-6;   // of the norm over all streams of a token
  bool operator==(const HyperConnections&) const = default;
};

// Residuals that are mixed over blocks of layers (attention residuals, Kimi K3). A block begins with the
// layers 0, size, 2 size, ...: what comes to such a layer is kept for all later layers, and the sum of the
// outputs of mixers and MLPs begins anew. Each mixer, each MLP and the head get a sum of what is kept and of
// the sum since, in place of the sum alone: weights of a token are a softmax over these vectors v of
// proj . norm(v), in fp32 (fp64 for fp64).
//
// Modules of a layer "attn_res" and "mlp_res", of the last unit "model.output_res": norm.weight [width] and
// proj.weight [1, width]. attn_res of the first layer mixes nothing and does not train.
struct BlockResiduals {
  int64_t size = 1;   // layers of a block
  double eps = 1e-5;  // of the norm
  bool operator==(const BlockResiduals&) const = default;
};

// Units "model.embed_tokens", "model.layers.N" and "lm_head" (the last norm, the head and the loss). Learned
// positions are the parameter "model.embed_positions.weight" of the first.
struct Model {
  int64_t vocabulary = 1, width = 1;
  std::vector<Layer> layers;
  Norm last_norm = {};
  bool tied = false;  // the head computes with the embedding's weight
  bool head_bias = false;
  int64_t padding = -1;             // its row of the embedding gets no gradient from the look-up; -1: none
  double embedding_multiplier = 1;  // rounded to the dtype of the hidden states, as transformers does
  std::optional<Norm> embedding_norm = {};  // of the tokens' rows, after the multiplier; empty: none
  double embedding_dropout = 0;             // of what the first layer gets (Batch::draws)
  double logits_multiplier = 1;
  double logits_soft_cap = 0;  // logits become cap * tanh(logit / cap); 0: none
  int64_t positions = 0;  // so many have a learned vector, which is added to the embedding (GPT-2); 0: none
  bool normalised_head = false;  // the head computes with weight / |weight| of each row (Baichuan 2)
  double init_std = 0.02;
  double residual_std = 0;  // of o_proj and down_proj, as GPT-2 scales it by depth; 0: init_std
  MtpHeads mtp = {};
  LayerInputs layer_inputs = {};
  std::optional<HyperConnections> hyper_connections = {};  // empty: one stream
  std::optional<BlockResiduals> block_residuals = {};      // empty: each layer gets the sum alone
};

}  // namespace heddle::decoder
