// Mixers, token-mixing layers other than attention: state-space layers and delta nets. Declares the interface
// and the supported mixers.
#pragma once

#include <ATen/core/TensorBody.h>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/model/module.h"
#include "heddle/model/unit.h"
#include "heddle/nn/rotary.h"

namespace heddle::decoder {

// A part of a layer that maps hidden states [tokens, width] to [tokens, width].
class HEDDLE_API LayerPart : public Module {
 public:
  ~LayerPart() override;
  // Returns residual + call(x, batch).
  virtual at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);
};

// The recurrent state of a mixer during token-by-token generation.
class HEDDLE_API MixerState {
 public:
  virtual ~MixerState();
  virtual void clear() = 0;  // the next token begins a sequence
};

// A state-space layer, a delta net, or similar. It must respect Batch::documents: tokens of different
// documents do not interact. Its traits declare whether it supports ranks that have parts of the tokens; by
// default such axes are refused. A mixer whose tokens interact only in a SequenceCore
// (heddle/nn/sequence_core.h) is each_alone.
class HEDDLE_API Mixer : public LayerPart {
 public:
  ~Mixer() override;
  ModuleTraits traits() const override { return {.tokens = TokenUse::mixes, .role = Role::mixer}; }
  // Prepares the mixer for `heddle generate`: from now on forward() gets parts of one sequence, first the
  // prompt and then single tokens, without gradients, and continues from the returned state, which lives as
  // long as the mixer runs.
  virtual std::unique_ptr<MixerState> keep_state() = 0;
};

// Describes and creates activations with parameters. Held by an Mlp. The module computes each element of
// [tokens, width] independently, so that ranks of tp may have parts of the width: its traits are each_alone
// and elementwise with the role `norm`, and its slots do not depend on the width.
class HEDDLE_API ActivationMaker {
 public:
  virtual ~ActivationMaker();
  virtual std::unique_ptr<Module> make(const at::TensorOptions& options) const = 0;
};

// Returns the maker of xIELU (Huang and Schlag 2024) as in Apertus: a_p x^2 + beta x for x > 0, otherwise
// a_n (expm1(min(x, eps)) - x) + beta x, with a_p = softplus(alpha_p) and a_n = beta + softplus(alpha_n).
// Parameters: alpha_p and alpha_n [1]; beta and eps, scalars that do not train.
HEDDLE_API std::shared_ptr<const ActivationMaker> xielu();

// Describes and creates mixers. Held by a Layer.
class HEDDLE_API MixerMaker {
 public:
  virtual ~MixerMaker();
  virtual std::string name() const = 0;  // name of the module in its layer: "mixer"
  virtual std::unique_ptr<Mixer> make(int64_t width, double init_std,
                                      const at::TensorOptions& options) const = 0;
  // Returns the number of multiplications per token in the forward, for sequences of this length.
  virtual double multiplications(int64_t width, int64_t sequence) const = 0;
  // Returns the tp styles of the mixer's modules, by their paths in it. Other modules stay whole.
  virtual TensorPlan tensor_plan() const;
};

// Gated delta net (Yang, Kautz and Hatamizadeh 2024) as in Qwen3-Next and Qwen3.5: a recurrent state of
// constant size replaces keys and values.
//
// Module "linear_attn" with in_proj_q, in_proj_k, in_proj_v, in_proj_z (output gate), in_proj_b (rate),
// in_proj_a (decay), norm and out_proj. Parameters q_conv1d.weight, k_conv1d.weight and v_conv1d.weight
// [channels, 1, taps], A_log and dt_bias [value_heads], which are fp32 in any precision except fp64.
// Consecutive value heads share one query and key head.
struct DeltaNet {
  int64_t key_heads = 1, value_heads = 1;  // key_heads divides value_heads
  int64_t key = 1, value = 1;              // head widths of keys and values
  int64_t taps = 4;                        // kernel size of the convolution
  double eps = 1e-6;                       // eps of the output norm
};

// Returns the mixer for Layer::mixer. Ranks of tp have parts of the heads if tp_size divides them, else all
// heads; with sequence parallelism they gather the tokens between the projections. Ranks of cp have all
// tokens of some heads. Throws Error{config} for head counts that do not divide.
HEDDLE_API std::shared_ptr<const MixerMaker> delta_net(const DeltaNet& form);

// Kimi Delta Attention (Kimi Linear, Kimi Team 2025): a gated delta net with a separate decay for each key
// channel, a row of the state. The decay and the output gate are low-rank products whose rank is the head
// width. The gate is a sigmoid after the norm. In Kimi K3 the gate is one product and the decay is bounded.
//
// Module "linear_attn" with q_proj, k_proj, v_proj, f_a_proj and f_b_proj (decay), b_proj (rate), g_a_proj
// and g_b_proj or g_proj (gate), o_norm and o_proj. Parameters q_conv1d.weight, k_conv1d.weight and
// v_conv1d.weight [channels, 1, taps], A_log [heads] and dt_bias [channels], which are fp32 in any precision
// except fp64.
struct ChannelDelta {
  int64_t heads = 1, width = 1;  // width: head width of queries, keys and values
  int64_t taps = 4;              // kernel size of the convolution
  double eps = 1e-5;             // eps of the output norm
  bool whole_gate = false;       // g_proj instead of g_a_proj and g_b_proj
  // If negative, the logarithm of the decay is lowest * sigmoid(exp(A_log) * (f + dt_bias)), and dt_bias is
  // initialized with zeros. If 0, it is -exp(A_log) * softplus(f + dt_bias).
  double lowest = 0;
  int64_t rates = 0;  // rows of A_log, of which rows beyond the heads are unused; 0: one per head
};

// Returns the mixer for Layer::mixer. It stays whole under tp. Ranks of cp have all tokens of some heads.
HEDDLE_API std::shared_ptr<const MixerMaker> channel_delta(const ChannelDelta& form);

// Mamba-2 (Dao and Gu 2024) as in Nemotron-H and Falcon-H1: each head has a decaying state of constant size.
//
// Module "mamba" with in_proj_z (gate), in_proj_x, in_proj_b (B, written to the state), in_proj_c (C, read
// from the state), in_proj_dt (step) and out_proj. Parameters x_conv1d.weight, b_conv1d.weight and
// c_conv1d.weight [channels, 1, taps], their biases, norm.weight [heads * width], and A_log, dt_bias and D
// [heads], which are fp32 in any precision except fp64. Consecutive heads of a group share B and C, and the
// norm is over all heads of a group.
struct Mamba {
  // How the gate z applies to the output y: norm(y * silu(z)), norm(y) * silu(z), or y * silu(z) without
  // norm.weight.
  enum class Gate { before_norm, after_norm, without_norm };
  int64_t heads = 1, groups = 1;               // groups divides heads
  int64_t width = 1, state = 1;                // head width, and rows of its state
  int64_t taps = 4;                            // kernel size of the convolution
  bool bias = false, convolution_bias = true;  // bias: of the input projections
  double eps = 1e-5;                           // eps of the norm
  double shortest_step = 0, longest_step = std::numeric_limits<double>::infinity();
  double output_std = 0;     // std of out_proj's initial values; 0: the model's init_std
  bool output_bias = false;  // bias of out_proj
  Gate gate = Gate::before_norm;
  bool drawn_steps = true;  // whether initial values of dt_bias are drawn; false: 1
  // Factors of the input, of in_proj_z, in_proj_x, in_proj_b, in_proj_c and in_proj_dt, and of the output.
  double input_multiplier = 1, output_multiplier = 1;
  std::array<double, 5> part_multipliers = {1, 1, 1, 1, 1};
};

// Returns the mixer for Layer::mixer. Parallelism of heads and groups is as in delta_net().
HEDDLE_API std::shared_ptr<const MixerMaker> mamba(const Mamba& form);

// Attention over a window of tokens and over compressed entries (DeepSeek-V4 2026). All query heads share one
// head whose keys are also its values. The last elements of a head are rotated, and the output is rotated
// back by the query's position. An entry is a sum of the keys of `rate` tokens, gated per element. A token
// attends to its window and to the entries that end at or before it. A learned score per head takes part in
// the softmax without a value.
//
// Module "self_attn" with q_a_proj, q_a_norm, q_b_proj, kv_proj, kv_norm, o_a_proj (weight [output_groups *
// output_rank, heads * head_dim / output_groups], one product per group of heads) and o_b_proj, and the
// parameter sinks [heads]. With entries, "compressor" has kv_proj, gate_proj, kv_norm, position_bias [rate,
// width], and the indexer's kv_proj, gate_proj, position_bias, kv_norm, q_b_proj and scorer.weights_proj,
// which do not train. sinks and position_bias are fp32 in any precision except fp64.
struct CompressedAttention {
  int64_t heads = 1, head_dim = 2, rotary = 2;  // rotary: number of rotated elements at the end of a head
  int64_t query_rank = 1;
  int64_t output_groups = 1, output_rank = 1;  // output_groups divides heads
  int64_t window = 1;                          // window size in tokens, including the current token
  double theta = 10000;
  RotaryScaling scaling = {};
  double eps = 1e-6;  // eps of the norms
  int64_t rate = 0;   // tokens per entry; 0: no entries
  // An entry also covers the tokens of the previous entry, with separate keys and gates.
  bool overlapped = false;
  // A token attends to the index_top_k entries with the largest scores of an indexer, which has its own
  // heads. 0: to all entries.
  int64_t index_heads = 1, index_head_dim = 2, index_top_k = 0;
};

// Returns the mixer for Layer::mixer. It stays whole under tp. Ranks of cp have all tokens of some heads.
// Throws Error{config} for sizes that do not fit each other.
HEDDLE_API std::shared_ptr<const MixerMaker> compressed_attention(const CompressedAttention& form);

}  // namespace heddle::decoder
