// Per-layer inputs besides the hidden states (per-layer embeddings, Gemma 3n and 4).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"

namespace heddle::decoder {

// Computes the inputs of all layers at the start: an embedding look-up of the tokens, and a projection and
// norm of their hidden states. Children as listed in LayerInputs.
class HEDDLE_API AllLayerInputs : public Module {
 public:
  AllLayerInputs(const Model& model, const at::TensorOptions& options);
  std::string_view kind() const override { return "layer_inputs"; }
  // The look-up returns rows of all tokens even if ranks hold parts of the hidden states.
  ModuleTraits traits() const override { return {.tokens = TokenUse::mixes, .token_axes = {"cp"}}; }
  // tokens [batch, sequence], hidden [tokens, width]; returns [tokens, layers * LayerInputs::width].
  at::Tensor of(const at::Tensor& tokens, const at::Tensor& hidden, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws: use of(), which takes two tensors

 private:
  double scale_;  // factor of the projection
  Embedding embed_tokens_per_layer_;
  Linear per_layer_model_projection_;
  RmsNorm per_layer_projection_norm_;
};

// Applies one layer's own input. Children as listed in LayerInputs.
class LayerInput : public Module {
 public:
  LayerInput(const Model& model, const Norm& norm, const at::TensorOptions& options);
  std::string_view kind() const override { return "layer_input"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  // x [tokens, width], inputs [tokens, LayerInputs::width]; returns x + norm(projection(act(gate(x)) *
  // inputs)).
  at::Tensor onto(const at::Tensor& x, const at::Tensor& inputs, const Batch& batch);

 protected:
  // throws: use onto(), which takes two tensors
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  Activation activation_;
  Linear per_layer_input_gate_, per_layer_projection_;
  std::unique_ptr<Module> post_per_layer_input_norm_;
};

}  // namespace heddle::decoder
