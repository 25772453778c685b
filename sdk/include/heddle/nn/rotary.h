// Rotary position embedding (Su et al. 2021), half-split as in Llama, with linear and llama3 scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"

namespace heddle {

// Frequencies of one model. linear: all divided by `factor`. llama3 (Llama 3.1): long wavelengths divided by
// `factor`, short ones kept, those between interpolated.
struct RotaryScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int64_t original_positions = 8192;                     // llama3
  bool operator==(const RotaryScaling&) const = default;
};

namespace model {

// cos and sin of the angles, fp32 [tokens, head_dim / 2]; a row per token.
struct RotaryAngles {
  at::Tensor cos, sin;
};

// Rotates every head of q [tokens, heads * head_dim] and k [tokens, kv_heads * head_dim]. One autograd node.
HEDDLE_API std::pair<at::Tensor, at::Tensor> rotate(const at::Tensor& q, const at::Tensor& k,
                                                    const RotaryAngles& angles);

// The same for the q and k of three tensors that the caller just made: in place if no other tensor shares
// their memory. v is unchanged.
HEDDLE_API void rotate_owned(std::span<at::Tensor, 3> qkv, const RotaryAngles& angles);

}  // namespace model

// The table of angles that all layers of a model share. It keeps the last table, so layers after the first
// reuse it. Used by one thread.
class HEDDLE_API Rotary {
 public:
  Rotary(int64_t head_dim, double theta, const RotaryScaling& scaling);

  // Angles of positions_of(batch), on the device of its tokens.
  const model::RotaryAngles& angles(const Batch& batch);

 private:
  at::Tensor frequencies_;  // fp32 [head_dim / 2], on the CPU
  at::Tensor source_;       // positions or documents that the kept table was made for; undefined: neither
  int64_t batch_ = 0, length_ = 0;
  uint32_t version_ = 0;
  model::RotaryAngles kept_;
};

}  // namespace heddle
