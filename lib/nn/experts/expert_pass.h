// One expert after the other, forward and backward, while its rows are in the cache: float32 on one thread of
// the CPU. Grouped products write and read the rows of all experts between two products. The kernels are
// theirs, so the bits are equal.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/nn/experts.h"

namespace heddle::model {

// x [tokens, hidden], gate_up [experts, 2 width, hidden], down [experts, hidden, width], shares [rows]: the
// router's weight of each row.
struct ExpertPass {
  const ExpertRows& rows;
  const ExpertActivation& activation;
  at::Tensor x, gate_up, down, shares;
};

// Whether ranks compute with one thread, as a dry step of the CPU (meta without MetaKernels) assumes.
bool has_one_thread(const at::Tensor& x);

// Whether both passes below take it: no biases, no adapters, the products as they are, gates with a sigmoid,
// all contiguous.
HEDDLE_API bool has_expert_pass(const ExpertActivation& activation, const at::Tensor& x,
                                const ExpertParameters& parameters);

// Returns the experts' output of each row, [rows, hidden]; fills `hidden` [rows, 2 width], the first product.
HEDDLE_API at::Tensor pass_forward(const ExpertPass& pass, const at::Tensor& hidden);

struct PassGradients {
  at::Tensor rows;           // [rows, hidden]: of x, before the sum over a token's rows
  at::Tensor shares;         // [rows]
  at::Tensor gate_up, down;  // as the parameters; zeros for an expert without rows
};
// dy [tokens, hidden] and what pass_forward() filled.
HEDDLE_API PassGradients pass_backward(const ExpertPass& pass, const at::Tensor& hidden,
                                       const at::Tensor& dy);

}  // namespace heddle::model
