// Attention with grouped heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"

namespace heddle::decoder {

// Children q_proj, k_proj, v_proj, o_proj, core and, where queries and keys have norms, q_norm and k_norm.
// Slot sinks [heads], where the description has them. rotary: null where nothing is rotated.
class SelfAttention : public LayerPart {
 public:
  SelfAttention(const Attention& form, int64_t width, double init_std, std::shared_ptr<Rotary> rotary,
                const at::TensorOptions& options);
  std::string_view kind() const override { return "attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::attention}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_proj

  std::shared_ptr<Rotary> rotary_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::unique_ptr<Module> q_norm_, k_norm_;
  at::Tensor sinks_;
  AttentionCore core_;
};

}  // namespace heddle::decoder
