// Causal scaled dot-product attention over query, key and value, with grouped heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

// Shapes of one attention, taken from its inputs and the batch.
struct Heads {
  int64_t batch = 0, sequence = 0, head_dim = 0;
};

// q [batch * sequence, heads * head_dim], k and v [batch * sequence, kv_heads * head_dim]; the number of
// heads is a multiple of kv_heads. Token i sees tokens 0..i of its own row; scale 1 / sqrt(head_dim). Returns
// q's shape. On the CPU it is ATen's flash attention with its own backward, elsewhere
// scaled_dot_product_attention.
HEDDLE_API at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const Heads& heads);

}  // namespace model

// The seam of context parallelism: the links of `instead` compute around attend(), or in its place.
class HEDDLE_API AttentionCore : public Module {
 public:
  using Instead = Chain<at::Tensor(at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                                   const Batch& batch)>;

  explicit AttentionCore(int64_t head_dim) : head_dim_(head_dim) {}
  std::string_view kind() const override { return "attention_core"; }

  // The batch gives the number of rows and the sequence length. Throws Error{not_built} for a batch with
  // documents, unless a link computes in place: attend() ignores documents.
  at::Tensor attend(at::Tensor q, at::Tensor k, at::Tensor v, const Batch& batch);

  Instead instead{"AttentionCore::instead"};
  int64_t head_dim() const { return head_dim_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: attend() takes three tensors

 private:
  int64_t head_dim_;
};

}  // namespace heddle
