// Scaled dot-product attention over query, key and value, with grouped heads, documents, windows, soft caps,
// sinks and dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"

namespace heddle {

// What a family of models asks of its attention; equal in all its batches.
struct AttentionOptions {
  bool causal = true;     // a token sees itself and those before it; else all of its document
  int64_t window = 0;     // a token sees tokens less than so many places away; 0: all
  double scale = 0;       // of the scores; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;    // scores become cap * tanh(score / cap) (Gemma 2); 0: none
  int64_t value_dim = 0;  // of the heads of values and outputs (multi-head latent attention); 0: head_dim
  double dropout = 0;     // of the softmax's weights, where Batch::draws are given
  bool operator==(const AttentionOptions&) const = default;
};

namespace model {

// Shapes of one attention, taken from its inputs and the batch, and what else all of them share.
struct Heads {
  int64_t batch = 0, sequence = 0, head_dim = 0;
  AttentionOptions options = {};
  // [heads]: a learned score of each head that takes part in its softmax and brings no value (gpt-oss). Gets
  // a gradient. Undefined: none.
  at::Tensor sinks = {};
  // int32 [batch * sequence, any]: the keys that a query sees, by their rows in k; one may stand several
  // times. Each is a key that the options and the documents let it see. Undefined: it sees all of these.
  at::Tensor chosen = {};
  // A key of each token, int64 [batch * sequence], and what tells this attention from others of the model:
  // weights are dropped (AttentionOptions::dropout). Undefined: they are not.
  at::Tensor draws = {};
  uint64_t salt = 0;

  int64_t value_dim() const { return options.value_dim > 0 ? options.value_dim : head_dim; }
  double scale() const;  // of the options, or its default
};

// q [batch * sequence, heads * head_dim], k [batch * sequence, kv_heads * head_dim], v [batch * sequence,
// kv_heads * value_dim]; the number of heads is a multiple of kv_heads. A token sees those of its own
// document (Batch::documents; absent: each row is one) that the options let it see. Returns [batch *
// sequence, heads * value_dim]. On the CPU it is the blocked kernel (attention_layout.h); on a GPU cuDNN's or
// flash attention for whole rows in 16 bits, and what attend_ranges() takes for the rest. Over chosen keys
// and with dropout it is products by blocks of queries on every device, with the scores of all keys up to a
// query.
HEDDLE_API at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const Heads& heads, const at::Tensor& documents = {});

}  // namespace model

// Of the whole model, before any axis splits it; 0: not known.
struct HeadCounts {
  int64_t queries = 0, keys = 0;  // keys: of keys and of values
};

// The seam of context parallelism: the links of `instead` compute around attend(), or in its place.
class HEDDLE_API AttentionCore : public Module {
 public:
  using Instead = Chain<at::Tensor(at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                                   const Batch& batch)>;

  // counts: for checks before the first step; salt: draw_salt() of its name in the model, for dropout.
  explicit AttentionCore(int64_t head_dim, const AttentionOptions& options = {}, HeadCounts counts = {},
                         uint64_t salt = 0)
      : head_dim_(head_dim), options_(options), counts_(counts), salt_(salt) {}
  std::string_view kind() const override { return "attention_core"; }
  // Dropout is refused where ranks have parts of the heads or of the tokens.
  ModuleTraits traits() const override;

  // The batch gives the number of rows, the sequence length and the documents. sinks, chosen: as in Heads.
  at::Tensor attend(at::Tensor q, at::Tensor k, at::Tensor v, const Batch& batch,
                    const at::Tensor& sinks = {}, const at::Tensor& chosen = {});

  Instead instead{"AttentionCore::instead"};
  int64_t head_dim() const { return head_dim_; }
  const AttentionOptions& options() const { return options_; }
  const HeadCounts& counts() const { return counts_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: attend() takes three tensors

 private:
  int64_t head_dim_;
  AttentionOptions options_;
  HeadCounts counts_;
  uint64_t salt_;
};

}  // namespace heddle
