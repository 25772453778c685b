// How tokens come to the ranks that hold their experts, and the experts' outputs back.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/experts.h"

namespace heddle::moe {

using Local = Experts::Instead::Next;

// Every call is a collective of the ranks of ep (or etp), and so is its backward; also for a rank without a
// token.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  // x [tokens, hidden]: this rank's, as many as it has; routing counts all experts of the model. `local`
  // computes the experts of this rank for the tokens that have come. `meanwhile` runs while they travel.
  // `room` above 0: no expert is chosen more often, and each gets exactly as many rows, the rest empty.
  // Returns [tokens, hidden].
  virtual at::Tensor run(const at::Tensor& x, const model::Routing& routing, Experts& experts,
                         const Batch& batch, model::Meanwhile& meanwhile, const Local& local,
                         int64_t room) const = 0;
};

// All tokens go to all ranks, and a reduce-scatter brings the sums back. Peak: ranks * most tokens * hidden,
// twice in the forward (tokens and outputs) and twice in the backward.
std::unique_ptr<Dispatcher> make_gathered(Communicator& ranks);

// The same among ranks that hold parts of the width of the same experts; routing counts these experts.
std::unique_ptr<Dispatcher> make_joined(Communicator& ranks);

// Each choice of a token travels to its expert's rank (GShard, Lepikhin et al. 2020). Peak: what is sent,
// tokens * top-k * hidden, and what comes, twice.
std::unique_ptr<Dispatcher> make_all_to_all(Communicator& ranks);

}  // namespace heddle::moe
