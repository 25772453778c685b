// Exchange for mixers with a state per head: each rank gets whole rows of some of the heads, and returns the
// results for the tokens of each rank (as Megatron-Core does for Mamba).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/sequence_core.h"
#include "sequence.h"

namespace heddle::context {

// Returns the heads that each rank computes. Ranks get whole groups if there are at least as many groups as
// ranks, else several ranks split the heads of a group. Throws Error{config} if there are fewer heads than
// ranks.
std::vector<model::HeadRange> deal_heads(const model::HeadRange& all, int ranks);

// State that the layers of one microbatch share.
struct WholeRows {
  RowOrder order;     // on the tokens' device
  at::Tensor places;  // positions of this rank's tokens in the rows, on the host
  Communicator* ranks = nullptr;
};

// Rows of x [any, columns] at `places`. Not recorded by autograd.
at::Tensor rows_at(const at::Tensor& x, const at::Tensor& places);

// Takes the inputs of this rank's tokens for all heads, and returns those of whole rows for this rank's head
// range. Ranks that share a group each get its columns, and the gradients are summed. Recorded by autograd,
// as one exchange.
model::SequenceInputs to_whole_rows(const model::SequenceInputs& in, const model::HeadRange& all,
                                    const std::vector<model::HeadRange>& ranges,
                                    const std::shared_ptr<const WholeRows>& rows);

// Inverse of to_whole_rows() for outputs: y [tokens of whole rows, heads of this rank's range * any].
at::Tensor to_own_rows(const at::Tensor& y, const model::HeadRange& all,
                       const std::vector<model::HeadRange>& ranges,
                       const std::shared_ptr<const WholeRows>& rows);

}  // namespace heddle::context
