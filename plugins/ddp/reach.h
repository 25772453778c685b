// Which parameters a graph leads to.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace heddle::ddp {

// True for every accumulator of `places` that the graph below `roots` reaches; its value is its index in the
// result. All are true if the graph has a unit that is recomputed in a nested backward, because its graph
// does not show what it uses. Visits the whole graph.
std::vector<bool> reach(std::span<const std::weak_ptr<torch::autograd::Node>> roots,
                        const std::unordered_map<const torch::autograd::Node*, int>& places);

}  // namespace heddle::ddp
