// The token embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// Returns the row of weight [vocabulary, width] for each token, [number of tokens, width]. tokens: int64 of
// any shape. padding: the row that gets no gradient; -1: none. On the CPU a token outside the vocabulary
// throws Error{input}.
HEDDLE_API at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, int64_t padding);

// The rows [first, first + weight.size(0)) of a table of `whole` rows that is sharded over ranks.
struct RowRange {
  int64_t first = 0, whole = 0;
};

// Looks up tokens in a weight that has only these rows. Other tokens give zeros and no gradient, so the sum
// over ranks is the embedding (vocabulary parallelism, Shoeybi et al. 2019).
HEDDLE_API at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, int64_t padding,
                                const RowRange& rows);

}  // namespace model

// Token embedding with the slot "weight" [vocabulary, width]. `multiplier` multiplies the rows and is rounded
// to their dtype (Gemma).
class HEDDLE_API Embedding : public Module {
 public:
  Embedding(int64_t vocabulary, int64_t width, int64_t padding, const Init& init,
            const at::TensorOptions& options, double multiplier = 1);
  std::string_view kind() const override { return "embedding"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::embedding}; }

  int64_t padding() const { return padding_; }  // the row without gradient; -1: none

  at::Tensor weight;
  // The rows in `weight`. Set by a parallelizer that splits the vocabulary.
  std::optional<model::RowRange> rows;

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override;

 private:
  int64_t padding_;
  double multiplier_;
};

}  // namespace heddle
