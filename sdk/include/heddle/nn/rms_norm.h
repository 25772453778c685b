// Root-mean-square normalisation (Zhang and Sennrich 2019), with the rounding of Hugging Face's LlamaRMSNorm.
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

// Slot "weight" [width], initialised with ones; of a norm that multiplies by 1 + weight with zeros.
class HEDDLE_API RmsNorm : public Module {
 public:
  enum class Scale { weight, one_plus_weight };
  RmsNorm(int64_t width, double eps, const at::TensorOptions& options, Scale scale = Scale::weight);
  std::string_view kind() const override { return "rms_norm"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  at::Tensor weight;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  double eps_;
  Scale scale_;
};

}  // namespace heddle
