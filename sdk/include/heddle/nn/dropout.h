// Random numbers of tokens, from keys that follow from the seed, the step and the token's place: the same on
// every topology, and the same again in a backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// The key of a token: of the seed, the step, the row of the global batch and the column in it. For who makes
// Batch::draws.
HEDDLE_API int64_t draw_key(uint64_t seed, int64_t step, int64_t row, int64_t column);

// Uniform in [0, 1), with 24 random bits: [keys.numel(), columns] in float32, on the device of the keys
// (int64, contiguous). `salt` tells uses of one key apart. Below autograd.
HEDDLE_API at::Tensor uniform_draws(const at::Tensor& keys, int64_t columns, uint64_t salt);

// The salt of a use that has a name: "model.layers.0.self_attn.q_proj.lora_dropout".
HEDDLE_API uint64_t draw_salt(std::string_view name);

// x [..., columns] with a row for each token of `draws`; each number is set to zero with the probability p,
// and divided by 1 - p otherwise (Srivastava et al. 2014). One node, which keeps the keys alone: the backward
// draws again. p = 1 gives zeros. Throws Error{internal} for another number of rows.
HEDDLE_API at::Tensor dropout(const at::Tensor& x, const at::Tensor& draws, double p, uint64_t salt);

}  // namespace model

// Dropout of whole rows of hidden states. Without Batch::draws, as in validation, it gives its input.
// Tensor parallelism is refused: rows and columns of the input may be parts there.
class HEDDLE_API Dropout : public Module {
 public:
  // `name`: of the module in its model; two of one name drop the same numbers.
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
