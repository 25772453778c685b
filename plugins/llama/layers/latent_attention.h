// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024): keys and values are products of one small
// latent of each token, and all heads share one rotated key.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/model/module.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "latent_heads.h"

namespace heddle::llama {

struct LatentAttentionConfig {
  int64_t hidden = 0;
  LatentShape shape;
  int64_t query_rank = 0;  // of the queries' latent; 0: queries are one product
  int64_t rank = 0;        // of the latent of keys and values
  double scale = 0;        // of the scores; 0: 1 / sqrt(shape.key())
  bool bias = false;       // of q_a_proj, kv_a_proj_with_mqa and o_proj
  double latent_eps = 1e-6;
  Init init;
};

// Children as in Hugging Face's files: q_a_proj, q_a_layernorm and q_b_proj (or q_proj), kv_a_proj_with_mqa,
// kv_a_layernorm, kv_b_proj, o_proj; and core. The rotary embedding is of shape.rotary elements.
class LatentAttention : public Module {
 public:
  LatentAttention(const LatentAttentionConfig& config, std::shared_ptr<Rotary> rotary,
                  const at::TensorOptions& options);
  std::string_view kind() const override { return "latent_attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  // residual + call(x, batch).
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_proj

  LatentShape shape_;
  std::shared_ptr<Rotary> rotary_;
  std::unique_ptr<Linear> q_proj_, q_a_proj_, q_b_proj_;
  std::unique_ptr<RmsNorm> q_a_layernorm_;
  Linear kv_a_proj_, kv_b_proj_, o_proj_;
  RmsNorm kv_a_layernorm_;
  AttentionCore core_;
};

}  // namespace heddle::llama
