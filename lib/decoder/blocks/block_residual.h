// Parameters of a sum over blocks of layers, and the blocks that a layer sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "heddle/decoder/description.h"
#include "heddle/model/module.h"

namespace heddle::decoder {

// Slots norm.weight [width] and proj.weight [1, width].
class BlockResidual : public Module {
 public:
  // trains: false for the first sum of a model, which has no gradient.
  BlockResidual(const Model& model, bool trains, const at::TensorOptions& options);
  std::string_view kind() const override { return "block_residual"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // Returns the weighted sum of x [tokens, width] and all blocks, which have the same shape.
  at::Tensor of(const at::Tensor& x, const std::vector<at::Tensor>& blocks, const Batch& batch);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws: use of(), which takes the blocks

 private:
  double eps_;
  at::Tensor norm_, proj_;
};

// Throws Error{config} if a model with block residuals has a feature that is built for one residual only.
void check_blocks(const Model& model);

}  // namespace heddle::decoder
