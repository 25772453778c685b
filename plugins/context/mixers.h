// Mixers with a state of each head: every rank gets whole rows of some of the heads, and returns the results
// for the tokens of each rank (as Megatron-Core does for Mamba).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/sequence_core.h"
#include "sequence.h"

namespace heddle::context {

// The heads that each rank computes. Whole groups where there are as many as ranks; else each group's heads
// are dealt over some of the ranks. Throws Error{config} for fewer heads than ranks.
std::vector<model::HeadRange> deal_heads(const model::HeadRange& all, int ranks);

// What the layers of one microbatch share.
struct WholeRows {
  RowOrder order;     // on the device of the tokens
  at::Tensor places;  // of this rank's tokens in the rows, on the host
  Communicator* ranks = nullptr;
};

// The rows of x [any, columns] at these places. Below autograd.
at::Tensor rows_at(const at::Tensor& x, const at::Tensor& places);

// Inputs of this rank's tokens and of all heads; returns those of whole rows and of the range of this rank.
// Ranks that share a group get its columns each, and the gradients of all of them are summed. Recorded by
// autograd, as one exchange.
model::SequenceInputs to_whole_rows(const model::SequenceInputs& in, const model::HeadRange& all,
                                    const std::vector<model::HeadRange>& ranges,
                                    const std::shared_ptr<const WholeRows>& rows);

// The inverse, of the outputs: y [tokens of whole rows, heads of this rank's range * any].
at::Tensor to_own_rows(const at::Tensor& y, const model::HeadRange& all,
                       const std::vector<model::HeadRange>& ranges,
                       const std::shared_ptr<const WholeRows>& rows);

}  // namespace heddle::context
