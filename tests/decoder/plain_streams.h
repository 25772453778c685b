// Reference hyper-connections and block residuals by plain operators.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "heddle/decoder/description.h"

namespace heddle::tests {

// Holds the parameters of a layer's or of the head's streams. x is [tokens, streams * width].
struct PlainStreams {
  at::Tensor fn, base, scale;
  decoder::HyperConnections form;

  // Returns [tokens, weights], the result of hyper_weights().
  at::Tensor weights(const at::Tensor& x) const;
  at::Tensor collapsed(const at::Tensor& x) const;
  at::Tensor expanded(const at::Tensor& x, const at::Tensor& y) const;

 private:
  at::Tensor scores(const at::Tensor& x, int64_t part, int64_t first, int64_t count) const;
};

// Reference of BlockResiduals: combines `blocks` and x [..., width] with softmax weights of their scores.
at::Tensor plain_blocks(const std::vector<at::Tensor>& blocks, const at::Tensor& x, const at::Tensor& norm,
                        const at::Tensor& proj, double eps);

}  // namespace heddle::tests
