// Parameters that an autograd graph reaches.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace heddle::ddp {

// Returns true for every accumulator of `places` that the graph from `roots` reaches. places maps an
// accumulator to its index in the result. All are true if the graph contains a unit that is recomputed in a
// nested backward, because its graph does not show which parameters it uses. Traverses the whole graph.
std::vector<bool> reach(std::span<const std::weak_ptr<torch::autograd::Node>> roots,
                        const std::unordered_map<const torch::autograd::Node*, int>& places);

}  // namespace heddle::ddp
