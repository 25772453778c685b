// The lightning indexer (DeepSeek-V3.2 2025): chooses the keys that latent attention sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/sequence_core.h"

namespace heddle::decoder {

// Slots, named as in Hugging Face's files: wq_b.weight [heads * head_dim, query_rank], wk.weight
// [head_dim, width], k_norm.weight and k_norm.bias [head_dim], weights_proj.weight [heads, width]. A choice
// has no gradient, so they do not train.
class HEDDLE_API LightningIndexer : public Module {
 public:
  LightningIndexer(const Latent& form, int64_t width, double init_std, const at::TensorOptions& options);
  std::string_view kind() const override { return "lightning_indexer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::mixes, .token_axes = {"cp"}}; }

  // x [tokens, width], of_queries [tokens, query_rank]: the queries' latent after its norm; the angles are
  // those of latent attention. Returns what choose_keys() does, by places in whole rows; undefined where no
  // row has more than top_k tokens, so that a query sees all before it.
  at::Tensor choose(const at::Tensor& x, const at::Tensor& of_queries, const model::RotaryAngles& angles,
                    const Batch& batch);
  // As Mixer::keep_state(): the keys of the tokens before.
  std::unique_ptr<MixerState> keep_state();

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: choose() takes two tensors

 private:
  void add(const std::string& name, at::Tensor& slot, at::IntArrayRef sizes, const Init& init,
           const at::TensorOptions& options);

  class KeptKeys;

  Indexer form_;
  KeptKeys* kept_ = nullptr;  // null: nothing is kept
  RowGather core_;
  at::Tensor wq_b_, wk_, k_norm_weight_, k_norm_bias_, weights_proj_;
};

}  // namespace heddle::decoder
