// Description of a causal decoder, layer by layer, as plain values. A model family returns it for a
// config.json.
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

// A norm layer.
struct Norm {
  enum class Kind {
    rms,           // Zhang and Sennrich 2019
    rms_plus_one,  // RMS norm times 1 + weight (Gemma)
    rms_bare,      // RMS norm without weight (Gemma 4)
    layer,         // layer norm with mean (Ba et al. 2016)
    layer_bare     // layer norm without weight (OLMo)
  } kind = Kind::rms;
  double eps = 1e-6;
  bool bias = false;  // whether Kind::layer has a bias
  bool operator==(const Norm&) const = default;
};

using model::Activation;

// Rotary embedding of the first `dim` elements of each query and key head.
struct Rotation {
  int64_t dim = 0;  // 0: no rotation
  double theta = 10000.0;
  RotaryScaling scaling = {};
  bool interleaved = false;  // pairs are neighbors; otherwise elements i and i + dim / 2
  // Pairs are elements i and i + head_dim / 2, with the wavelengths of a whole-head rotation, and only the
  // first dim / 2 pairs are rotated (rope_type proportional, Gemma 4).
  bool of_whole_head = false;
  // Angles of the dim / 2 pairs at position 1, for rotations that theta and scaling do not describe, such as
  // the opposite direction (nanochat). Empty: computed from theta and scaling.
  std::vector<double> frequencies = {};
  bool operator==(const Rotation&) const = default;
};

// Multiplies rotated queries by 1 + beta * log(1 + floor(position / length)) (Llama 4, Ministral 3).
struct QueryScaling {
  double beta = 0;  // 0: no scaling
  int64_t length = 1;
  bool operator==(const QueryScaling&) const = default;
};

// A gate of the attention output: a linear layer of the hidden states, then a function.
struct OutputGate {
  enum class Width {
    none,
    each_head,   // one number per head (Step-3.5)
    each_number  // one number per element of each head (Laguna)
  } width = Width::none;
  enum class Function { sigmoid, softplus } function = Function::sigmoid;
  bool operator==(const OutputGate&) const = default;
};

// Attention with grouped heads. Module "self_attn" with q_proj, k_proj, v_proj, o_proj, q_norm, k_norm, core
// and g_proj (the gate), and the parameter sinks.
struct Attention {
  enum class HeadNorm { none, each_head, whole };  // whole: over all heads at once
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  AttentionOptions options = {};  // window, scale, soft cap, dropout, head width of values
  Rotation rotation = {};
  HeadNorm head_norm = HeadNorm::none;  // where queries and keys are normalized
  Norm norm = {};                       // norm of queries and keys
  bool qkv_bias = false, output_bias = false;
  bool sinks = false;  // a learned softmax score per head (GPT-OSS)
  // The sigmoid of a gate multiplies the output (Qwen3-Next). q_proj has the query rows and then the gate
  // rows of each head.
  bool output_gate = false;
  OutputGate gate = {};    // a gate with its own linear layer
  double value_scale = 1;  // factor of values (MiMo-V2)
  // Values are the outputs of k_proj before norm and rotation, and there is no v_proj (Gemma 4).
  bool keys_are_values = false;
  std::optional<Norm> value_norm = {};  // norm of each value head; empty: no norm
  // The earlier layer whose keys and values this layer uses instead of its own k_proj and v_proj; it has
  // equal key-value heads (Gemma 4). Empty: its own.
  std::optional<int64_t> keys_of_layer = {};
  QueryScaling query_scaling = {};
  // Factors of the input and output hidden states (Falcon-H1).
  double input_multiplier = 1, output_multiplier = 1;
  // Clamps queries, keys and values to [-clip, clip] before norms and rotation (OLMo). 0: no clamp.
  double clip = 0;
};

// The lightning indexer of DeepSeek Sparse Attention (DeepSeek-V3.2 2025): a query of latent attention
// attends to the top_k of its allowed keys, ranked by the sum over heads of weight * relu(q k). The indexer's
// queries are linear in the query latent, its keys and weights in the hidden states. The first Latent::rotary
// elements of a head are rotated by the angles of the latent attention. No gradient reaches the indexer, so
// its parameters do not train.
//
// Module "self_attn.indexer": parameters wq_b.weight, wk.weight, k_norm.weight, k_norm.bias,
// weights_proj.weight.
struct Indexer {
  int64_t heads = 1, head_dim = 2;
  int64_t top_k = 1;
  bool interleaved = false;  // rotated pairs are neighbors
  double eps = 1e-6;         // eps of the keys' norm
  // Whether the layer has no indexer and uses the keys that the previous layer selected (IndexShare,
  // GLM-5.2).
  bool of_layer_before = false;
};

// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024): keys and values are linear in a small latent
// per token, and all heads share one rotated key.
struct Latent {
  int64_t heads = 1;
  int64_t rank = 1;               // width of the key-value latent
  int64_t query_rank = 0;         // width of the query latent; 0: queries are one linear layer
  int64_t plain = 1, rotary = 2;  // head width of queries and keys without and with rotation
  int64_t value = 1;              // head width of values
  double scale = 0;               // scale of the scores; 0: 1 / sqrt(plain + rotary)
  bool bias = false;              // biases of q_a_proj, kv_a_proj_with_mqa and o_proj
  double eps = 1e-6;              // eps of the latents' norms
  bool interleaved = true;        // rotated pairs are neighbors
  double theta = 10000.0;
  RotaryScaling scaling = {};
  QueryScaling query_scaling = {};      // scaling of whole query heads (Mistral 4)
  std::optional<Indexer> indexer = {};  // needs a query_rank; empty: no indexer
  bool rotated = true;                  // false: the `rotary` elements are not rotated (Kimi Linear)
  // The sigmoid of the linear layer g_proj of the hidden states multiplies the output of the heads (Kimi K3).
  bool output_gate = false;
};

// An MLP. Module "mlp" with gate_proj, up_proj, down_proj. Without a gate: down(activation(up(x))).
struct Mlp {
  int64_t width = 1;
  bool gated = true;
  Activation activation = Activation::silu;
  bool bias = false;
  double limit = 0;           // limit of a gated MLP, see model::gated_within (Step-3.5); 0: no limit
  bool limit_before = false;  // limits the gate before its activation
  double gate_multiplier = 1, output_multiplier = 1;  // factors of gate_proj(x) and of the output (Falcon-H1)
  std::optional<model::Situ> situ = {};  // activation of a gated MLP instead of `activation` (Kimi K3)
  // Activation with parameters of an MLP without gate, instead of `activation`: module "act_fn" (Apertus).
  std::shared_ptr<const ActivationMaker> learned = {};
};

// A mixture of experts with an optional shared expert. Module "mlp" with gate, experts and shared_experts; if
// the shared expert has a gate, shared_expert and shared_expert_gate; with a latent, fc1_latent_proj,
// fc2_latent_proj and latent_norm, which follows the experts.
struct Mixture {
  RouterConfig router;  // the library sets hidden, group, layer, place and layers
  int64_t width = 1;    // width of an expert
  model::ExpertActivation activation = {};
  bool expert_bias = false;  // biases of both products of each expert
  // Width of a latent on which the experts compute, with a linear layer before and after (Nemotron-3). 0:
  // experts compute on the hidden states.
  int64_t latent = 0;
  int64_t shared_width = 0;  // width of the shared expert; 0: no shared expert
  bool shared_gated = true;  // see Mlp::gated
  Activation shared_activation = Activation::silu;
  double shared_limit = 0;  // see Mlp::limit
  bool shared_limit_before = false;
  bool shared_gate = false;              // the sigmoid of a gate multiplies the output of the shared expert
  std::optional<Norm> latent_norm = {};  // norm of the experts' sum in the latent; empty: no norm
  std::optional<model::Situ> shared_situ = {};  // see Mlp::situ
};

// A layer without a mixer or without a feed-forward part. It also has no norm and no residual sum for that
// part.
using Absent = std::monostate;

// A decoder layer. The order sets its norms, by their names in memory:
//   before        input_layernorm, post_attention_layernorm (Llama)
//   after         post_attention_layernorm, post_feedforward_layernorm (OLMo-2)
//   both          input_layernorm, post_attention_layernorm, pre_feedforward_layernorm,
//                 post_feedforward_layernorm (Gemma 2)
//   side_by_side  input_layernorm, shared by attention and MLP, which are both added to the input (Phi,
//   Cohere)
struct Layer {
  enum class Order { before, after, both, side_by_side };
  std::variant<Attention, Latent, std::shared_ptr<const MixerMaker>, Absent> mixer;
  std::variant<Mlp, Mixture, Absent> feed_forward;
  Norm norm = {};
  Order order = Order::before;
  // For Order::both, the norms after mixer and MLP; empty: `norm` (Muse Glimmer).
  std::optional<Norm> norm_after = {};
  double residual_multiplier = 1;  // factor of what is added to the residual (Granite)
  double residual_dropout = 0;     // dropout of what is added to the residual, after its norm (Batch::draws)
  // Multiplies the layer's output by the parameter layer_scalar [1], which does not train (Gemma 4).
  bool scalar = false;
  // Experts beside the MLP of a layer with Order::both (Gemma 4), module "moe". The router gets the layer's
  // hidden states, the experts the same after moe.pre_feedforward_layernorm_2. post_feedforward_layernorm_2
  // normalizes the output of the experts and post_feedforward_layernorm_1 the output of the MLP. Their sum
  // goes to post_feedforward_layernorm.
  std::optional<Mixture> experts_beside = {};
  // Further mixers of the same normalized input, whose outputs are added to the first mixer's output
  // (Falcon-H1). Mixers of a layer have different names.
  std::vector<std::shared_ptr<const MixerMaker>> beside = {};
};

// Heads that predict further tokens in training (multi-token prediction, DeepSeek-V3 and NeMo AutoModel). The
// input of each head is a linear layer of two normalized vectors: the hidden states of the previous head (for
// the first head, of the model after its last norm) and the embedding of the last predicted token. The head's
// layers, a norm and the model's own head follow. Tokens beyond the end of a document are not predicted.
//
// Modules of the last unit: "mtp.layers.N", with the layers of all heads in order. They have the names of
// decoder layers; in addition the first layer of a head has enorm, hnorm and eh_proj, and the last one
// final_layernorm. The heads use the model's embedding, so a pipeline cannot separate the first and last
// unit. Context and sequence parallelism are refused.
struct MtpHeads {
  int64_t tokens = 0;         // number of tokens predicted besides the next one; 0: no such heads
  std::vector<Layer> layers;  // layers of one head
  bool repeated = false;      // all heads share the same layers
  double loss_factor = 0.1;   // factor of the mean of the heads' losses, which is added to the loss
};

// Inputs of each layer besides the hidden states, computed from each token and its embedding (per-layer
// embeddings, Gemma 4): (norm(projection(embedding) / sqrt(Model::width)) + look_up(token) * sqrt(width)) /
// sqrt(2). A layer adds norm(projection(activation(gate(x)) * inputs)) to its output x.
//
// Modules: in the first unit "layer_inputs" with embed_tokens_per_layer [vocabulary, layers * width],
// per_layer_model_projection and per_layer_projection_norm; in a layer "layer_input" with
// per_layer_input_gate, per_layer_projection and post_per_layer_input_norm. Sequence parallelism is refused.
struct LayerInputs {
  int64_t width = 0;  // width per layer; 0: no layer inputs
  int64_t vocabulary = 1;
  Activation activation = Activation::gelu_tanh;
};

// Several residual streams per token (manifold-constrained hyper-connections, Xie et al. 2026, DeepSeek-V4).
// Each stream starts with the token's embedding. The mixer and the MLP of a layer get a weighted sum of the
// streams. Their output is added to the streams with further weights, after a doubly stochastic matrix has
// mixed the streams. All weights depend on the token's streams. The head gets a weighted sum.
//
// Modules: in a layer "attn_hc" and "ffn_hc" with fn [(2 + streams) * streams, streams * width], base, scale
// [3]; in the last unit "model.hc_head" with hc_fn [streams, streams * width], hc_base, hc_scale [1]. All are
// fp32 in any precision except fp64. Units pass [tokens, streams * width].
struct HyperConnections {
  int64_t streams = 4;
  int64_t iterations = 20;  // Sinkhorn-Knopp iterations; the first one normalizes columns only
  double eps = 1e-6;        // added to weights and to the sums that divide them
  double norm_eps = 1e-6;   // eps of the norm over all streams of a token
  bool operator==(const HyperConnections&) const = default;
};

// Residuals that are combined over blocks of layers (attention residuals, Kimi K3). Blocks begin at the
// layers 0, size, 2 size, ... The input of such a layer is kept for all later layers, and the residual sum
// starts again at zero. Each mixer, each MLP and the head get a weighted sum of the kept inputs and the
// current residual sum. The weights of a token are a softmax over these vectors v of proj . norm(v), in fp32
// (fp64 for fp64).
//
// Modules "attn_res" and "mlp_res" of a layer and "model.output_res" of the last unit, with norm.weight
// [width] and proj.weight [1, width]. attn_res of the first layer has only one vector to combine and does not
// train.
struct BlockResiduals {
  int64_t size = 1;   // layers per block
  double eps = 1e-5;  // eps of the norm
  bool operator==(const BlockResiduals&) const = default;
};

// A model, with the units "model.embed_tokens", "model.layers.N" and "lm_head" (the last norm, the head and
// the loss). Learned positions are the parameter "model.embed_positions.weight" of the first unit.
struct Model {
  int64_t vocabulary = 1, width = 1;
  std::vector<Layer> layers;
  Norm last_norm = {};
  bool tied = false;  // the head uses the embedding's weight
  bool head_bias = false;
  int64_t padding = -1;             // token whose embedding row gets no gradient from the look-up; -1: none
  double embedding_multiplier = 1;  // rounded to the dtype of the hidden states, as in transformers
  std::optional<Norm> embedding_norm = {};  // norm of the embeddings, after the multiplier; empty: no norm
  double embedding_dropout = 0;             // dropout of the first layer's input (Batch::draws)
  double logits_multiplier = 1;
  double logits_soft_cap = 0;  // logits become cap * tanh(logit / cap); 0: no cap
  int64_t positions = 0;  // number of learned positions, which are added to the embedding (GPT-2); 0: none
  bool normalised_head = false;  // the head normalizes each row of its weight, weight / |weight| (Baichuan 2)
  double init_std = 0.02;
  double residual_std = 0;  // std of o_proj and down_proj, which GPT-2 scales by depth; 0: init_std
  MtpHeads mtp = {};
  LayerInputs layer_inputs = {};
  std::optional<HyperConnections> hyper_connections = {};  // empty: one residual stream
  std::optional<BlockResiduals> block_residuals = {};      // empty: ordinary residuals
};

}  // namespace heddle::decoder
