// One decoder layer: attention and a gated MLP or experts, each after a norm, each added back.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "../config/model_config.h"
#include "heddle/model/module.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "latent_attention.h"

namespace heddle::llama {

// Children q_proj, k_proj, v_proj, core, o_proj and, where queries and keys have norms, q_norm and k_norm.
// Slot sinks [heads], where the model has them.
class Attention : public Module {
 public:
  Attention(const ModelConfig& config, int64_t layer, std::shared_ptr<Rotary> rotary,
            const at::TensorOptions& options);
  std::string_view kind() const override { return "attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  // residual + call(x, batch).
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_proj

  std::shared_ptr<Rotary> rotary_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::unique_ptr<RmsNorm> q_norm_, k_norm_;
  at::Tensor sinks_;
  AttentionCore core_;
};

// down_proj(silu(gate_proj(x)) * up_proj(x)).
class GatedMlp : public Module {
 public:
  GatedMlp(const ModelConfig& config, int64_t width, const at::TensorOptions& options);
  std::string_view kind() const override { return "gated_mlp"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  // residual + call(x, batch).
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor gated(const at::Tensor& x, const Batch& batch);  // all but down_proj

  Linear gate_proj_, up_proj_, down_proj_;
};

// What the layers of one model share.
struct SharedByLayers {
  std::shared_ptr<Rotary> rotary;
  std::shared_ptr<model::LayerBalance> balance;  // null: no loss goes over all layers
};

// Hidden states [tokens, hidden_size] in and out. Child self_attn: an Attention, or a LatentAttention. Child
// mlp: a GatedMlp, or a MoeLayer.
class DecoderLayer : public Module {
 public:
  DecoderLayer(const ModelConfig& config, int64_t layer, const SharedByLayers& shared,
               const at::TensorOptions& options);
  std::string_view kind() const override { return "decoder_layer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  RmsNorm input_layernorm_, post_attention_layernorm_;
  std::unique_ptr<Attention> attention_;  // one of the two
  std::unique_ptr<LatentAttention> latent_;
  std::unique_ptr<GatedMlp> dense_;  // one of the two
  std::unique_ptr<MoeLayer> sparse_;
};

}  // namespace heddle::llama
