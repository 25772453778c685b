// The token embedding: a row of the weight per token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// tokens int64, any shape; weight [vocabulary, width]. Returns [number of tokens, width]. The row `padding`
// gets no gradient from the look-up (-1: no such row). On the CPU a token outside the vocabulary throws
// Error{input}.
HEDDLE_API at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, int64_t padding);

// The rows [first, first + weight.size(0)) of a table of `whole` rows that is split among ranks.
struct RowRange {
  int64_t first = 0, whole = 0;
};

// The same with a weight that holds only these rows: other tokens of the vocabulary give zeros and no
// gradient, so the sum over the ranks is the whole look-up (vocabulary parallelism, Shoeybi et al. 2019).
HEDDLE_API at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, int64_t padding,
                                const RowRange& rows);

}  // namespace model

// Slot "weight" [vocabulary, width]. Rows are multiplied by `multiplier`, rounded to their dtype (Gemma).
class HEDDLE_API Embedding : public Module {
 public:
  Embedding(int64_t vocabulary, int64_t width, int64_t padding, const Init& init,
            const at::TensorOptions& options, double multiplier = 1);
  std::string_view kind() const override { return "embedding"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::embedding}; }

  int64_t padding() const { return padding_; }  // the row without a gradient; -1: none

  at::Tensor weight;
  // Set by a parallelizer that splits the vocabulary: which rows `weight` holds.
  std::optional<model::RowRange> rows;

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override;

 private:
  int64_t padding_;
  double multiplier_;
};

}  // namespace heddle
