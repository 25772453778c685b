// MLP of a layer, gated or plain, and the experts that replace it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "heddle/decoder/description.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

// down_proj(activation(gate_proj(x)) * up_proj(x)), or without a gate down_proj(activation(up_proj(x))).
class FeedForward : public LayerPart {
 public:
  FeedForward(const Mlp& form, int64_t width, const FirstValues& first, const at::TensorOptions& options);
  std::string_view kind() const override { return "gated_mlp"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor inside(const at::Tensor& x, const Batch& batch);  // everything but down_proj

  Activation activation_;
  double limit_;  // 0: no limit
  bool limit_before_;
  std::optional<model::Situ> situ_;    // replaces activation_
  double gate_factor_, out_;           // factors of gate_proj(x) and of the output
  std::unique_ptr<Linear> gate_proj_;  // null: no gate
  std::unique_ptr<Module> act_fn_;     // replaces activation_ unless null
  Linear up_proj_, down_proj_;
};

// The router's hidden size, layer, place and number of layers are already set.
std::unique_ptr<MoeLayer> make_mixture(const Mixture& form, int64_t width, double init_std,
                                       const at::TensorOptions& options);

}  // namespace heddle::decoder
