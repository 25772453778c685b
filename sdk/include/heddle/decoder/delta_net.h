// The gated delta net (Yang, Kautz and Hatamizadeh 2024) as Qwen3-Next and Qwen3.5 have it: a mixer with a
// state of constant size in place of keys and values.
#pragma once

#include <cstdint>
#include <memory>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"

namespace heddle::decoder {

// Modules "linear_attn": in_proj_q, in_proj_k, in_proj_v, in_proj_z (the gate of the output), in_proj_b (the
// rate), in_proj_a (the decay), norm and out_proj; parameters q_conv1d.weight, k_conv1d.weight and
// v_conv1d.weight [channels, 1, taps], A_log and dt_bias [value_heads], which are fp32 under any precision but
// fp64. Neighbouring heads of values share one of queries and keys.
struct DeltaNet {
  int64_t key_heads = 1, value_heads = 1;  // the first divides the second
  int64_t key = 1, value = 1;              // widths of heads
  int64_t taps = 4;                        // tokens that the convolution sees
  double eps = 1e-6;                       // of the output's norm
};

// For Layer::mixer. Ranks of tp have parts of the heads, which tp_size must divide; under sequence parallelism
// they gather the tokens between the projections. Context parallelism is refused by name. Throws
// Error{config} for heads that do not divide.
HEDDLE_API std::shared_ptr<const MixerMaker> delta_net(const DeltaNet& form);

}  // namespace heddle::decoder
