// Reproducible random numbers per token, from keys that depend on the seed, the step and the token's
// position. They are equal for any parallelism and when the backward recomputes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// Returns the random key of a token from the seed, the step, the row of the global batch and the column. For
// code that sets Batch::draws.
HEDDLE_API int64_t draw_key(uint64_t seed, int64_t step, int64_t row, int64_t column);

// Returns uniform numbers in [0, 1) with 24 random bits: float32 [keys.numel(), columns], on the device of
// the keys (int64, contiguous). salt: separates different uses of the same key. Below autograd.
HEDDLE_API at::Tensor uniform_draws(const at::Tensor& keys, int64_t columns, uint64_t salt);

// Returns the salt of a named use, such as "model.layers.0.self_attn.q_proj.lora_dropout".
HEDDLE_API uint64_t draw_salt(std::string_view name);

// Dropout (Srivastava et al. 2014) of x [..., columns], with one row per token of `draws`: each element
// becomes 0 with probability p and is divided by 1 - p otherwise. p = 1 gives zeros. One node, which saves
// only the keys and draws again in the backward. Throws Error{internal} for a wrong number of rows.
HEDDLE_API at::Tensor dropout(const at::Tensor& x, const at::Tensor& draws, double p, uint64_t salt);

}  // namespace model

// Dropout of hidden states. Returns its input without Batch::draws, as in validation. Tensor parallelism is
// refused, because ranks may have only some rows or columns of the input.
class HEDDLE_API Dropout : public Module {
 public:
  // name: of the module in its model. Modules with the same name drop the same elements.
  Dropout(double p, std::string_view name) : p_(p), salt_(model::draw_salt(name)) {}
  std::string_view kind() const override { return "dropout"; }
  ModuleTraits traits() const override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  double p_;
  uint64_t salt_;
};

}  // namespace heddle
