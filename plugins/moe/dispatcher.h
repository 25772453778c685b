// Token dispatchers: send tokens to the ranks of their experts, and return the experts' outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/experts.h"

namespace heddle::moe {

using Local = Experts::Instead::Next;

// Every call is a collective of the ranks of ep (or etp), and so is its backward, also on a rank without
// tokens.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  // Runs the experts of all ranks on this rank's tokens and returns [tokens, hidden]. x: [tokens, hidden];
  // ranks may differ in the number of tokens. routing: over all experts of the model. `local` computes this
  // rank's experts for the received tokens. `meanwhile` runs during the transfer. `room` above 0: no expert
  // is selected more often, and each gets exactly that many rows, the rest of them empty.
  virtual at::Tensor run(const at::Tensor& x, const model::Routing& routing, Experts& experts,
                         const Batch& batch, model::Meanwhile& meanwhile, const Local& local,
                         int64_t room) const = 0;
};

// Gathers all tokens on all ranks, and returns sums with a reduce-scatter. Peak memory: ranks * most tokens *
// hidden, twice in the forward (tokens and outputs) and twice in the backward.
std::unique_ptr<Dispatcher> make_gathered(Communicator& ranks);

// Like make_gathered(), for ranks that split the width of the same experts. routing: over these experts.
std::unique_ptr<Dispatcher> make_joined(Communicator& ranks);

// Sends each token to the ranks of its experts (GShard, Lepikhin et al. 2020). Peak memory: the sent rows,
// tokens * top-k * hidden, and the received rows, twice.
std::unique_ptr<Dispatcher> make_all_to_all(Communicator& ranks);

}  // namespace heddle::moe
