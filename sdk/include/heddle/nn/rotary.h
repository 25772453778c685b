// Rotary position embedding (Su et al. 2021) of whole heads or a part of each, with linear, llama3 and yarn
// scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"

namespace heddle {

// Frequencies of one model. linear: all divided by `factor`. llama3 (Llama 3.1): long wavelengths divided by
// `factor`, short ones kept, those between interpolated. yarn (Peng et al. 2023): the same, but by the number
// of turns in the original positions (beta_fast and beta_slow), and cos and sin are multiplied.
struct RotaryScaling {
  enum class Kind { none, linear, llama3, yarn } kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int64_t original_positions = 8192;                     // llama3, yarn
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn, as all below
  bool truncate = true;                                  // the bounds between frequencies are integers
  double attention_factor = 0;                           // of cos and sin; 0: from `factor` and the mscales
  double mscale = 0, mscale_all_dim = 0;                 // both or none
  bool operator==(const RotaryScaling&) const = default;
};

namespace model {

// Frequencies of a rotation of `dim` numbers, fp32 [dim / 2] on the CPU, in the arithmetic of transformers.
HEDDLE_API at::Tensor rotary_frequencies(int64_t dim, double theta, const RotaryScaling& scaling);
// What cos and sin are multiplied by; 1 but for yarn.
HEDDLE_API double rotary_factor(const RotaryScaling& scaling);

// The numbers of each head that are rotated: as many as cos has columns, twice, from `first` on.
struct HeadPart {
  int64_t head_dim = 0;  // 0: all of a head is rotated
  int64_t first = 0;
  bool interleaved =
      false;  // neighbours form a pair (DeepSeek); else number i and number i + dim / 2 (Llama)
};

// cos and sin of the angles, fp32 [tokens, rotated numbers / 2]; a row per token.
struct RotaryAngles {
  at::Tensor cos, sin;
  HeadPart part = {};
};

// Rotates every head of x [tokens, heads * head_dim].
HEDDLE_API at::Tensor rotate(const at::Tensor& x, const RotaryAngles& angles);
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
  // The first `rotary_dim` numbers of each head of head_dim are rotated; 0: all.
  Rotary(int64_t head_dim, double theta, const RotaryScaling& scaling, int64_t rotary_dim = 0);
  // Any frequencies, [rotated numbers / 2], for a scaling that RotaryScaling does not have; cos and sin are
  // multiplied by `factor`. Throws Error{input} for frequencies that are no vector of real numbers, and for a
  // part that does not hold them.
  explicit Rotary(const at::Tensor& frequencies, double factor = 1, const model::HeadPart& part = {});

  // Angles of positions_of(batch), on the device of its tokens.
  const model::RotaryAngles& angles(const Batch& batch);

 private:
  at::Tensor frequencies_;  // fp32 [rotary_dim / 2], on the CPU
  double factor_;           // of cos and sin
  model::HeadPart part_ = {};
  at::Tensor source_;  // positions or documents that the kept table was made for; undefined: neither
  int64_t batch_ = 0, length_ = 0;
  uint32_t version_ = 0;
  model::RotaryAngles kept_;
};

}  // namespace heddle
