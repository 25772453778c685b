// Norms: root mean square (Zhang and Sennrich 2019), with the rounding of Hugging Face's LlamaRMSNorm, and
// layer normalisation (Ba et al. 2016).
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// weight * (x / sqrt(mean(x^2) + eps)) over the last dim: normalised in fp32 (fp64 for fp64), rounded to x's
// dtype, then multiplied by the weight. x [..., width] may hold several heads of `weight` side by side: every
// weight.numel() consecutive numbers are one row. Returns x's shape.
HEDDLE_API at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// (1 + weight) * (x / sqrt(mean(x^2) + eps)), all of it in fp32 and then rounded to x's dtype, as Hugging
// Face's GemmaRMSNorm does.
HEDDLE_API at::Tensor rms_norm_plus_one(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace model

// Slot "weight" [width], initialised with ones; of a norm that multiplies by 1 + weight with zeros; of one
// that multiplies by nothing there is no slot.
class HEDDLE_API RmsNorm : public Module {
 public:
  enum class Scale { weight, one_plus_weight, none };
  RmsNorm(int64_t width, double eps, const at::TensorOptions& options, Scale scale = Scale::weight);
  std::string_view kind() const override { return "rms_norm"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::norm}; }

  at::Tensor weight;  // of Scale::none ones, made at the first call for the dtype and device of what comes

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  const at::Tensor& ones_like(const at::Tensor& x);

  int64_t width_;
  double eps_;
  Scale scale_;
};

namespace model {

// weight * (x - mean) / sqrt(variance + eps) + bias over the last dim, computed in fp32 (fp64 for fp64) and
// rounded to x's dtype. x [..., width]; weight and bias: undefined or [width].
HEDDLE_API at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 double eps);

}  // namespace model

// Slots, if asked for, "weight" [width], initialised with ones, and "bias" [width], with zeros.
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
