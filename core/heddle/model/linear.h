// A linear layer, y = x W^T + b: the module that parallelizers split, and its one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// x [..., in], weight [out, in], bias [out] or undefined; returns [..., out]. The backward is two products.
HEDDLE_API at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace model

// Slots "weight" [out, in] and, if asked for, "bias" [out], named as in Hugging Face checkpoints.
class HEDDLE_API Linear : public Module {
 public:
  enum class Bias { none, zeros };
  Linear(int64_t in, int64_t out, Bias bias, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "linear"; }

  at::Tensor weight, bias;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;
};

}  // namespace heddle
