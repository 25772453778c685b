// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024): keys and values are projections of a small
// latent per token, and all heads share one rotated key.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "lib/decoder/attention/attention.h"
#include "lib/decoder/latent/chosen_keys.h"
#include "lib/decoder/latent/latent_heads.h"
#include "lib/decoder/latent/lightning_indexer.h"

namespace heddle::decoder {

// Children as in Hugging Face's files: q_a_proj, q_a_layernorm and q_b_proj (or q_proj), kv_a_proj_with_mqa,
// kv_a_layernorm, kv_b_proj, o_proj; also core, g_proj if the output has a gate, and indexer if the layer has
// its own. The rotary embedding has form.rotary elements. chosen: null if every query sees all earlier keys.
class LatentAttention : public LayerPart {
 public:
  LatentAttention(const Latent& form, int64_t width, double init_std, Tables tables,
                  std::shared_ptr<ChosenKeys> chosen, const at::TensorOptions& options);
  std::string_view kind() const override { return "latent_attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // everything but o_proj
  // Returns the keys that queries see, from the indexer. of_queries: as in LightningIndexer::choose.
  at::Tensor chosen(const at::Tensor& x, const at::Tensor& of_queries, const Batch& batch);

  LatentShape shape_;
  Tables tables_;
  std::shared_ptr<ChosenKeys> chosen_;
  std::unique_ptr<LightningIndexer> indexer_;
  std::unique_ptr<Linear> q_proj_, q_a_proj_, q_b_proj_;
  std::unique_ptr<Linear> g_proj_;  // null: no output gate
  std::unique_ptr<RmsNorm> q_a_layernorm_;
  Linear kv_a_proj_, kv_b_proj_, o_proj_;
  RmsNorm kv_a_layernorm_;
  AttentionCore core_;
};

}  // namespace heddle::decoder
