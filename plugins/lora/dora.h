// DoRA (Liu et al. 2024): scales the rows of W + s B A to a trained length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "heddle/model/module.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {

// Trained lengths of the rows: a slot "weight" [out]. A child of the adapted layer.
class Magnitude : public Module {
 public:
  // Computes the lengths from the layer's weight. On meta they have no values.
  Magnitude(const at::Tensor& of, const at::TensorOptions& options);
  std::string_view kind() const override { return "dora_magnitude"; }
  ModuleTraits traits() const override {
    return {.tokens = TokenUse::each_alone,
            .refuses = {{"tp", "DoRA under tensor parallelism is not built yet"}}};
  }
  at::Tensor weight;

 protected:
  // Returns x: scaled_rows() scales the rows, which needs the layer.
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return x; }
};

// Initializes the magnitude with the lengths of the rows of the weight that is read.
Derived from_rows(const std::string& weight, const ParameterSlot& slot);

// Returns |W + s B A| of each row: [out] in float32 (float64 for float64). Not recorded by autograd.
at::Tensor row_lengths(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale);

// Returns z [rows, out] * magnitude / lengths, as one node with gradients for z and the magnitude only.
at::Tensor scaled_rows(const at::Tensor& z, const at::Tensor& magnitude, const at::Tensor& lengths);

}  // namespace heddle::lora
