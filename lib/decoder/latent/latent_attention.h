// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024): keys and values are products of one small
// latent of each token, and all heads share one rotated key.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "lib/decoder/latent/latent_heads.h"

namespace heddle::decoder {

// Children as in Hugging Face's files: q_a_proj, q_a_layernorm and q_b_proj (or q_proj), kv_a_proj_with_mqa,
// kv_a_layernorm, kv_b_proj, o_proj; and core. The rotary embedding is of form.rotary
// elements.
class LatentAttention : public LayerPart {
 public:
  LatentAttention(const Latent& form, int64_t width, double init_std, std::shared_ptr<Rotary> rotary,
                  const at::TensorOptions& options);
  std::string_view kind() const override { return "latent_attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_proj

  LatentShape shape_;
  std::shared_ptr<Rotary> rotary_;  // null: nothing is rotated
  std::unique_ptr<Linear> q_proj_, q_a_proj_, q_b_proj_;
  std::unique_ptr<RmsNorm> q_a_layernorm_;
  Linear kv_a_proj_, kv_b_proj_, o_proj_;
  RmsNorm kv_a_layernorm_;
  AttentionCore core_;
};

}  // namespace heddle::decoder
