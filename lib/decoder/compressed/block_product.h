// Linear layer with a block-diagonal weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle::decoder {

// x [tokens, blocks * in], weight [blocks * out, in]. Block b of the result [tokens, blocks * out] is block b
// of x times rows [b * out, (b + 1) * out) of the weight. Computed in the dtype of the active autocast, else
// of x. Edges: x, weight.
HEDDLE_API at::Tensor block_product(const at::Tensor& x, const at::Tensor& weight, int64_t blocks);

// Slot "weight" [blocks * out, in].
class BlockLinear : public Module {
 public:
  BlockLinear(int64_t blocks, int64_t in, int64_t out, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "block_linear"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  int64_t blocks_;
  at::Tensor weight_;
};

}  // namespace heddle::decoder
