// Embedding look-ups and projections of per-layer inputs.
#include "lib/decoder/carried/layer_input.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/nn/activation.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

int64_t width_of_all(const Model& model) {
  return static_cast<int64_t>(model.layers.size()) * model.layer_inputs.width;
}

[[noreturn]] void refuse_call() {
  throw Error(ErrorCode::internal, "model", "per-layer inputs take two tensors, but call() was used",
              "use of() or onto()");
}

}  // namespace

AllLayerInputs::AllLayerInputs(const Model& model, const at::TensorOptions& options)
    : scale_(1 / std::sqrt(static_cast<double>(model.width))),
      embed_tokens_per_layer_(model.layer_inputs.vocabulary, width_of_all(model), model.padding,
                              normal(model.init_std), options,
                              std::sqrt(static_cast<double>(model.layer_inputs.width))),
      per_layer_model_projection_(model.width, width_of_all(model), Linear::Bias::none,
                                  normal(model.init_std), options),
      per_layer_projection_norm_(model.layer_inputs.width, model.last_norm.eps, options) {
  add_child("embed_tokens_per_layer", embed_tokens_per_layer_);
  add_child("per_layer_model_projection", per_layer_model_projection_);
  add_child("per_layer_projection_norm", per_layer_projection_norm_);
}

at::Tensor AllLayerInputs::of(const at::Tensor& tokens, const at::Tensor& hidden, const Batch& batch) {
  const at::Tensor product = per_layer_model_projection_.call(hidden, batch) * scale_;
  const at::Tensor of_hidden = per_layer_projection_norm_.call(product, batch);
  return (of_hidden + embed_tokens_per_layer_.call(tokens, batch)) * M_SQRT1_2;
}

at::Tensor AllLayerInputs::forward(at::Tensor, const Batch&) {
  refuse_call();
}

LayerInput::LayerInput(const Model& model, const Norm& norm, const at::TensorOptions& options)
    : activation_(model.layer_inputs.activation),
      per_layer_input_gate_(model.width, model.layer_inputs.width, Linear::Bias::none, normal(model.init_std),
                            options),
      per_layer_projection_(model.layer_inputs.width, model.width, Linear::Bias::none, normal(model.init_std),
                            options),
      post_per_layer_input_norm_(make_norm(norm, model.width, options)) {
  add_child("per_layer_input_gate", per_layer_input_gate_);
  add_child("per_layer_projection", per_layer_projection_);
  add_child("post_per_layer_input_norm", *post_per_layer_input_norm_);
}

at::Tensor LayerInput::onto(const at::Tensor& x, const at::Tensor& inputs, const Batch& batch) {
  const at::Tensor gate = per_layer_input_gate_.call(x, batch);
  at::Tensor y = per_layer_projection_.call(model::gated(activation_, gate, inputs), batch);
  return x + post_per_layer_input_norm_->call(std::move(y), batch);
}

at::Tensor LayerInput::forward(at::Tensor, const Batch&) {
  refuse_call();
}

}  // namespace heddle::decoder
