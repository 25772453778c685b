// What layers compute from all tokens of their rows and is no attention: the recurrence of a mixer, between
// its projections, and the keys of an indexer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"
#include "heddle/nn/linear.h"

namespace heddle {

namespace model {

// Heads [first_head, first_head + heads) of each of the groups [first_group, first_group + groups), which are
// neighbours. A range of several groups has all of their heads.
struct HeadRange {
  int64_t groups = 1, heads = 1;  // heads: of each group
  int64_t first_group = 0, first_head = 0;
  bool operator==(const HeadRange&) const = default;
};

// Inputs of a sequence core, of all tokens of a batch and of some heads.
struct SequenceInputs {
  FewTensors of_heads;   // each [tokens, groups * heads * any]
  FewTensors of_groups;  // each [tokens, groups * any]: what the heads of a group share
};

// A parameter with as many rows for each head of `all` (for each group): the rows of a range of them.
HEDDLE_API at::Tensor rows_of_heads(const at::Tensor& parameter, const HeadRange& all,
                                    const HeadRange& range);
HEDDLE_API at::Tensor rows_of_groups(const at::Tensor& parameter, const HeadRange& all,
                                     const HeadRange& range);

// Of all tokens of the rows; without a gradient.
struct GatheredRows {
  at::Tensor values;  // [tokens of whole rows, any]: whole_sequence_of(batch) of each row
  // int64 [tokens], on the host: the places in `values` of the tokens that the batch has. Undefined: they are
  // all of them, in their order.
  at::Tensor places;
};

}  // namespace model

// Of the whole model, before any axis splits it.
struct SequenceCounts {
  int64_t groups = 1, heads = 1;  // heads: of all groups
  bool split = true;              // ranks of tp have parts of them, where tp_size divides the groups
};

// What a mixer computes from whole rows, head by head: the seam of context parallelism, whose links compute
// around it. Each rank of cp then has the rows of all ranks and a range of the heads, so that parameters of
// heads get their gradients on the ranks that compute these. What is of single tokens (gates, norms of the
// output) belongs behind the core. A child of its mixer, whose own forward computes each token alone.
class HEDDLE_API SequenceCore : public Module {
 public:
  // Returns [tokens, groups * heads * any].
  using Instead =
      Chain<at::Tensor(model::SequenceInputs in, const model::HeadRange& range, const Batch& batch)>;
  // The rows of `in` are whole: whole_sequence_of(batch) tokens each, with the batch's documents.
  using Own = std::function<at::Tensor(const model::SequenceInputs& in, const model::HeadRange& range)>;

  // counts: for checks before the first step.
  explicit SequenceCore(const SequenceCounts& counts) : counts_(counts) {}
  ~SequenceCore() override;
  std::string_view kind() const override { return "sequence_core"; }
  ModuleTraits traits() const override;

  // in: of all heads of this rank, `all`, which begins with 0; own: computes any range of them.
  at::Tensor compute(model::SequenceInputs in, const model::HeadRange& all, const Batch& batch,
                     const Own& own);

  Instead instead{"SequenceCore::instead"};
  const SequenceCounts& counts() const { return counts_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: compute() takes several tensors

 private:
  SequenceCounts counts_;
};

// What a layer needs of all tokens of its rows and what gets no gradient, such as the keys of an indexer: the
// seam of context parallelism, whose link in place gathers the rows of all ranks. A child of the layer, which
// has a rule for the axis cp then.
class HEDDLE_API RowGather : public Module {
 public:
  using Instead = Chain<model::GatheredRows(at::Tensor own, const Batch& batch)>;
  ~RowGather() override;
  std::string_view kind() const override { return "row_gather"; }
  ModuleTraits traits() const override;

  // own [tokens, any]. Nothing is recorded by autograd.
  model::GatheredRows gather(at::Tensor own, const Batch& batch);

  Instead instead{"RowGather::instead"};

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: gather() returns two tensors
};

}  // namespace heddle
