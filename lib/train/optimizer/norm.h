// The gradient norm over the shards of a whole model, and the factor that clips it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/shard.h"

namespace heddle::train {

// The sum of the squares of a tensor in fp64 (fp32 gradients cannot overflow it), the same for any number of
// threads.
HEDDLE_API double sum_of_squares(const at::Tensor& tensor);

// The same of all tensors together, fp64 [1] on their device: a few kernels, without a read-back. The
// tensors are of one device, and there is at least one.
HEDDLE_API at::Tensor sum_of_squares_on_device(at::TensorList tensors);

// Shards that the same axes split are summed together; each sum is then reduced over exactly those axes, and
// over `pp`. Keeps the grouping of the shards, so that a step only adds.
class HEDDLE_API GradientNorm {
 public:
  // norm_type: p of the p-norm, above 0; infinity: the largest number.
  GradientNorm(std::span<Shard* const> shards, const DeviceMesh& mesh, double norm_type = 2.0);

  // The norm of all gradients, fp64 [1]; gradients that are undefined count as zero. A gradient that is inf
  // makes it inf, one that is nan makes it nan, on every rank of the axes that split any shard. Finite ones
  // never overflow: squares of fp32 are summed in fp64, which holds them, and anything else is scaled by the
  // largest number first. A collective of every rank.
  at::Tensor measure() const;
  // The sum of the squares of this rank's stages alone, fp64 [1]: measure() is the root of the sum over `pp`.
  // A collective of every rank along the other axes. Only where it is_a_sum().
  at::Tensor squares_of_stages() const;
  // Whether the norm is the root of one sum of squares; others need the largest number first.
  bool is_a_sum() const { return norm_type_ == 2.0 && fits_; }

 private:
  struct Group {
    std::vector<std::string> axes;
    std::vector<Shard*> shards;
    std::vector<Communicator*> reduces;
  };
  void agree(const DeviceMesh& mesh);
  at::Tensor squares_of(const Group& group) const;
  at::Tensor euclidean() const;
  at::Tensor scaled() const;
  at::Tensor largest() const;
  using Part = std::function<at::Tensor(const Group&)>;
  at::Tensor over_axes(Reduce reduce, const Part& of_group) const;
  at::Tensor over_ranks(Reduce reduce, const Part& of_group) const;

  c10::Device device_;
  double norm_type_;
  bool fits_;  // squares of the gradients are within fp64
  std::vector<Group> groups_;
  Communicator* pipeline_ = nullptr;
  bool crosses_ = false;  // several groups, of which some are reduced over ranks
};

// The largest gradient norm that AdamW supports: above it the squares of the clipped gradients (max_norm;
// empty: not clipped) or the divisor are not finite in fp32.
HEDDLE_API double largest_norm(std::optional<double> max_norm);

// The argument `skip` of AdamW::update: fp32 [1] beside the norm, 1 where it is above `largest` or nan.
HEDDLE_API at::Tensor skip_above(const at::Tensor& norm, double largest);

// The divisor of the gradients, so that their norm becomes at most max_norm: max(1, (norm + 1e-6) /
// max_norm), fp32 [1]. torch.nn.utils.clip_grad_norm_ multiplies by the reciprocal.
HEDDLE_API at::Tensor clip_divisor(const at::Tensor& norm, double max_norm);

}  // namespace heddle::train
