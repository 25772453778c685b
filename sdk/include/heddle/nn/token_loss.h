// Cross-entropy loss in fp32, summed over the labels that are not ignored.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"
#include "heddle/model/unit.h"
#include "heddle/nn/linear.h"

namespace heddle {
namespace model {

// Returns the loss of logits [tokens, vocabulary] and labels (int64, one per token; Batch::kIgnore: no loss),
// fp32 [1] (fp64 for fp64). Computes block by block, so fp32 logits of the whole batch are never stored, and
// does not save log-probabilities. soft_cap, here and below: logits become cap * tanh(logit / cap) first
// (Gemma 2); 0: no cap.
HEDDLE_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels, double soft_cap = 0);

// Returns the loss for logits = hidden W^T, hidden [tokens, width], weight [vocabulary, width]. Stores only
// the logits of one block of rows. Computes the gradients of a block together with its loss (the method of
// Liger kernels, Hsu et al. 2024), and scales them in the backward.
HEDDLE_API at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels, double soft_cap = 0);

// Rows [first, first + weight rows) of a head of `whole` rows that is sharded over `ranks`.
struct VocabularyPart {
  int64_t first = 0, whole = 0;
  Communicator* ranks = nullptr;
};

// Returns the loss of a vocabulary-parallel head. No rank stores logits of another rank's rows. All ranks
// pass the same hidden states and labels and get the same whole loss, bitwise. Per block of rows the ranks
// all-gather three numbers per row: the largest logit, the sum of exponentials and the label's logit (Shoeybi
// et al. 2019, in one gather). The gradient of hidden is this rank's term of a sum over ranks.
HEDDLE_API at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels, const VocabularyPart& part,
                                        double soft_cap = 0);

// Returns the loss from this rank's logits [tokens, n] of a vocabulary-parallel head. The gradient is with
// respect to these logits.
HEDDLE_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels,
                                 const VocabularyPart& part, double soft_cap = 0);

}  // namespace model

// The loss as a module without parameters, the seam of vocabulary parallelism.
class HEDDLE_API TokenLoss : public Module {
 public:
  // soft_cap: of the logits, see token_loss(). An in_place link applies it itself.
  explicit TokenLoss(double soft_cap = 0);
  std::string_view kind() const override { return "token_loss"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::loss}; }

  // Links wrap or replace the head's product and its loss. A link that replaces them
  // - returns the sum over tokens, not a mean, fp32 [1] (fp64 for fp64): the engine divides by the number of
  //   labels of all ranks;
  // - ignores tokens whose label is Batch::kIgnore, in the loss and in every gradient. A batch with only such
  //   labels has the loss 0 and gradients of 0;
  // - is finite for logits of any size: it subtracts the largest logit before it takes exponentials;
  // - applies soft_cap() itself, and supports a head that is split along tp (`split`), or its transform is
  //   offered with the axis tp in OfferedTransform::refuses;
  // - keeps no state between batches and draws no random values.
  // A metric or an auxiliary loss is a side output (heddle/model/side_outputs.h) and not part of the sum.
  using Instead = Chain<at::Tensor(const at::Tensor& hidden, Linear& head, const Batch& batch)>;
  Instead instead{"TokenLoss::instead"};

  // Set by a parallelizer that splits the rows of the head, for links that compute the loss themselves. part:
  // the rows in the head's weight. enter: returns the hidden states that each rank needs, whose gradient is
  // this rank's term of a sum.
  struct Split {
    model::VocabularyPart part;
    std::function<at::Tensor(const at::Tensor& hidden, const Batch& batch)> enter;
  };
  std::optional<Split> split;

  // Returns the sum of the token losses of hidden [tokens, width] through `head`, with the batch's labels.
  at::Tensor of(const at::Tensor& hidden, Linear& head, const Batch& batch);
  // Returns the capped logits of a batch without labels: [tokens, vocabulary].
  at::Tensor logits(const at::Tensor& hidden, Linear& head, const Batch& batch) const;
  double soft_cap() const { return soft_cap_; }

 protected:
  at::Tensor forward(at::Tensor logits, const Batch& batch) override;  // computes the loss from logits

 private:
  at::Tensor of_itself(const at::Tensor& hidden, Linear& head, const Batch& batch);
  double soft_cap_;
};

namespace model {

// The head of a model: a module with a Linear and a TokenLoss among its children.
struct LossHead {
  Module* module = nullptr;  // null if there is no head; then all members are null
  Linear* linear = nullptr;
  TokenLoss* loss = nullptr;
  Module* norm = nullptr;  // a norm among the same children; may be null
};

// Returns the first head in the order of Module::visit: `module` itself or a descendant.
HEDDLE_API LossHead loss_head_of(Module& module);
// Returns the head of the last unit that has one.
HEDDLE_API LossHead loss_head_of(const Units& units);

}  // namespace model
}  // namespace heddle
