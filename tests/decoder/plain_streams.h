// Hyper-connections and residuals of blocks by plain operators.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "heddle/decoder/description.h"

namespace heddle::tests {

// Parameters as the slots of a layer, or of the head. x [tokens, streams * width].
struct PlainStreams {
  at::Tensor fn, base, scale;
  decoder::HyperConnections form;

  // [tokens, weights], as hyper_weights() gives them.
  at::Tensor weights(const at::Tensor& x) const;
  at::Tensor collapsed(const at::Tensor& x) const;
  at::Tensor expanded(const at::Tensor& x, const at::Tensor& y) const;

 private:
  at::Tensor scores(const at::Tensor& x, int64_t part, int64_t first, int64_t count) const;
};

// BlockResiduals: the sum of blocks and x [..., width] by a softmax of their scores.
at::Tensor plain_blocks(const std::vector<at::Tensor>& blocks, const at::Tensor& x, const at::Tensor& norm,
                        const at::Tensor& proj, double eps);

}  // namespace heddle::tests
