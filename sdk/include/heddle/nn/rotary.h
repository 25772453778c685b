// Rotary position embedding (Su et al. 2021) of whole or partial heads, with linear, llama3 and yarn scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"

namespace heddle {

// Scaling of rotary frequencies. linear: divides all by `factor`. llama3 (Llama 3.1): divides long
// wavelengths by `factor`, keeps short ones and interpolates between. yarn (Peng et al. 2023): like llama3,
// but bounded by the number of rotations within the original positions (beta_fast, beta_slow), and multiplies
// cos and sin.
struct RotaryScaling {
  enum class Kind { none, linear, llama3, yarn } kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int64_t original_positions = 8192;                     // llama3, yarn
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn, as are all members below
  bool truncate = true;                                  // round the bounds between frequencies to integers
  double attention_factor = 0;            // factor of cos and sin; 0: derived from `factor` and the mscales
  double mscale = 0, mscale_all_dim = 0;  // set both or neither
  bool operator==(const RotaryScaling&) const = default;
};

namespace model {

// Returns the frequencies of a rotation of `dim` elements, fp32 [dim / 2] on the CPU, computed as in
// transformers.
HEDDLE_API at::Tensor rotary_frequencies(int64_t dim, double theta, const RotaryScaling& scaling);
// Returns the factor of cos and sin; 1 except for yarn.
HEDDLE_API double rotary_factor(const RotaryScaling& scaling);

// The elements of each head that are rotated: 2 * (columns of cos) elements from `first` on.
struct HeadPart {
  int64_t head_dim = 0;  // 0: the whole head is rotated
  int64_t first = 0;
  bool interleaved = false;  // pairs are neighbors (DeepSeek); otherwise elements i and i + dim / 2 (Llama)
};

// cos and sin of the angles, fp32 [tokens, rotated elements / 2], one row per token.
struct RotaryAngles {
  at::Tensor cos, sin;
  HeadPart part = {};
};

// Rotates every head of x [tokens, heads * head_dim].
HEDDLE_API at::Tensor rotate(const at::Tensor& x, const RotaryAngles& angles);
// Rotates every head of q [tokens, heads * head_dim] and k [tokens, kv_heads * head_dim]. One autograd node.
HEDDLE_API std::pair<at::Tensor, at::Tensor> rotate(const at::Tensor& q, const at::Tensor& k,
                                                    const RotaryAngles& angles);

// Rotates the first two of three tensors q, k and v that the caller has just created. Works in place if no
// other tensor shares their memory.
HEDDLE_API void rotate_owned(std::span<at::Tensor, 3> qkv, const RotaryAngles& angles);

}  // namespace model

// The table of angles that all layers of a model share. It caches the last table, which layers after the
// first reuse. Used by one thread.
class HEDDLE_API Rotary {
 public:
  // Rotates the first `rotary_dim` elements of each head of head_dim; 0: all.
  Rotary(int64_t head_dim, double theta, const RotaryScaling& scaling, int64_t rotary_dim = 0);
  // Uses these frequencies, [rotated elements / 2], for scalings that RotaryScaling does not have. factor:
  // multiplies cos and sin. Throws Error{input} if the frequencies are not a vector of real numbers, or do
  // not fit in `part`.
  explicit Rotary(const at::Tensor& frequencies, double factor = 1, const model::HeadPart& part = {});

  // Returns the angles of positions_of(batch), on the device of its tokens.
  const model::RotaryAngles& angles(const Batch& batch);

 private:
  at::Tensor frequencies_;  // fp32 [rotary_dim / 2], on the CPU
  double factor_;           // factor of cos and sin
  model::HeadPart part_ = {};
  at::Tensor source_;  // positions or documents of the cached table; undefined: neither
  int64_t batch_ = 0, length_ = 0;
  uint32_t version_ = 0;
  model::RotaryAngles kept_;
};

}  // namespace heddle
