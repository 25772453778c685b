// Scaled dot-product attention with grouped heads, documents, windows, soft caps, sinks and dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"

namespace heddle {

// Options of attention that a model family sets, equal for all batches.
struct AttentionOptions {
  bool causal = true;     // false: a token attends to all tokens of its document, also later ones
  int64_t window = 0;     // sliding-window size in tokens, including the current token; 0: no window
  double scale = 0;       // scale of the scores; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;    // scores become cap * tanh(score / cap) (Gemma 2); 0: no cap
  int64_t value_dim = 0;  // head width of values and outputs (multi-head latent attention); 0: head_dim
  double dropout = 0;     // dropout of the softmax weights; needs Batch::draws
  bool operator==(const AttentionOptions&) const = default;
};

namespace model {

// Shapes and options of one attention call.
struct Heads {
  int64_t batch = 0, sequence = 0, head_dim = 0;
  AttentionOptions options = {};
  // [heads]: a learned score per head that takes part in the softmax without a value (gpt-oss). Has a
  // gradient. Undefined: no sinks.
  at::Tensor sinks = {};
  // int32 [batch * sequence, any]: the keys that each query attends to, as rows of k. May contain duplicates.
  // The options and documents must allow each key. Undefined: all allowed keys.
  at::Tensor chosen = {};
  // int64 [batch * sequence]: a random key per token, and a salt that identifies this attention within the
  // model, for AttentionOptions::dropout. Undefined: no dropout.
  at::Tensor draws = {};
  uint64_t salt = 0;

  int64_t value_dim() const { return options.value_dim > 0 ? options.value_dim : head_dim; }
  double scale() const;  // the scale of the options, or its default
};

// Computes attention. q [batch * sequence, heads * head_dim], k [batch * sequence, kv_heads * head_dim], v
// [batch * sequence, kv_heads * value_dim]; heads is a multiple of kv_heads. Returns [batch * sequence, heads
// * value_dim]. A token attends to the tokens of its own document (Batch::documents; absent: each row is one)
// that the options allow. The CPU uses the blocked kernel (attention_layout.h). A GPU uses cuDNN or flash
// attention for whole rows in 16 bits, and attend_ranges() otherwise. With `chosen` or with dropout, every
// device uses matrix products by blocks of queries, with the scores of all keys up to the query.
HEDDLE_API at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const Heads& heads, const at::Tensor& documents = {});

}  // namespace model

// Head counts of the whole model, before tensor parallelism splits it. 0: unknown.
struct HeadCounts {
  int64_t queries = 0, keys = 0;  // keys: heads of keys and of values
};

// The attention of one layer, the seam of context parallelism: links of `instead` wrap or replace attend().
class HEDDLE_API AttentionCore : public Module {
 public:
  using Instead = Chain<at::Tensor(at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                                   const Batch& batch)>;

  // counts: for checks before the first step. salt: draw_salt() of the module's name in the model, for
  // dropout.
  explicit AttentionCore(int64_t head_dim, const AttentionOptions& options = {}, HeadCounts counts = {},
                         uint64_t salt = 0)
      : head_dim_(head_dim), options_(options), counts_(counts), salt_(salt) {}
  std::string_view kind() const override { return "attention_core"; }
  // Dropout is refused if ranks have parts of the heads or of the tokens.
  ModuleTraits traits() const override;

  // Computes attention with the rows, the sequence length and the documents of the batch. sinks, chosen: see
  // Heads.
  at::Tensor attend(at::Tensor q, at::Tensor k, at::Tensor v, const Batch& batch,
                    const at::Tensor& sinks = {}, const at::Tensor& chosen = {});

  Instead instead{"AttentionCore::instead"};
  int64_t head_dim() const { return head_dim_; }
  const AttentionOptions& options() const { return options_; }
  const HeadCounts& counts() const { return counts_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws; use attend()

 private:
  int64_t head_dim_;
  AttentionOptions options_;
  HeadCounts counts_;
  uint64_t salt_;
};

}  // namespace heddle
