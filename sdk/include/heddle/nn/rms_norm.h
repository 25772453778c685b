// RMS norm (Zhang and Sennrich 2019) with the rounding of Hugging Face's LlamaRMSNorm, and layer norm (Ba et
// al. 2016).
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// Returns weight * (x / sqrt(mean(x^2) + eps)) over the last dim, in the shape of x. Normalizes in fp32 (fp64
// for fp64), rounds to the dtype of x, then multiplies by the weight. x [..., width] may have several heads
// side by side: each weight.numel() consecutive elements are normalized together.
HEDDLE_API at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Returns (1 + weight) * (x / sqrt(mean(x^2) + eps)), computed in fp32 and rounded once to the dtype of x,
// like Hugging Face's GemmaRMSNorm.
HEDDLE_API at::Tensor rms_norm_plus_one(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace model

// RMS norm with the slot "weight" [width], initialized to ones, or to zeros for Scale::one_plus_weight.
// Scale::none has no slot.
class HEDDLE_API RmsNorm : public Module {
 public:
  enum class Scale { weight, one_plus_weight, none };
  RmsNorm(int64_t width, double eps, const at::TensorOptions& options, Scale scale = Scale::weight);
  std::string_view kind() const override { return "rms_norm"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::norm}; }

  // For Scale::none, ones created in the first call with the dtype and device of its input.
  at::Tensor weight;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  const at::Tensor& ones_like(const at::Tensor& x);

  int64_t width_;
  double eps_;
  Scale scale_;
};

namespace model {

// Returns weight * (x - mean) / sqrt(variance + eps) + bias over the last dim, computed in fp32 (fp64 for
// fp64) and rounded to the dtype of x. x [..., width]; weight and bias: undefined or [width].
HEDDLE_API at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 double eps);

}  // namespace model

// Layer norm with the optional slots "weight" [width], initialized to ones, and "bias" [width], initialized
// to zeros.
class HEDDLE_API LayerNorm : public Module {
 public:
  LayerNorm(int64_t width, double eps, bool with_bias, const at::TensorOptions& options,
            bool with_weight = true);
  std::string_view kind() const override { return "layer_norm"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::norm}; }

  at::Tensor weight, bias;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  double eps_;
};

}  // namespace heddle
