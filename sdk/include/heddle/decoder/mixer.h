// Mixers, layers that mix tokens and are no attention: state space layers, delta nets. Those that are built,
// and the interface for others.
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

// Hidden states [tokens, width] in and out, which a layer adds to its own.
class HEDDLE_API LayerPart : public Module {
 public:
  ~LayerPart() override;
  // residual + call(x, batch).
  virtual at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);
};

// What a mixer knows of the tokens before, while a sequence is generated token by token.
class HEDDLE_API MixerState {
 public:
  virtual ~MixerState();
  virtual void clear() = 0;  // the next token begins a sequence
};

// A state space layer, a delta net, ... It respects Batch::documents: no token sees another document. Its
// traits declare whether it is right where ranks hold parts of the tokens: by default it mixes tokens, and is
// refused by name. One whose tokens meet in a SequenceCore alone (heddle/nn/sequence_core.h) is each_alone.
class HEDDLE_API Mixer : public LayerPart {
 public:
  ~Mixer() override;
  ModuleTraits traits() const override { return {.tokens = TokenUse::mixes, .role = Role::mixer}; }
  // For `heddle generate`: from now on forward() gets one sequence, first a stretch of it and then token by
  // token, without gradients, and continues from the returned state, which lives as long as the mixer runs.
  virtual std::unique_ptr<MixerState> keep_state() = 0;
};

// A description of activations with parameters, held by an Mlp. The module that it makes computes each number
// of [tokens, width] alone, so that ranks of tp may have parts of the width: its traits are each_alone with
// the role `norm`, and its slots do not depend on the width.
class HEDDLE_API ActivationMaker {
 public:
  virtual ~ActivationMaker();
  virtual std::unique_ptr<Module> make(const at::TensorOptions& options) const = 0;
};

// xIELU (Huang and Schlag 2024), as Apertus has it: of x above 0 a_p x^2 + beta x, else a_n (expm1(min(x,
// eps))
// - x) + beta x, with a_p = softplus(alpha_p) and a_n = beta + softplus(alpha_n). Parameters alpha_p and
// alpha_n [1]; parameters beta and eps [1], which do not train.
HEDDLE_API std::shared_ptr<const ActivationMaker> xielu();

// A description of mixers, held by a Layer.
class HEDDLE_API MixerMaker {
 public:
  virtual ~MixerMaker();
  virtual std::string name() const = 0;  // of the module in its layer: "mixer"
  virtual std::unique_ptr<Mixer> make(int64_t width, double init_std,
                                      const at::TensorOptions& options) const = 0;
  // Multiplications of a token in the forward, of a sequence of that many.
  virtual double multiplications(int64_t width, int64_t sequence) const = 0;
  // Styles for the axis tp of the mixer's own modules, by their paths in it; those not named stay whole.
  virtual TensorPlan tensor_plan() const;
};

// The gated delta net (Yang, Kautz and Hatamizadeh 2024) as Qwen3-Next and Qwen3.5 have it: a state of
// constant size in place of keys and values.
//
// Modules "linear_attn": in_proj_q, in_proj_k, in_proj_v, in_proj_z (the gate of the output), in_proj_b (the
// rate), in_proj_a (the decay), norm and out_proj; parameters q_conv1d.weight, k_conv1d.weight and
// v_conv1d.weight [channels, 1, taps], A_log and dt_bias [value_heads], which are fp32 under any precision
// but fp64. Neighbouring heads of values share one of queries and keys.
struct DeltaNet {
  int64_t key_heads = 1, value_heads = 1;  // the first divides the second
  int64_t key = 1, value = 1;              // widths of heads
  int64_t taps = 4;                        // tokens that the convolution sees
  double eps = 1e-6;                       // of the output's norm
};

// For Layer::mixer. Ranks of tp have parts of the heads where tp_size divides them, else all; under sequence
// parallelism they gather the tokens between the projections. Ranks of cp have all tokens of some heads.
// Throws Error{config} for heads that do not divide.
HEDDLE_API std::shared_ptr<const MixerMaker> delta_net(const DeltaNet& form);

// Kimi Delta Attention (Kimi Linear, Kimi Team 2025): a gated delta net in which each row of a state, a
// channel of keys, has a decay of its own. The decay and the gate of the output are products of low rank, the
// width of a head; the gate is a sigmoid behind the norm. Kimi K3 has the gate as one product, and a bound of
// the decay.
//
// Modules "linear_attn": q_proj, k_proj, v_proj, f_a_proj and f_b_proj (the decay), b_proj (the rate),
// g_a_proj and g_b_proj or g_proj (the gate), o_norm and o_proj; parameters q_conv1d.weight, k_conv1d.weight
// and v_conv1d.weight [channels, 1, taps], A_log [heads] and dt_bias [channels], which are fp32 under any
// precision but fp64.
struct ChannelDelta {
  int64_t heads = 1, width = 1;  // width: of a head of queries, of keys and of values
  int64_t taps = 4;              // tokens that the convolution sees
  double eps = 1e-5;             // of the output's norm
  bool whole_gate = false;       // g_proj in place of g_a_proj and g_b_proj
  // Below 0: the logarithm of the decay is lowest * sigmoid(exp(A_log) * (f + dt_bias)), and dt_bias begins
  // with zeros. 0: it is -exp(A_log) * softplus(f + dt_bias).
  double lowest = 0;
  int64_t rates = 0;  // rows of A_log, of which those behind the heads count nothing; 0: as many as heads
};

// For Layer::mixer. It stays whole under tp_size; ranks of cp have all tokens of some heads.
HEDDLE_API std::shared_ptr<const MixerMaker> channel_delta(const ChannelDelta& form);

// Mamba-2 (Dao and Gu 2024) as Nemotron-H and Falcon-H1 have it: a state of constant size that decays, of
// each head.
//
// Modules "mamba": in_proj_z (the gate), in_proj_x, in_proj_b (what is written), in_proj_c (what is read),
// in_proj_dt (the step) and out_proj; parameters x_conv1d.weight, b_conv1d.weight and c_conv1d.weight
// [channels, 1, taps], their biases, norm.weight [heads * width], and A_log, dt_bias and D [heads], which are
// fp32 under any precision but fp64. Neighbouring heads of a group share what is written and read; the norm
// goes over the heads of a group at once.
struct Mamba {
  // Of the output y and the gate z: norm(y * silu(z)), norm(y) * silu(z), or y * silu(z) without norm.weight.
  enum class Gate { before_norm, after_norm, without_norm };
  int64_t heads = 1, groups = 1;               // the second divides the first
  int64_t width = 1, state = 1;                // of a head: numbers, and rows of its state
  int64_t taps = 4;                            // tokens that the convolution sees
  bool bias = false, convolution_bias = true;  // bias: of what goes in
  double eps = 1e-5;                           // of the norm
  double shortest_step = 0, longest_step = std::numeric_limits<double>::infinity();
  double output_std = 0;     // of out_proj's first values; 0: the model's init_std
  bool output_bias = false;  // of out_proj
  Gate gate = Gate::before_norm;
  bool drawn_steps = true;  // first values of dt_bias; false: 1
  // Factors of the input, of in_proj_z, in_proj_x, in_proj_b, in_proj_c and in_proj_dt, and of the output.
  double input_multiplier = 1, output_multiplier = 1;
  std::array<double, 5> part_multipliers = {1, 1, 1, 1, 1};
};

// For Layer::mixer, with the rules of delta_net() for parallelism, of heads and groups.
HEDDLE_API std::shared_ptr<const MixerMaker> mamba(const Mamba& form);

// Attention over a window of tokens and compressed entries (DeepSeek-V4 2026). One head of keys, which are
// values, serves all heads of queries; the last numbers of a head are rotated, of the output back at the
// query's position. An entry is a sum of the keys of `rate` tokens, gated number by number; a token sees the
// entries that are complete with it, and its window. A score of each head takes part in the softmax without a
// value.
//
// Modules "self_attn": q_a_proj, q_a_norm, q_b_proj, kv_proj, kv_norm, o_a_proj (weight [output_groups *
// output_rank, heads * head_dim / output_groups], a product for each group of heads) and o_b_proj; parameter
// sinks [heads]; "compressor", where there are entries: kv_proj, gate_proj, kv_norm, position_bias [rate,
// width], and its indexer's kv_proj, gate_proj, position_bias, kv_norm, q_b_proj and scorer.weights_proj,
// which do not train. sinks and position_bias are fp32 under any precision but fp64.
struct CompressedAttention {
  int64_t heads = 1, head_dim = 2, rotary = 2;  // rotary: the last so many numbers of a head
  int64_t query_rank = 1;
  int64_t output_groups = 1, output_rank = 1;  // the first divides the heads
  int64_t window = 1;                          // tokens, with the query's own
  double theta = 10000;
  RotaryScaling scaling = {};
  double eps = 1e-6;        // of the norms
  int64_t rate = 0;         // tokens of an entry; 0: there are none
  bool overlapped = false;  // an entry has the tokens of the one before too, with numbers of their own
  // A token sees the index_top_k entries with the largest scores of an indexer with heads of its own; 0: it
  // sees all.
  int64_t index_heads = 1, index_head_dim = 2, index_top_k = 0;
};

// For Layer::mixer. It stays whole under tp_size; ranks of cp have all tokens of some heads. Throws
// Error{config} for sizes that do not fit each other.
HEDDLE_API std::shared_ptr<const MixerMaker> compressed_attention(const CompressedAttention& form);

}  // namespace heddle::decoder
