// Seams for layers other than attention that combine tokens of a row: the recurrence of a mixer, and the keys
// of an indexer.
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

// Heads [first_head, first_head + heads) of each of the groups [first_group, first_group + groups). Groups
// are consecutive heads. A range of several groups has all of their heads.
struct HeadRange {
  int64_t groups = 1, heads = 1;  // heads: per group
  int64_t first_group = 0, first_head = 0;
  bool operator==(const HeadRange&) const = default;
};

// Inputs of a sequence core: all tokens of a batch, some of the heads.
struct SequenceInputs {
  FewTensors of_heads;   // [tokens, groups * heads * any] each
  FewTensors of_groups;  // [tokens, groups * any] each: shared by the heads of a group
};

// Return the rows that belong to `range` of a parameter whose rows are divided evenly among the heads (or the
// groups) of `whole`.
HEDDLE_API at::Tensor rows_of_heads(const at::Tensor& parameter, const HeadRange& whole,
                                    const HeadRange& range);
HEDDLE_API at::Tensor rows_of_groups(const at::Tensor& parameter, const HeadRange& whole,
                                     const HeadRange& range);

// The result of gathering rows over ranks. No gradient.
struct GatheredRows {
  at::Tensor values;  // [tokens of whole rows, any], whole_sequence_of(batch) tokens per row
  // int64 [tokens], on the host: the indices in `values` of this rank's tokens. Undefined: this rank has all
  // tokens, in order.
  at::Tensor places;
};

}  // namespace model

// Head counts of the whole model, before tensor parallelism splits it.
struct SequenceCounts {
  int64_t groups = 1, heads = 1;  // heads: over all groups
  bool split = true;              // whether ranks of tp have parts of the groups if tp_size divides them
};

// The part of a mixer that needs whole rows and computes each head separately, the seam of context
// parallelism. Links send tokens so that each rank of cp has the rows of all ranks for a range of the heads;
// parameters of heads then get their gradients on the ranks that have these heads. Computations on single
// tokens (gates, output norms) belong after the core. A child of its mixer, whose own forward computes each
// token alone.
class HEDDLE_API SequenceCore : public Module {
 public:
  // Returns [tokens, groups * heads * any].
  using Instead =
      Chain<at::Tensor(model::SequenceInputs in, const model::HeadRange& range, const Batch& batch)>;
  // Computes a range of heads. The rows of `in` are whole, with whole_sequence_of(batch) tokens and the
  // batch's documents.
  using Own = std::function<at::Tensor(const model::SequenceInputs& in, const model::HeadRange& range)>;

  // counts: for checks before the first step.
  explicit SequenceCore(const SequenceCounts& counts) : counts_(counts) {}
  ~SequenceCore() override;
  std::string_view kind() const override { return "sequence_core"; }
  ModuleTraits traits() const override;

  // Runs the links around `own`. in: all heads of this rank. heads: their range, which begins at 0. own:
  // computes any range of these heads.
  at::Tensor compute(model::SequenceInputs in, const model::HeadRange& heads, const Batch& batch,
                     const Own& own);

  Instead instead{"SequenceCore::instead"};
  const SequenceCounts& counts() const { return counts_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws; use compute()

 private:
  SequenceCounts counts_;
};

// A gather of values over whole rows without gradient, such as the keys of an indexer. The seam of context
// parallelism: an in_place link gathers the rows of all ranks. A child of a layer that supports the axis cp.
class HEDDLE_API RowGather : public Module {
 public:
  using Instead = Chain<model::GatheredRows(at::Tensor own, const Batch& batch)>;
  ~RowGather() override;
  std::string_view kind() const override { return "row_gather"; }
  ModuleTraits traits() const override;

  // Gathers own [tokens, any]. Not recorded by autograd.
  model::GatheredRows gather(at::Tensor own, const Batch& batch);

  Instead instead{"RowGather::instead"};

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // throws; use gather()
};

}  // namespace heddle
