// Which parameters a graph leads to.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace heddle::ddp {

// True for every accumulator of `places` that the graph below `roots` reaches; its value is its place in the
// result. All are true where the graph holds a unit that is computed again in a backward of its own, because
// that does not show what it uses. Visits the whole graph.
std::vector<bool> reach(std::span<const std::weak_ptr<torch::autograd::Node>> roots,
                        const std::unordered_map<const torch::autograd::Node*, int>& places);

}  // namespace heddle::ddp
