// Linear layers of one input under autocast, as one node.
#pragma once

#include "heddle/model/autocast.h"
#include "lib/nn/linear_products.h"

namespace heddle::model {

// The outputs of all layers for x, in autocast's dtype; with a residual, in the wider dtype of the two.
FewTensors linears_autocast(const at::Tensor& residual, const at::Tensor& x, const FewWeights& layers,
                            WeightGradients* later, Autocast& autocast);

}  // namespace heddle::model
