// Lightning indexer (DeepSeek-V3.2 2025), which chooses the keys that latent attention sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/sequence_core.h"

namespace heddle::decoder {

// Slots with Hugging Face's names: wq_b.weight [heads * head_dim, query_rank], wk.weight [head_dim, width],
// k_norm.weight and k_norm.bias [head_dim], weights_proj.weight [heads, width]. A choice has no gradient, so
// they do not train.
class HEDDLE_API LightningIndexer : public Module {
 public:
  LightningIndexer(const Latent& form, int64_t width, double init_std, const at::TensorOptions& options);
  std::string_view kind() const override { return "lightning_indexer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::mixes, .token_axes = {"cp"}}; }

  // x [tokens, width], of_queries [tokens, query_rank]: the queries' latent after its norm; the angles are
  // those of latent attention. Returns the result of choose_keys() as positions in whole rows; undefined if
  // no row has more than top_k tokens, so that a query sees all earlier tokens.
  at::Tensor choose(const at::Tensor& x, const at::Tensor& of_queries, const model::RotaryAngles& angles,
                    const Batch& batch);
  // Like Mixer::keep_state(): keeps the keys of earlier tokens.
  std::unique_ptr<MixerState> keep_state();

 protected:
  // throws: use choose(), which takes two tensors
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  void add(const std::string& name, at::Tensor& slot, at::IntArrayRef sizes, const Init& init,
           const at::TensorOptions& options);

  class KeptKeys;

  Indexer form_;
  KeptKeys* kept_ = nullptr;  // null: no state is kept
  RowGather core_;
  at::Tensor wq_b_, wk_, k_norm_weight_, k_norm_bias_, weights_proj_;
};

}  // namespace heddle::decoder
