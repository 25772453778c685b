// DoRA (Liu et al. 2024): the rows of W + s B A are scaled to a trained length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "heddle/model/module.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {

// The lengths of the rows, a slot "weight" [out]; a child of the adapted layer.
class Magnitude : public Module {
 public:
  // Of the layer's weight; on meta without values.
  Magnitude(const at::Tensor& of, const at::TensorOptions& options);
  std::string_view kind() const override { return "dora_magnitude"; }
  ModuleTraits traits() const override {
    return {.tokens = TokenUse::each_alone,
            .refuses = {{"tp", "DoRA under tensor parallelism is not built yet"}}};
  }
  at::Tensor weight;

 protected:
  // Rows are scaled by scaled_rows(), which needs the layer.
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return x; }
};

// Begins with the lengths of the rows of the weight that is read.
Derived from_rows(const std::string& weight, const ParameterSlot& slot);

// |W + s B A| of each row, [out] in float32 (float64 for float64); below autograd.
at::Tensor row_lengths(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale);

// z [rows, out] * magnitude / lengths, as one node: gradients for z and the magnitude, none for the lengths.
at::Tensor scaled_rows(const at::Tensor& z, const at::Tensor& magnitude, const at::Tensor& lengths);

}  // namespace heddle::lora
