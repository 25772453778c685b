// The sum of the token losses: cross entropy in fp32 over the labels that are not ignored.
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

// logits [tokens, vocabulary], labels int64 (as many as tokens; Batch::kIgnore: no loss). Returns fp32 [1]
// (fp64 for fp64). Works by blocks of rows: the fp32 logits of the whole batch never exist at once;
// log-probabilities are not kept. soft_cap, here and below: logits become cap * tanh(logit / cap) first
// (Gemma 2); 0: they stay.
HEDDLE_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels, double soft_cap = 0);

// The same with logits = hidden W^T, hidden [tokens, width], weight [vocabulary, width]; logits exist for one
// block of rows only. Gradients are computed together with the loss of a block (the method of Liger kernels,
// Hsu et al. 2024), and scaled in the backward.
HEDDLE_API at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels, double soft_cap = 0);

// The rows [first, first + n) of a head of `whole` rows that is split over `ranks`, n those of the weight.
struct VocabularyPart {
  int64_t first = 0, whole = 0;
  Communicator* ranks = nullptr;
};

// The same over a split vocabulary: no rank ever holds the logits of other rows. Every rank gives the same
// hidden states and labels and gets the whole loss, the same bits on each. For each block of rows the ranks
// exchange three numbers a row: their largest logit, their sum of exponentials and the label's logit
// (Shoeybi et al. 2019, in one gather). The gradient of hidden is this rank's part of a sum over the ranks.
HEDDLE_API at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels, const VocabularyPart& part,
                                        double soft_cap = 0);

// The loss from this rank's logits [tokens, n], of a head that is split so. The gradient is that of its own
// logits.
HEDDLE_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels,
                                 const VocabularyPart& part, double soft_cap = 0);

}  // namespace model

// The loss as a module without parameters: the seam where a split vocabulary stays split.
class HEDDLE_API TokenLoss : public Module {
 public:
  // soft_cap: of the logits, as above. A link in place applies it itself.
  explicit TokenLoss(double soft_cap = 0);
  std::string_view kind() const override { return "token_loss"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::loss}; }

  // Links compute around the head's product and the loss over it, or in their place. One in place of it
  // - returns the sum over tokens, fp32 [1] (fp64 for fp64), not a mean: the engine divides by the labels of
  //   all ranks;
  // - leaves out tokens whose label is Batch::kIgnore, in the loss and in each gradient: a batch without
  // other
  //   labels gives 0 and gradients of 0;
  // - computes exponentials of logits less their largest, so that logits of any size stay finite;
  // - applies soft_cap() itself, and computes over a head that is split along tp (`split`) or is offered with
  //   the axis tp in OfferedTransform::refuses;
  // - keeps nothing from one batch for the next, and draws nothing.
  // A metric or an auxiliary loss is a side output (heddle/model/side_outputs.h), not a part of the sum.
  using Instead = Chain<at::Tensor(const at::Tensor& hidden, Linear& head, const Batch& batch)>;
  Instead instead{"TokenLoss::instead"};

  // Set by a parallelizer that splits the head's rows, for links around that compute the loss themselves: the
  // rows that the head's weight holds, and the hidden states as each rank needs them, whose gradient is then
  // this rank's part of a sum.
  struct Split {
    model::VocabularyPart part;
    std::function<at::Tensor(const at::Tensor& hidden, const Batch& batch)> enter;
  };
  std::optional<Split> split;

  // The sum of the token losses of hidden [tokens, width] through `head`, with the batch's labels.
  at::Tensor of(const at::Tensor& hidden, Linear& head, const Batch& batch);
  // The logits of a batch without labels, capped: [tokens, vocabulary].
  at::Tensor logits(const at::Tensor& hidden, Linear& head, const Batch& batch) const;
  double soft_cap() const { return soft_cap_; }

 protected:
  at::Tensor forward(at::Tensor logits, const Batch& batch) override;  // from logits

 private:
  at::Tensor of_itself(const at::Tensor& hidden, Linear& head, const Batch& batch);
  double soft_cap_;
};

namespace model {

// The head of a model: a module with a Linear and a TokenLoss among its children.
struct LossHead {
  Module* module = nullptr;  // null: there is no head, and the others are null too
  Linear* linear = nullptr;
  TokenLoss* loss = nullptr;
  Module* norm = nullptr;  // a norm among the same children; null: none
};

// The first head in the order of Module::visit: `module` itself, else one below it.
HEDDLE_API LossHead loss_head_of(Module& module);
// That of the last unit that has one.
HEDDLE_API LossHead loss_head_of(const Units& units);

}  // namespace model
}  // namespace heddle
